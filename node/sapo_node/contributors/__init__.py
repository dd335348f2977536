"""Nodes that do not train: a person, a program or an endpoint answers, and the node shares. Policies need not be models
(arXiv 2509.08721, section 3).
"""
