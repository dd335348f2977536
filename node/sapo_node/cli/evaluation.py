"""Evaluates a policy from the command line. Starts a learner and a sandbox, but no network."""

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import trio

from sapo_node.app.config import Config
from sapo_node.app.recipe import learner_options, recipe_of
from sapo_node.app.state import StateFolder
from sapo_node.learner.client import Learner
from sapo_node.training.evaluation import HeldOut, measure
from sapo_node.verification.catalogue import build_examples, require_catalogue
from sapo_node.verification.sandbox.sandbox import Sandbox
from sapo_protocol import Manifest


@asynccontextmanager
async def read_only_learner(
    config: Config, manifest: Manifest, folder: StateFolder | None
) -> AsyncIterator[tuple[Learner, Sandbox]]:
    """Run a learner with the newest checkpoint in `folder`, and a sandbox. The learner writes no file.

    If `folder` is None or has no checkpoint, the policy is that which a new node starts with. Raises LocalError if a
    task of the swarm cannot be built here.
    """
    with tempfile.TemporaryDirectory() as empty:
        options = learner_options(config, manifest, folder.checkpoints if folder else Path(empty))
        learner = Learner(replace(options, read_only=True))
        sandbox = Sandbox(manifest.tasks, config.files_of(manifest.tasks))
        async with trio.open_nursery() as nursery:
            await nursery.start(sandbox.run)
            await require_catalogue(manifest, sandbox)
            await nursery.start(learner.run)
            yield learner, sandbox
            nursery.cancel_scope.cancel()


async def evaluate(
    config: Config,
    manifest: Manifest,
    folder: StateFolder | None,
    *,
    prompts: int,
    samples: int,
    progress: Callable[[str, int], None],
) -> tuple[HeldOut, int]:
    """Return the held-out pass@1 of the averaged weights of the newest checkpoint in `folder`, and its step.

    If `folder` is None or has no checkpoint, evaluate the policy that a new node starts with.
    """
    async with read_only_learner(config, manifest, folder) as (learner, sandbox):
        step = learner.step
        result = await measure(
            manifest,
            learner,
            sandbox,
            prompts=prompts,
            samples=samples,
            max_tokens=recipe_of(config).max_tokens,
            examples=await build_examples(manifest, sandbox, recipe_of(config).examples),
            progress=progress,
        )
        return result, step
