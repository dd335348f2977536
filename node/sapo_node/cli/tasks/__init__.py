"""Shows and checks tasks, for people who write tasks or choose those of a swarm."""
