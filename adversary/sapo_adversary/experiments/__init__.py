"""Learning experiments in honest swarms: `experiment` reads the TOML file of one and says which runs it takes.

`summary` turns the records of the runs into figures, `tables` and `plots` show those. Imports `files` and `simulator`:

    what = load_experiment("sapo-table")
    summary = summarise(what, records_by_arm)
"""
