"""Sampling by an inference server that serves the weights of this node: vLLM or SGLang.

`generation` decides who samples, and reads the completions. `checks` compares the server with this node. `engines`
speaks the protocol of each server, and `connection` is HTTP with limits.
"""
