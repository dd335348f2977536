"""The TOML files of the package: `scenarios` that `run` plays, and `experiments` that `experiment` plays.

No code. `scenarios.scenario.load_scenario(NAME)` and `experiments.experiment.load_experiment(NAME)` read them.
"""
