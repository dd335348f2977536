"""Scores words and texts: as a whole, by letters or words in their place, palindromes, and family relations."""

import re
from fractions import Fraction

from sapo_node.tasks.rows import in_lower_case
from sapo_node.tasks.scorers.lists import share_in_place
from sapo_node.tasks.task import Task
from sapo_node.tasks.wrappers import BLANKS


def is_text(task: Task, answer: str) -> bool:
    """Return whether the answer is exactly the reference, but for blanks at its ends."""
    return answer == task.answer.strip(BLANKS)


def is_text_in_any_case(task: Task, answer: str) -> bool:
    """Return whether the answer is the same ASCII text in any case."""
    return answer.isascii() and answer.lower() == task.answer.strip(BLANKS).lower()


def letters_in_place(task: Task, answer: str) -> Fraction:
    """Return the share of letters that stand where the reference has them, of those of the longer text, in any case."""
    return share_in_place(answer.lower(), task.answer.strip(BLANKS).lower()) if answer.isascii() else Fraction(0)


_BETWEEN_LETTERS = re.compile(r"[ \n,'\"-]", re.ASCII)


def is_palindrome(task: Task, answer: str) -> bool:
    """Return whether the answer reads the same backwards and has the letters of the reference, which are the prompt's.

    Blanks, commas, hyphens and quotes between the letters do not count.
    """
    letters = _BETWEEN_LETTERS.sub("", answer).lower()
    return answer.isascii() and letters == letters[::-1] and sorted(letters) == sorted(task.answer)


_CHILDREN_IN_LAW = {"son-in-law", "daughter-in-law"}


def is_relation(task: Task, answer: str) -> bool:
    """Return whether the answer is the same relation in any case.

    Where the reference is a parent-in-law, the prompt asks for the opposite relation: then either child-in-law is
    correct too, since the prompt does not tell the gender.
    """
    if task.answer.endswith("-in-law") and answer.lower().replace(" ", "-") in _CHILDREN_IN_LAW:
        return True
    return is_text_in_any_case(task, answer.replace(" ", "-"))


def has_words_in_any_case(task: Task, answer: str) -> Fraction:
    """Return the share of words that stand in their place, whatever the case of ASCII letters."""
    return share_in_place(in_lower_case(answer).split(), in_lower_case(task.answer).split())


def has_words(task: Task, answer: str) -> Fraction:
    """Return the share of words that stand in their place."""
    return share_in_place(answer.split(), task.answer.split())
