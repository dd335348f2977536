"""The commands of `sapo-node`, by what they are for."""
