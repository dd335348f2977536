"""The learner: its own process, the only one that imports torch. The main process talks to it through `client`."""
