"""Finds the common divisors of two numbers by their prime factors.

basic_arithmetic of reasoning-gym looks for a divisor of a product of up to five numbers, and tries every number up to
the square root: for some seeds that takes hours. This module returns the same list, so the items stay the same.
"""

from collections import Counter
from collections.abc import Iterator
from math import gcd

_TRIED = 1_000
"""Divisors below this are found by trial division."""

_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
"""Bases of the Miller-Rabin test. No composite number below 3 * 10^24 passes for all of them."""


def common_divisors(a: int, b: int) -> list[int]:
    """Return the divisors of both numbers in the order of reasoning-gym: 1, the largest, the next one, its partner."""
    number = gcd(a, b)
    divisors = [1] if number else []
    for prime, power in Counter(_prime_factors(number)).items():
        divisors = [each * prime**exponent for each in divisors for exponent in range(power + 1)]
    pairs = ((each, number // each) for each in sorted(divisors) if each * each <= number)
    return [each for low, high in pairs for each in ((low,) if low == high else (low, high))]


def _prime_factors(number: int) -> Iterator[int]:
    """Yield the prime factors of a number, each as often as it divides the number. 0 and 1 have none."""
    divisor = 2
    while divisor < _TRIED and divisor * divisor <= number:
        while number % divisor == 0:
            yield divisor
            number //= divisor
        divisor += 1
    rest = [number] if number > 1 else []
    while rest:
        part = rest.pop()
        if _is_prime(part):
            yield part
        else:
            divisor = _proper_divisor(part)
            rest += [divisor, part // divisor]


def _is_prime(number: int) -> bool:
    """Miller-Rabin test of a number above 1."""
    if number in _WITNESSES:
        return True
    twos = ((number - 1) & (1 - number)).bit_length() - 1
    for witness in _WITNESSES:
        power = pow(witness, number >> twos, number)
        if power == 1:
            continue
        for _ in range(twos):
            if power == number - 1:
                break
            power = power * power % number
        else:
            return False
    return True


def _proper_divisor(number: int) -> int:
    """Return a divisor of a composite number that is neither 1 nor the number: Pollard's rho method."""
    for step in range(1, number):
        slow = fast = 2
        divisor = 1
        while divisor == 1:
            slow = (slow * slow + step) % number
            fast = (fast * fast + step) % number
            fast = (fast * fast + step) % number
            divisor = gcd(slow - fast, number)
        if divisor != number:
            return divisor
    raise AssertionError("the number is composite")
