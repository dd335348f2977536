"""True rollouts of the tests' authors: tasks as assigned, answers that are right, claims that hold."""

import hashlib

from sapo_node.tasks import build_task, task_digest
from sapo_protocol import (
    Body,
    Completion,
    Finish,
    GroupHeader,
    Header,
    assign,
    decode_header,
    encode_body,
    match_bodies,
    open_envelope,
    parse_envelope,
)


def right_and_wrong(author, k=0, *, epoch=5, counter=0, right=3):
    """A group in which the first `right` of eight completions are correct, with its true digest and claims."""
    assignment = assign(author.manifest, author.issuer, epoch, counter, k)
    task = build_task(assignment.spec.dataset, assignment.spec.config, assignment.seed)
    texts = [f"so <answer>{task.answer}</answer>"] * right + ["so <answer>no</answer>"] * (8 - right)
    body = Body(tuple(Completion((text,), Finish.STOP) for text in texts))
    claims = tuple(number < right for number in range(8))
    group = GroupHeader(task_digest(task.prompt, task.answer), claims, hashlib.sha256(encode_body(body)).digest())
    return group, body, task


def rollout(author, groups, bodies, *, epoch=5, counter=0):
    """A rollout that was opened and found well-formed."""
    envelope = author.envelope(Header(epoch, counter, tuple(groups)))
    opened = open_envelope(parse_envelope(envelope, network_id=author.manifest.network_id))
    return match_bodies(
        opened, decode_header(opened.payload, author.manifest), tuple(body and encode_body(body) for body in bodies)
    )
