"""One attack a file, with what harm it must do undefended and what the node must hold."""
