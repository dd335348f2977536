"""Writes the rows of a task from a data set that you have as JSON Lines.

    python examples/rows_from.py gsm8k train.jsonl > gsm8k.jsonl
    sapo-node task file gsm8k.jsonl --scorer number

A data set of the hub becomes JSON Lines by `datasets.load_dataset(name, split="train").to_json("train.jsonl")`. Items
without a usable answer are left out, and their number is told.
"""

import json
import sys
from pathlib import Path


def gsm8k(item):
    """The answer is the number behind `####`. --scorer number."""
    return item["question"], item["answer"].rpartition("####")[2].strip().replace(",", "")


def math(item):
    """The answer is in the last box of the solution. One with a drawing in code is left out. --scorer math."""
    return (item["problem"], last_box(item["solution"])) if "[asy]" not in item["problem"] else None


def deepscaler(item):
    """The answer is LaTeX without a box. --scorer math."""
    return item["problem"], item["answer"]


def openr1_math(item):
    """Proofs have no answer to compare, and the choices are part of the problem. --scorer math."""
    kind, answer = item.get("question_type", ""), item["answer"]
    return (item["problem"], answer) if kind not in {"MCQ", "proof"} and answer not in {"proof", "notfound"} else None


def choice(item):
    """A question, a list of choices, and the index of the correct one. --scorer choice."""
    return item["question"], item["answer"], item["choices"]


def last_box(text):
    """Return what is in the last \\boxed{...}; empty if there is none or a brace is missing."""
    begin = text.rfind("\\boxed{")
    rest, depth = text[begin + 7 :], 1
    for place, character in enumerate(rest if begin >= 0 else ""):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return rest[:place]
    return ""


def main():
    name, path = sys.argv[1:]
    recipe = {each.__name__: each for each in (gsm8k, math, deepscaler, openr1_math, choice)}[name]
    left_out = 0
    with Path(path).open(encoding="utf-8") as lines:
        for line in lines:
            row = recipe(json.loads(line))
            if row is None or row[1] in {"", None}:
                left_out += 1
                continue
            sys.stdout.write(json.dumps(dict(zip(("prompt", "answer", "choices"), row, strict=False))) + "\n")
    sys.stderr.write(f"{left_out} items were left out\n")


if __name__ == "__main__":
    main()
