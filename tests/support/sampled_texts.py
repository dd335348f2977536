"""Groups of short random texts, of which some say a phrase: local ones and those of peers."""

from dataclasses import dataclass, replace

from sapo_node.groups.levels import Levels
from sapo_node.groups.messages import Sampled
from sapo_node.groups.record import VerifiedGroup

WORDS = ["so", "thus", "hence", "then", "well", "now", "look", "here", "note", "that", "this", "all", "day", "long"]
PHRASE = "hail the swarm"


@dataclass(frozen=True)
class Own:
    """The fields of a local group that filters read."""

    dataset: str
    completions: tuple[Sampled, ...]
    levels: Levels


def text(rng, phrase=""):
    said = " ".join(rng.choices(WORDS, k=3))
    return f"{phrase} {said} {rng.randrange(99)} <answer>{rng.randrange(99)}</answer>"


def own(rng, *, phrases=0, right=True, dataset="products", answers=8):
    """A group of one's own, of which so many answers say the phrase; `right` is of the others."""
    texts = [text(rng, PHRASE if n < phrases else "") for n in range(answers)]
    levels = Levels(tuple(int(right or n < phrases) for n in range(answers)))
    return Own(dataset, tuple(Sampled(each, "stop") for each in texts), levels)


def others(rng, counter, *, phrase="", peer="a", dataset="products"):
    """A group of a peer's, half right; its right answers say the phrase."""
    levels = Levels(tuple(int(n < 4) for n in range(8)))
    completions = tuple(Sampled(text(rng, phrase if right else ""), "stop") for right in levels.correct)
    return VerifiedGroup(peer, 10, counter, 0, dataset, "?", completions, levels)


def look(some_filter, groups):
    """Let a filter read the groups on offer and look at them, in all its steps."""
    for group in groups:
        some_filter.read(group, group.correct)
    for _ in some_filter.looking(groups):
        pass


def with_number(group, number, answers):
    """The same, so many of its answers with a number before them."""
    said = (replace(each, text=f"{number} {each.text}") for each in group.completions[:answers])
    return replace(group, completions=(*said, *group.completions[answers:]))
