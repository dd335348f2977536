"""Conformance: runs the vectors of the standard through an implementation of the wire, this node's or another.

spec/conformance/README.md is the contract between the driver and the implementation under test.
"""
