"""Nodes that do not train: a person, a program or an endpoint answers the tasks, and the node shares the answers.

The paper allows policies that are not models (arXiv 2509.08721, section 3).
"""
