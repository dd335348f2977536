"""Writes a file of word problems, one JSON object a line, for a swarm whose tasks come from a file.

    python examples/word_problems.py 2000 > problems.jsonl
    sapo-node task file problems.jsonl --scorer number --name word_problems

Each problem takes one step of arithmetic. The prompts differ from one another, and the same count gives the same file.
"""

import json
import random
import sys

NAMES = ("Ada", "Ben", "Carla", "Deniz", "Emma", "Femi", "Goran", "Hana", "Ivan", "Jun", "Kofi", "Lena")
THINGS = ("apples", "pens", "shells", "stamps", "cards", "coins", "books", "stones", "eggs", "tickets")


def problem(drawn: random.Random) -> tuple[str, int]:
    """Return the prompt and the answer of one problem."""
    name, other = drawn.sample(NAMES, 2)
    thing = drawn.choice(THINGS)
    large, small = sorted((drawn.randint(2, 12), drawn.randint(2, 12)), reverse=True)
    return drawn.choice(
        (
            (f"{name} has {large} {thing} and gets {small} more. How many {thing} does {name} have?", large + small),
            (f"{name} has {large + small} {thing} and loses {small}. How many {thing} are left?", large),
            (
                f"{name} has {small} {thing} and {other} has {large}. How many {thing} have they together?",
                large + small,
            ),
            (f"{name} fills {small} boxes with {large} {thing} each. How many {thing} are that?", small * large),
            (f"{name} shares {small * large} {thing} among {small} friends. How many {thing} does each get?", large),
        )
    )


def main() -> None:
    count = int(sys.argv[1])
    drawn = random.Random(1)  # noqa: S311 - not for secrets
    rows: dict[str, int] = {}
    while len(rows) < count:
        prompt, answer = problem(drawn)
        rows[prompt] = answer
    for prompt, answer in rows.items():
        sys.stdout.write(json.dumps({"prompt": prompt, "answer": str(answer)}) + "\n")


if __name__ == "__main__":
    main()
