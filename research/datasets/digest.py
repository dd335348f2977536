"""Prints a digest of the items of datasets; any Python runs it, with the packages of this repository on its path.

python research/datasets/digest.py ITEMS NAME...
"""

import hashlib
import sys

from sapo_node.tasks import build_task, task_digest


def digest_of(dataset: str, count: int) -> str:
    """Return the SHA-256 of the digests of `count` items, as hexadecimal digits."""
    digests = hashlib.sha256()
    for number in range(count):
        task = build_task(dataset, {}, 1_000_003 * number)
        digests.update(task_digest(task.prompt, task.answer))
    return digests.hexdigest()


if __name__ == "__main__":
    for name in sys.argv[2:]:
        print(name, digest_of(name, int(sys.argv[1])), flush=True)  # noqa: T201 - the output is read by a program
