"""Files as a bad disk or a bad transfer leaves them."""


def mutated(data, rng):
    """One to four bytes overwritten, a piece cut out, or a piece repeated."""
    data = bytearray(data)
    where, length = rng.randrange(len(data)), rng.randrange(1, 40)
    match rng.randrange(3):
        case 0:
            for _ in range(rng.randrange(1, 5)):
                data[rng.randrange(len(data))] = rng.randrange(256)
        case 1:
            del data[where : where + length]
        case 2:
            data[where:where] = data[where : where + length] * rng.randrange(1, 50)
    return bytes(data)
