"""What is wrong with a node now, or awaited: a sentence for each part that says so, until that part takes it back."""

from collections.abc import MutableMapping


def stand(standing: MutableMapping[str, str], part: str, text: str) -> None:
    """Let the text of a part stand in place of its last one. An empty text takes that back."""
    if text:
        standing[part] = text
    else:
        standing.pop(part, None)
