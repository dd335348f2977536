"""Learning experiments: each a TOML file beside this one that says all of its numbers, played by the simulator.

`experiment` reads it and says which runs it takes, `summary` turns their records into figures, `plots` draws those.
"""
