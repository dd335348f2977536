"""The commands of `sapo-node`, one module for each purpose."""
