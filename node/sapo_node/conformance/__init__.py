"""Conformance: run the vectors of the standard through any reader of the wire, this node's own or another's.

The contract between driver and reader is spec/conformance/README.md.
"""
