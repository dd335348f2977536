"""Files that the package brings and that commands read and write. Imports no other room.

`records` writes results whole or not at all, `packaged` finds a TOML file by name or path, and `typed` checks its
tables against the type hints of a dataclass. What is wrong with a file is a LocalError of one line:

    table = load_named("sapo_adversary.data.scenarios", "false-claim", "scenario", "sapo-adversary list", make)
"""
