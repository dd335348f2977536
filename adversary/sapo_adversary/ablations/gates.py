"""The gates among the defences, by name: a simulation sets them, and no code is replaced."""


def gate_name(gate: str) -> str:
    """The name of a gate among the defences."""
    return f"{gate} gate"
