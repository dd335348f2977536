"""Judges attacks: the same honest nodes play alone, in an honest swarm, attacked without defences and with them.

`scenario` reads the TOML file, `play` plays its arms, `metrics` and `outcome` judge the records, `matrices` plays many,
`page` and `table` show them. Imports `files`, `attacks`, `ablations` and `simulator`:

    scenario = load_scenario("false-claim")
    [outcome] = play([(scenario, SHARE)], [1], records, policies=folder, engine=ThisMachine(), console=console)
"""
