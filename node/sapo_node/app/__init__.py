"""A whole node: the wiring of its parts, the process that runs it, its state folder and its configuration.

This room imports every room below it. `node` wires the parts. `run` plays the rounds, and meanwhile `exchange` sends to
peers and asks them. `running_node` also starts the sandbox, the learner, the network and the page, and reports to an
observer (`events`).
"""
