"""Cases of kind `rollout`: levels that the receiver computes and compares with the claims (VER-1 to VER-3)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from cases import ACCEPT, Case
from example import BODY, COUNTER, EPOCH, FIELDS
from rounds import ROUND, Round
from tasks import assigned, digest, example_item, item
from wire import (
    ALICE,
    BOB,
    EXAMPLE,
    Key,
    Swarm,
    TaskEntry,
    array,
    body,
    completion,
    completion_of,
    envelope,
    flipped,
    group,
    message,
    sha256,
    sorted_table,
    table,
    text,
    uint,
)

INCORRECT = completion("no idea")
FILE = sorted_table({"file": text("5d" * 32), "rows": uint(32), "origin": text(""), "answers": text("number")})
TEN = Swarm(tasks=[replace(task, levels=10) for task in EXAMPLE.tasks])
MOST = Swarm(tasks=[replace(task, levels=255) for task in EXAMPLE.tasks])
MIXED = Swarm(tasks=[*EXAMPLE.tasks[:2], replace(EXAMPLE.tasks[2], turns=2)])
"""A body of this swarm may have two turns. The datasets of the text have one."""


@dataclass(frozen=True)
class Answered:
    """A group and its body: a correct and an incorrect completion of one task."""

    k: int = 0
    key: Key = ALICE
    epoch: int = EPOCH
    counter: int = COUNTER
    completions: Sequence[bytes] | None = None
    claims: Sequence[int] = (1, 0)
    digest: bytes | None = None
    swarm: Swarm = EXAMPLE

    @property
    def item(self) -> tuple[str, str]:
        return example_item(self.key.public, self.epoch, self.counter, self.k, swarm=self.swarm)

    @property
    def correct(self) -> bytes:
        return completion(f"<answer>{self.item[1]}</answer>")

    @property
    def body(self) -> bytes:
        return body(self.completions or (self.correct, INCORRECT))

    @property
    def group(self) -> bytes:
        return group(self.body, self.claims, self.digest or digest(*self.item))


SUM, REVERSED, LARGEST = Answered(0), Answered(1), Answered(2)
"""The first three tasks of the example's round. Each has another dataset."""


def cases() -> Iterable[Case]:
    yield from _tasks()
    yield from _levels()
    yield from _claimed_levels()
    yield from _turns()
    yield from _left_out()
    yield from _digests()
    yield from _claims()
    yield from _bodies()
    yield from _sixteen_groups()
    yield from _earlier_steps()
    yield from _two_faults()


def _rollout(answers: Sequence[Answered], without: Iterable[int] = ()) -> bytes:
    """A message with all bodies except those of the groups in `without`."""
    first = answers[0]
    content = Round([each.group for each in answers], first.epoch, first.counter, key=first.key, swarm=first.swarm)
    missing = set(without)
    return content.message(*(b"" if k in missing else each.body for k, each in enumerate(answers)))


def _passes(
    name: str, rule: str, data: bytes, levels: Sequence[object], note: str = "", *, swarm: Swarm = EXAMPLE
) -> Case:
    fields = {"manifest": swarm.encoded(), "bytes": data}
    return Case(name, rule, "rollout", fields, ACCEPT, {"levels": levels}, note)


def _refused(name: str, rule: str, layer: str, data: bytes, note: str = "", *, swarm: Swarm = EXAMPLE) -> Case:
    return Case(name, rule, "rollout", {"manifest": swarm.encoded(), "bytes": data}, layer, note=note)


def _tasks() -> Iterator[Case]:
    """Swarms of one task, which every round therefore assigns."""
    sums = EXAMPLE.tasks[0]
    note = "Version 65,536 is never given out."
    faults = {
        "a scorer version that nobody has": (replace(sums, scorer=2**16), note),
        "a dataset that nobody has": (replace(sums, dataset="interop_nothing"), ""),
        "an earlier scorer version": (replace(sums, scorer=1), ""),
        "a file that nobody has": (replace(sums, source=FILE), "The dataset of a task from a file is a name only."),
        "two turns for a dataset of one": (replace(sums, turns=2), ""),
        "a configuration outside its bounds": (replace(sums, config=table(("max", uint(0)))), ""),
        "a configuration with a key too many": (replace(sums, config=table(("max", uint(9)), ("min", uint(1)))), ""),
    }
    yield _of_one_task("a swarm of one task", sums)
    for name, (task, why) in faults.items():
        yield _of_one_task(name, task, "task", why)


def _of_one_task(name: str, task: TaskEntry, expect: str = ACCEPT, note: str = "") -> Case:
    """A round that would be valid if its task were `interop_sum` up to 9."""
    swarm = Swarm(tasks=(task,))
    _, seed = assigned(ALICE.public, EPOCH, COUNTER, 0, swarm=swarm)
    prompt, answer = item("interop_sum", {"max": 9}, seed)
    content = body((completion(f"<answer>{answer}</answer>"), INCORRECT))
    data = Round([group(content, (1, 0), digest(prompt, answer))], swarm=swarm).message(content)
    output = {"levels": [[1, 0]]} if expect == ACCEPT else None
    return Case(name, "VER-3", "rollout", {"manifest": swarm.encoded(), "bytes": data}, expect, output, note)


def _levels() -> Iterator[Case]:
    yield _passes("one group", "VER-2", ROUND.message(BODY), [[1, 0]])
    yield _passes("a group of each dataset", "VER-2", _rollout([SUM, REVERSED, LARGEST]), [[1, 0]] * 3)
    both = replace(SUM, completions=(SUM.correct, SUM.correct), claims=(1, 1))
    yield _passes("both completions right", "VER-2", _rollout([both]), [[1, 1]])
    neither = replace(SUM, completions=(INCORRECT, INCORRECT), claims=(0, 0))
    yield _passes("both completions wrong", "VER-2", _rollout([neither]), [[0, 0]])
    second = replace(SUM, completions=(INCORRECT, SUM.correct), claims=(0, 1))
    yield _passes("the second completion right", "VER-2", _rollout([second]), [[0, 1]])
    cut = replace(SUM, completions=(completion(f"<answer>{SUM.item[1]}</answer>", "length"), INCORRECT))
    note = "A level does not depend on the finish reason."
    yield _passes("right and ended by a limit", "VER-2", _rollout([cut]), [[1, 0]], note)
    yield _passes("another issuer", "VER-1", _rollout([Answered(key=BOB)]), [[1, 0]])
    note = "Levels have no window. The epoch is part of the assignment with all its 64 bits."
    last = Answered(epoch=2**64 - 1)
    yield _passes("the last of all epochs", "VER-1", _rollout([last]), [[1, 0]], note)
    extended = body([SUM.correct, INCORRECT], ("x", table(("entropy", uint(7)))), ("model", text("m")))
    labelled = Round([group(extended, (1, 0), digest(*SUM.item))], x=table(("stake", uint(1))))
    yield _passes("a label and an x in header and body", "EXT-1", labelled.message(extended), [[1, 0]])


def _claimed_levels() -> Iterator[Case]:
    for swarm, level in ((TEN, 10), (MOST, 255)):
        task = Answered(claims=(level, 0), swarm=swarm)
        yield _passes(f"a completion of level {level}", "VER-2", _rollout([task]), [[level, 0]], swarm=swarm)
        lower = replace(task, claims=(1, 0))
        note = "What one level earns is not what a correct completion earns."
        yield _refused(f"a claim of level 1 of {level}", "VER-2", "claims", _rollout([lower]), note, swarm=swarm)
    partly = Answered(claims=(10, 5), swarm=TEN)
    yield _refused("a claim of level 5 for a wrong completion", "VER-2", "claims", _rollout([partly]), swarm=TEN)
    note = "No completion has a level above that of its task, so the claim is false, not malformed."
    for level in (2, 255):
        above = replace(SUM, claims=(level, 0))
        yield _refused(f"a claim of level {level} of 1", "VER-2", "claims", _rollout([above]), note)
    above = Answered(claims=(11, 0), swarm=TEN)
    yield _refused("a claim of level 11 of 10", "VER-2", "claims", _rollout([above]), note, swarm=TEN)


def _turns() -> Iterator[Case]:
    counter = next(n for n in range(100) if assigned(ALICE.public, EPOCH, n, 0, swarm=MIXED)[0] < 2)
    task = Answered(counter=counter, swarm=MIXED)
    right = f"<answer>{task.item[1]}</answer>"
    note = "Its task has one turn, and another task of the swarm two."
    for name, turns in {"first": [right, ""], "second": ["", right]}.items():
        more = replace(task, completions=(completion_of(turns), task.correct), claims=(0, 1))
        data = _rollout([more])
        yield _passes(f"a turn too many and the answer in the {name}", "VER-2", data, [[0, 1]], note, swarm=MIXED)
        false = _rollout([replace(more, claims=(1, 1))])
        claimed = f"a claim for the answer in the {name} of two turns"
        yield _refused(claimed, "VER-2", "claims", false, note, swarm=MIXED)


def _left_out() -> Iterator[Case]:
    three = [SUM, REVERSED, LARGEST]
    yield _passes("the second body left out", "VER-2", _rollout(three, [1]), [[1, 0], None, [1, 0]])
    yield _passes("all bodies left out", "VER-2", _rollout(three, range(3)), [None] * 3)
    note = "What nobody wants to use is not verified."
    other_digest, false_claim = replace(SUM, digest=bytes(32)), replace(SUM, claims=(1, 1))
    yield _passes("a wrong digest without its body", "VER-1", _rollout([other_digest], [0]), [None], note)
    yield _passes("a false claim without its body", "VER-2", _rollout([false_claim], [0]), [None], note)


def _digests() -> Iterator[Case]:
    prompt, answer = SUM.item
    others = {
        "the digest of another k": digest(*REVERSED.item),
        "the digest of another counter": digest(*replace(SUM, counter=COUNTER + 1).item),
        "the digest of another epoch": digest(*replace(SUM, epoch=EPOCH + 1).item),
        "the digest of another issuer": digest(*replace(SUM, key=BOB).item),
        "the digest of another question with this answer": digest("What is 4 + 8?", answer),
        "the digest of this question with another answer": digest(prompt, "13"),
        "a digest of zeros": bytes(32),
    }
    for name, value in others.items():
        yield _refused(name, "VER-1", "digest", _rollout([replace(SUM, digest=value)]))
    otherwise = {
        "question and answer exchanged": digest(answer, prompt),
        "the digest of the joined texts": sha256((prompt + answer).encode()),
        "the digest of the question alone": sha256(array([text(prompt)])),
        "the digest of the answer as a number": sha256(array([text(prompt), uint(int(answer))])),
    }
    for name, value in otherwise.items():
        yield _refused(name, "TASK-2", "digest", _rollout([replace(SUM, digest=value)]))
    other_digest = replace(REVERSED, digest=bytes(32))
    yield _refused("a wrong digest in the second group", "VER-1", "digest", _rollout([SUM, other_digest]))
    note = "Task k belongs to place k."
    yield _refused(
        "two groups in each other's place".replace("'", ""), "TASK-1", "digest", _rollout([REVERSED, SUM]), note
    )


def _claims() -> Iterator[Case]:
    false = {
        "a claim that a wrong completion is right": (1, 1),
        "a claim that a right completion is wrong": (0, 0),
        "claims exchanged": (0, 1),
    }
    for name, claims in false.items():
        yield _refused(name, "VER-2", "claims", _rollout([replace(SUM, claims=claims)]))
    false_claim = replace(LARGEST, claims=(1, 1))
    yield _refused("a false claim in the third group", "VER-2", "claims", _rollout([SUM, REVERSED, false_claim]))
    note = "Bob's question was another one."
    copied = replace(SUM, completions=(Answered(key=BOB).correct, INCORRECT))
    yield _refused("a claim for the answer of another issuer", "VER-2", "claims", _rollout([copied]), note)
    unclosed = replace(SUM, completions=(completion(f"<answer>{SUM.item[1]}"), INCORRECT))
    yield _refused("a claim for an answer without an end", "VER-2", "claims", _rollout([unclosed]))


def _bodies() -> Iterator[Case]:
    extended = sorted_table({"x": table(), "turns": array([text("no idea")]), "finish": text("stop")})
    invalid = {
        "three completions": ("BODY-3", [SUM.correct, INCORRECT, INCORRECT]),
        "a completion with an x": (
            "EXT-2",
            [SUM.correct, extended],
        ),
        "a text of 65 bytes": ("BODY-4", [SUM.correct, completion("a" * 65)]),
        "a finish of another name": ("BODY-5", [SUM.correct, completion("no idea", "eos")]),
    }
    for name, (rule, completions) in invalid.items():
        yield _refused(f"a body with {name}", rule, "body", _rollout([replace(SUM, completions=completions)]))
    no_body = b"\xff"
    content = Round([SUM.group, group(no_body, digest=digest(*REVERSED.item))])
    note = "The hash fits, so it was accepted; it is the issuer who signed it."
    yield _refused("a second body that is no cbor", "BODY-2", "body", content.message(SUM.body, no_body), note)
    swapped = Round([SUM.group, REVERSED.group]).message(REVERSED.body, SUM.body)
    yield _refused("two bodies swapped", "BODY-1", "body", swapped)


FULL = Swarm(completions=16, max_message_bytes=20_000)


def _full(k: int) -> Answered:
    """Sixteen completions of one task, of which about every third is correct, beginning at another one for each k."""
    claims = [int((i + k) % 3 == 0) for i in range(16)]
    task = Answered(k, swarm=FULL)
    return replace(task, completions=[task.correct if claim else INCORRECT for claim in claims], claims=claims)


def _sixteen_groups() -> Iterator[Case]:
    """The fault is in the last completion of the last group."""
    *most, last = (_full(k) for k in range(16))
    levels = [each.claims for each in (*most, last)]
    yield _passes("sixteen groups of sixteen", "VER-2", _rollout([*most, last]), levels, swarm=FULL)
    completions = [*(last.completions or ())][:15]
    faults = {
        "a false claim": ("VER-2", "claims", {"claims": [*last.claims[:15], 1 - last.claims[15]]}),
        "a finish of another name": ("BODY-5", "body", {"completions": [*completions, completion("no idea", "eos")]}),
        "a wrong digest": ("VER-1", "digest", {"digest": bytes(32)}),
    }
    for name, (rule, layer, changes) in faults.items():
        changed = _rollout([*most, replace(last, **changes)])
        yield _refused(f"{name} at the end of sixteen groups", rule, layer, changed, swarm=FULL)


def _two_faults() -> Iterator[Case]:
    """The earlier of two steps refuses, and all steps of a group come before those of the next."""
    note = "Two faults: the earlier step refuses."
    unread = completion("no idea", "eos")
    unknown = Swarm(tasks=[TaskEntry("interop_nothing", table(("max", uint(9))), 1)])
    content = body([SUM.correct, unread])
    data = Round([group(content)], swarm=unknown).message(content)
    yield _refused("an invalid body for an unknown dataset", "BODY-5", "body", data, note, swarm=unknown)
    later = Swarm(tasks=[replace(task, scorer=2**16) for task in EXAMPLE.tasks])
    data = Round([group(SUM.body)], swarm=later).message(SUM.body)
    yield _refused("a wrong digest for an unknown scorer", "VER-3", "task", data, note, swarm=later)
    false_claim = replace(SUM, claims=(1, 1))
    both = replace(false_claim, digest=bytes(32))
    yield _refused("a wrong digest and a false claim", "VER-1", "digest", _rollout([both]), note)
    invalid = replace(REVERSED, completions=(REVERSED.correct, unread))
    note = "Two faults: the first group is verified before the second body is read."
    yield _refused("a false claim before an invalid body", "VER-2", "claims", _rollout([false_claim, invalid]), note)
    note = "Two faults: the bodies are compared with the header before any is read."
    swapped = Round([false_claim.group, REVERSED.group]).message(false_claim.body, SUM.body)
    yield _refused("a false claim before the body of another group", "BODY-1", "body", swapped, note)


def _earlier_steps() -> Iterator[Case]:
    data, whole = _rollout([SUM]), Round([SUM.group]).envelope
    bodies = [SUM.body]
    unknown = envelope(sorted_table(FIELDS | {"y": uint(0)}))
    broken = flipped(whole)
    refusals = {
        "a message with a byte more": ("ENC-1", "frame", data + b"\x00"),
        "an envelope without its tag": ("ENV-2", "envelope", message(whole[1:], bodies)),
        "a broken signature": ("SIG-4", "signature", message(broken, bodies)),
        "a header with an unknown key": ("EXT-2", "header", message(unknown, [BODY])),
    }
    for name, (rule, layer, changed) in refusals.items():
        yield _refused(name, rule, layer, changed)
    filler = bytes(EXAMPLE.max_message_bytes)
    longer = Round([SUM.group, group(filler)]).message(SUM.body, filler)
    yield _refused("a message that is too long", "MSG-1", "size", longer)
