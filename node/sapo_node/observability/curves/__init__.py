"""Writes the curves of a node to where people keep them: JSON lines, TensorBoard, Trackio or Weights & Biases.

Each target is one child process, which follows the node's database and changes nothing in it. So a slow or broken
target stops neither the node nor another target.
"""
