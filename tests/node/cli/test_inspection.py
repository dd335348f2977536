"""`sapo-node verify` checks one message as a node does."""

from dataclasses import replace

from sapo_node.cli.main import main
from sapo_protocol import render_manifest


def test_a_message_of_a_swarm_whose_scorer_is_not_installed_is_not_verified(author, manifest, tmp_path, run_here):
    later = replace(manifest, tasks=tuple(replace(task, scorer=3) for task in manifest.tasks))
    message, swarm = tmp_path / "message", tmp_path / "swarm.toml"
    message.write_bytes(replace(author, manifest=later).message(epoch=5))
    swarm.write_text(render_manifest(later))
    status, said = run_here(main, "verify", message, "--swarm", swarm)
    assert (status, said.out) == (1, "")
    assert "by version 3, and version 2 is installed here" in said.err.replace("\n", " ")
