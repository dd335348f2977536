"""From an attack to a verdict: the same swarm unattacked, attacked without the defence, and attacked with it."""
