"""A whole node: the wiring of the rooms, the process that runs it, its state folder and its configuration.

Imports every room below it. `running_node` starts the sandbox, the learner, the network and the page around `node`.
"""
