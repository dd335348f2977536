"""The sandbox: a process that rebuilds tasks, scores peers' completions, and has no other rights.

`client` is the node's side. The process, `zygote`, imports neither that nor trio.
"""
