"""A whole node: the wiring of the rooms, the process that runs it, its state folder and its configuration.

Imports every room below it. `node` wires the parts, `run` plays their rounds (`training_loop`, `contribution_loop`) and
`exchange` deals with peers meanwhile. `running_node` starts the sandbox, the learner, the network and the page around
them, and tells an observer (`events`).
"""
