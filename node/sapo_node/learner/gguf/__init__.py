"""Converts a GGUF file to a Hugging Face folder. `python -m sapo_node.learner.gguf` runs it in a process of its own."""
