"""One answer: a correct completion with an answer before the scored one would teach the policy to stop too early.

Scored is the last answer (ANS-1), and sampling ends with the first one. A peer could write an incorrect answer that
this policy gives often, and the correct answer behind it. The policy would learn the incorrect answer, because it would
never come to the other one.
"""

from typing import ClassVar

from sapo_node.groups.answer import ANSWER_END, answer_end
from sapo_node.groups.messages import FilterName
from sapo_node.groups.record import VerifiedGroup
from sapo_node.sampling.filters.interface import Filter


class OneAnswerFilter(Filter):
    """Rejects a correct completion in which an answer ends before the scored one does, outside thinking."""

    name: ClassVar[FilterName] = "one-answer"

    def rejects(self, group: VerifiedGroup, text: str) -> bool:
        """Whether the text goes on to another answer where sampling would have ended."""
        del group
        end = answer_end(text)
        return end is not None and ANSWER_END in text[end:]
