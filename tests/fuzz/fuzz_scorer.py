"""The scorers: any text at all gets a verdict, the same each time and soon, and no wrapper makes a wrong one right."""

import functools
import time
from collections.abc import Iterator

from harness import Source

from sapo_node.tasks import DATASETS, MAX_COMPLETION, Task, build_task, score

INTEROP = {
    "interop_largest": {"count": 3, "max": 99},
    "interop_reverse": {"letters": 5},
    "interop_sum": {"max": 999},
}
CONFIGS = {**{dataset: {} for dataset in sorted(DATASETS)}, **INTEROP}
DATASET = list(CONFIGS)
SECONDS = 0.05
CLOSE = "</answer>"
WRAPPERS = (
    "**X**",
    "`X`",
    "$X$",
    r"\(X\)",
    r"\boxed{X}",
    '"X"',
    "\u201cX\u201d",
    "= X",
    "The answer is X.",
    "```\nX\n```",
)


@functools.cache
def tasks(dataset: str) -> tuple[Task, ...]:
    return tuple(build_task(dataset, CONFIGS[dataset], seed) for seed in range(1, 5))


def completion(source: Source) -> str:
    """Text in or without tags, one part of it repeated up to, and past, the longest that is looked at."""
    style = source.number()
    before, unit = (source.string().decode("utf-8", "surrogateescape") for _ in range(2))
    times = source.number(2) if style & 1 else 1
    text = before + (unit * times)[:MAX_COMPLETION] + source.rest().decode("utf-8", "surrogateescape")
    return f"<answer>{text[: MAX_COMPLETION - 17]}{CLOSE}" if style & 2 else text


def verdict(dataset: str, task: Task, text: str) -> bool:
    """The verdict, given within the bound; a slow one is asked again, for the machine has other work too."""
    for _ in range(3):
        started = time.thread_time()
        result = score(task, text)
        if time.thread_time() - started < SECONDS:
            return result
    raise AssertionError(f"{dataset} took over {SECONDS} s for {len(text)} characters")


def fuzz(data: bytes) -> None:
    source = Source(data)
    dataset = DATASET[source.below(len(DATASET))]
    text = completion(source)
    wrapper = WRAPPERS[len(data) % len(WRAPPERS)]
    for task in tasks(dataset):
        first = verdict(dataset, task, text)
        assert first in (0, 1)
        assert score(task, text) == first
        assert not first or CLOSE[:-1] in text.lower()
        # Tags in the text would end the wrapped answer before its wrapper does.
        if "<" not in text and not score(task, f"<answer>{text}{CLOSE}"):
            assert not score(task, f"<answer>{wrapper.replace('X', text)}{CLOSE}")


def seeds() -> Iterator[bytes]:
    for index, dataset in enumerate(DATASET):
        for task in tasks(dataset):
            answer = task.answer.encode()
            assert score(task, f"<answer>{task.answer}</answer>") or dataset == "propositional_logic"
            yield bytes([index, 2, 0, 0]) + answer
            yield bytes([index, 0, 0, 0]) + b"I think: <answer>" + answer + b"</answer>"
            yield bytes([index, 3, 0, 1]) + answer[:1] + b"\xff\xf0" + answer
            for almost in (b"<answer>%b", b"<answer>%b</answer", b"<Answer >%b</ANSWER>", b"%b</answer>", b"%b"):
                yield bytes([index, 0, 0, 0]) + almost % answer
        for wrapper in WRAPPERS:
            yield bytes([index, 2, 0, 0]) + wrapper.replace("X", tasks(dataset)[0].answer).encode()
    number = DATASET.index("interop_sum")
    for text in ("- 1,234.0", "\u2212 1{,}234", "**Answer:** $\\boxed{\\text{1 234}}$.", "```text\n+12.\n```", "1,23"):
        yield bytes([number, 2, 0, 0]) + text.encode()
    logic = DATASET.index("propositional_logic")
    for text in ("(P ∧ ¬Q)", "¬(P → (Q ∧ R))", "¬¬¬(A ↔ B)"):
        yield bytes([logic, 2, 0, 0]) + text.encode()
    fraction = DATASET.index("fraction_simplification")
    for text in (r"$\frac{1}{2}$", r"\dfrac{3}{4}", "$3 / 4$", r"\tfrac12", "7/21 = 1/3"):
        yield bytes([fraction, 2, 0, 0]) + text.encode()
    matrix = DATASET.index("binary_matrix")
    for text in ("[[0, 1], [2, 3]]", "[0, 1],\n[1 0]", "0 1\n1 2"):
        yield bytes([matrix, 2, 0, 0]) + text.encode()
    decimal = DATASET.index("decimal_arithmetic")
    for text in ("-1.5e-3", "+0.000", "9" * 60 + "." + "9" * 60 + "E+999"):
        yield bytes([decimal, 2, 0, 0]) + text.encode()
