"""Scores assignments: colours of vertices, digits of letters, kinds of people, and words to groups."""

import re
from fractions import Fraction

from sapo_node.tasks.scorers.notation import sequence, table
from sapo_node.tasks.task import Task

_EQUALS = r"[\"']? ?(?::|=|->|→) ?[\"']?"
_COLOR = re.compile(rf"(?:vertex )?([0-9]{{1,4}}){_EQUALS}([0-9]{{1,4}})(?![0-9])", re.IGNORECASE)


def is_coloring(task: Task, answer: str) -> bool:
    """Return whether the answer gives each vertex one of the colours, and no two neighbours the same."""
    puzzle = task.metadata["puzzle"]
    pairs = [(int(vertex), int(color)) for vertex, color in (match.groups() for match in sequence(_COLOR, answer))]
    colors = dict(pairs)
    if sorted(vertex for vertex, _ in pairs) != puzzle["vertices"]:
        return False
    if not set(colors.values()) <= set(puzzle["color_options"]):
        return False
    return all(colors[one] != colors[other] for one, other in puzzle["edges"])


_DIGIT = re.compile(rf"([A-Z]){_EQUALS}([0-9])(?![0-9])", re.IGNORECASE | re.ASCII)


def is_cryptarithm(task: Task, answer: str) -> bool:
    """Return whether the answer gives each letter a digit of its own, no word a leading zero, and the sum holds."""
    puzzle = task.metadata
    pairs = [(match[1].upper(), match[2]) for match in sequence(_DIGIT, answer)]
    digits = dict(pairs)
    if sorted(letter for letter, _ in pairs) != sorted(puzzle["letters"]) or len(set(digits.values())) < len(digits):
        return False
    *words, total = (
        "".join(digits[letter] for letter in word) for word in (*puzzle["words_letters"], puzzle["result_letters"])
    )
    if not puzzle["allow_leading_zero"] and any(word.startswith("0") for word in (*words, total)):
        return False
    return sum(map(int, words)) == int(total)


_KIND = re.compile(
    r"(?:and )?([a-z]{1,20})(?: is|:| =) ?(?:an? |the )?([a-z]{1,20})(?![a-z])", re.IGNORECASE | re.ASCII
)


def is_knights_and_knaves(task: Task, answer: str) -> bool:
    """Return whether the answer names each person once, with the correct kind."""
    puzzle = task.metadata
    kinds = puzzle["knight_knave_terms"]
    expected = [
        (name.lower(), (kinds["knight"] if tells_truth else kinds["knave"]).lower())
        for name, tells_truth in zip(puzzle["names"], puzzle["solution"], strict=True)
    ]
    said = [(match[1].lower(), match[2].lower()) for match in sequence(_KIND, answer)]
    return sorted(said) == sorted(expected)


def share_of_groups(task: Task, answer: str) -> Fraction:
    """Return the share of the groups of anagrams that the answer has. It may use each word of the prompt once."""
    words, groups = task.metadata["words"], task.metadata["solution"]
    given = [frozenset(row) for row in table(answer)]
    used = [word for row in table(answer) for word in row]
    if len(set(used)) < len(used) or not set(used) <= set(words):
        return Fraction(0)
    return Fraction(sum(frozenset(group) in given for group in groups), len(groups))
