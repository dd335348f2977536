"""Hours of a swarm of real processes, some of which are killed again and again: what grows, what does not come back."""
