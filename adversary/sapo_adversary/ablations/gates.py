"""The gates among the defences, by name: a simulation sets them, and no code is replaced."""


def gate_name(gate: str) -> str:
    """What a gate is called among the defences."""
    return f"{gate} gate"
