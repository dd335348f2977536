"""Rollouts as data: what a node kept is exported, and verified again from the files alone."""

import json
import resource
from dataclasses import replace

import pytest
import trio

from context import context_of
from fetching import turn_of
from rollouts import right_and_wrong, rollout
from sapo_node.app.state import SCHEMA, state_folder
from sapo_node.cli.main import main
from sapo_node.groups.book import Book, signed
from sapo_node.groups.record import Outcome, VerifiedGroup
from sapo_node.rollouts.export import CARD, GROUPS, SWARM, export, schema
from sapo_node.rollouts.verify import verify
from sapo_node.storage.database import Database, StateError
from sapo_node.storage.keys import create_key
from sapo_node.trust.ledger import Ledger
from sapo_node.verification.verifier import Verifier
from sapo_protocol import LocalError, load_manifest, peer_id, render_manifest
from swarm_parts import OpenScorer

arrow = pytest.importorskip("pyarrow", reason="pyarrow is an extra")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def book(database, manifest, rng):
    return Book(database, manifest, rng=rng, signed_bytes=2**20)


def keeper(author, manifest, rng, database, book):
    """Verifies a rollout of the author with two groups, as a node does, and keeps what holds."""
    verifier = Verifier(context_of(manifest, rng), OpenScorer(), Ledger(database, epoch=5))

    async def of(counter=0, right=3):
        made = [right_and_wrong(author, k, counter=counter, right=right) for k in range(2)]
        groups, bodies, _ = zip(*made, strict=True)
        opened = rollout(author, groups, list(bodies), counter=counter)
        found = await verifier.verify(turn_of(verifier, opened))
        book.judge(opened, found)
        return [each for each in found.values() if isinstance(each, VerifiedGroup)]

    return of


@pytest.fixture
def keep(author, manifest, rng, database, book):
    return keeper(author, manifest, rng, database, book)


@pytest.fixture
def exported(keep, book, database, manifest, tmp_path):
    async def of():
        first, _ = await keep()
        spans = (((0, 3), (4, 9)), *((),) * 7)
        book.report(1, book.commit(1, first), "", Outcome(weight=1.0, advantages=(1.0,) * 8, masked_spans=spans))
        export(database, manifest, tmp_path / "data")
        return tmp_path / "data"

    return of


def rewrite(folder, change):
    rows = parquet.read_table(folder / GROUPS).to_pylist()
    change(rows)
    parquet.write_table(arrow.Table.from_pylist(rows, schema(arrow)), folder / GROUPS)


async def test_an_export_has_what_was_verified_and_holds_when_it_is_verified_again(exported, author):
    folder = await exported()
    first, second = parquet.read_table(folder / GROUPS).to_pylist()
    assert (first["issuer"], first["epoch"], first["counter"]) == (peer_id(author.issuer), 5, 0)
    assert (first["k"], second["k"]) == (0, 1)
    assert (first["levels"], first["top"]) == ([1] * 3 + [0] * 5, 1)
    assert first["completions"][-1] == "so <answer>no</answer>"
    assert first["masks"] == [[[0, 3], [4, 9]], *[[]] * 7]
    assert second["masks"] == [[]] * 8
    found = await verify(folder, load_manifest(str(folder / SWARM)), OpenScorer())
    assert (found.groups, found.holds) == (2, True)


async def test_the_card_says_who_wrote_the_texts(exported):
    card = (await exported() / CARD).read_text()
    assert "2 groups of completions by 1 issuers" in card
    assert "written by unknown peers" in card


async def test_the_data_set_library_reads_an_export(exported, tmp_path):
    datasets = pytest.importorskip("datasets")
    loaded = datasets.load_dataset(str(await exported()), cache_dir=str(tmp_path / "cache"), split="train")
    assert loaded.num_rows == 2
    assert loaded[0]["levels"] == [1] * 3 + [0] * 5
    assert loaded[0]["masks"][0] == [[0, 3], [4, 9]]


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("levels", [1] * 8, "levels differs from what was signed"),
        ("top", 2, "top differs from what was signed"),
        ("completions", ["mine"] * 8, "completions differs"),
        ("prompt", "What is 1 + 1?", "prompt differs"),
        ("issuer", "somebody", "issuer differs"),
        ("model", "gpt", "model differs"),
        ("counter", 1, "counter differs"),
        ("dataset", "sums", "dataset differs"),
        ("finishes", ["length"] * 8, "finishes differs"),
        ("k", 1, "body"),
        ("k", 7, "no group 7"),
        ("k", -1, "no group -1"),
        ("body", b"\x00", "does not match the header"),
        ("envelope", b"\x00", "envelope"),
        ("envelope", None, "a column is empty"),
        ("masks", [[]] * 7, "masks does not fit"),
        ("masks", [None] * 8, "masks does not fit"),
        ("masks", [[[None, 3]], *[[]] * 7], "masks does not fit"),
        ("masks", [[[0, 3, 5]], *[[]] * 7], "masks does not fit"),
        ("masks", [[[4, 9], [0, 3]], *[[]] * 7], "masks does not fit"),
        ("masks", [[[-1, 3]], *[[]] * 7], "masks does not fit"),
        ("masks", [[[0, 10_000]], *[[]] * 7], "masks does not fit"),
    ],
)
async def test_a_row_that_was_changed_does_not_hold(exported, manifest, column, value, reason):
    folder = await exported()
    rewrite(folder, lambda rows: rows[0].update({column: value}))
    found = await verify(folder, manifest, OpenScorer())
    assert (found.groups, found.failures.total(), found.holds) == (2, 1, False)
    assert reason in next(iter(found.failures))


async def test_a_signature_for_another_swarm_does_not_hold(exported, manifest):
    found = await verify(await exported(), replace(manifest, name="other"), OpenScorer())
    assert found.failures.total() == 2
    assert all("signature" in reason for reason in found.failures)


def columns(row, **changed):
    """The columns of a table with one row; `changed` gives the values of some."""
    made = {each.name: arrow.array([row[each.name]], each.type) for each in schema(arrow)} | changed
    return arrow.table([made[each.name] for each in schema(arrow)], schema(arrow))


async def test_a_small_file_that_unfolds_to_much_memory_is_refused(exported, manifest, monkeypatch):
    folder = await exported()
    monkeypatch.setattr("sapo_node.rollouts.verify.MEMORY", 2**28)
    assert (await verify(folder, manifest, OpenScorer())).holds
    row = parquet.read_table(folder / GROUPS).to_pylist()[0]
    zeros = arrow.repeat(arrow.scalar(0, arrow.uint8()), 40_000_000)  # 0.3 GB as a list of Python
    levels = arrow.ListArray.from_arrays(arrow.array([0, len(zeros)], arrow.int32()), zeros)
    parquet.write_table(columns(row, levels=levels), folder / GROUPS, compression="zstd")
    assert (folder / GROUPS).stat().st_size < 50_000
    limits = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(LocalError, match=r"unfolds to more than 0\.25 GiB"):
        await verify(folder, manifest, OpenScorer())
    assert resource.getrlimit(resource.RLIMIT_AS) == limits


async def test_a_file_of_many_groups_that_do_not_hold_is_not_read_to_its_end(exported, manifest):
    folder = await exported()
    rewrite(folder, lambda rows: rows.__setitem__(slice(None), [rows[0]] * 3_000))
    found = await verify(folder, manifest, OpenScorer())
    assert (found.groups, found.ended_early) == (1_001, True)
    assert found.failures == {"the group is there twice": 1_000}


async def test_a_group_that_is_there_twice_does_not_hold(exported, manifest):
    folder = await exported()
    rewrite(folder, lambda rows: rows.append(rows[0]))
    assert (await verify(folder, manifest, OpenScorer())).failures == {"the group is there twice": 1}


async def test_a_file_that_is_no_export_is_refused(exported, manifest, tmp_path):
    folder = await exported()
    with pytest.raises(LocalError, match="there is no export"):
        await verify(tmp_path, manifest, OpenScorer())
    parquet.write_table(arrow.table({"text": ["a"]}), folder / GROUPS)
    with pytest.raises(LocalError, match="other columns"):
        await verify(folder, manifest, OpenScorer())
    (folder / GROUPS).write_bytes(b"PAR1" * 10)
    with pytest.raises(LocalError, match="is no Parquet file"):
        await verify(folder, manifest, OpenScorer())


async def test_an_empty_export_does_not_count_as_verified(exported, manifest):
    folder = await exported()
    rewrite(folder, list.clear)
    assert not (await verify(folder, manifest, OpenScorer())).holds


async def test_what_was_not_verified_or_teaches_nothing_is_not_kept(keep, database):
    await keep(right=8)
    assert list(signed(database)) == []


async def test_the_oldest_groups_make_room_also_after_a_restart(author, manifest, rng, database, book):
    for each in await keeper(author, manifest, rng, database, book)(0):
        book.leave_out(each, "why")
    again = Book(database, manifest, rng=rng, signed_bytes=2**20)
    again._kept_bytes = again._stored_bytes
    for each in await keeper(author, manifest, rng, database, again)(1):
        again.leave_out(each, "why")
    again.flush()
    assert {entry.counter for entry, _, _ in signed(database)} == {1}


def test_a_node_that_kept_nothing_says_how_to_keep_some(database, manifest, tmp_path):
    with pytest.raises(LocalError, match="--archive"):
        export(database, manifest, tmp_path / "data")
    assert not (tmp_path / "data").exists()


async def test_a_kept_body_that_does_not_decode_is_a_damaged_database(keep, manifest, database, tmp_path):
    await keep()
    database.execute("UPDATE groups SET body = x'00' WHERE k = 1")
    with pytest.raises(StateError, match=r"state database in memory is damaged \(body: .*\); restore it from a backup"):
        export(database, manifest, tmp_path / "data")
    assert not (tmp_path / "data").exists()


async def test_a_folder_that_is_there_is_not_written_into(keep, database, manifest, tmp_path):
    await keep()
    with pytest.raises(LocalError, match="name one that is not there"):
        export(database, manifest, tmp_path)


async def test_an_export_that_finds_the_disk_full_is_one_error_and_leaves_no_folder(keep, database, manifest, tmp_path):
    await keep()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, before[1]))  # Python ignores the signal for it
    try:
        with pytest.raises(LocalError, match=r"File too large.*free disk space"):
            export(database, manifest, tmp_path / "data")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "data").exists()
    assert export(database, manifest, tmp_path / "data") == 2


def test_a_folder_that_is_no_export_is_named_where_it_is_to_be_verified(tmp_path, run_here):
    status, said = run_here(main, "rollouts", "verify", tmp_path)
    assert (status, said.err) == (1, f"error: {tmp_path} has no swarm.toml: give the folder of an export\n")


def test_a_folder_that_is_no_export_is_not_uploaded(tmp_path, run_here):
    status, said = run_here(main, "rollouts", "push", tmp_path, "somebody/rollouts")
    assert (status, said.out) == (1, "")
    assert "has no rollouts.parquet: give the folder of an export" in said.err


async def test_a_link_in_a_folder_that_others_made_is_not_uploaded(exported, tmp_path, run_here):
    folder = await exported()
    (folder / CARD).rename(tmp_path / "secret")
    (folder / CARD).symlink_to(tmp_path / "secret")
    status, said = run_here(main, "rollouts", "push", folder, "somebody/data")
    assert (status, f"{folder / CARD} is a link" in said.err) == (1, True)


async def test_the_command_line_uploads_a_data_set_or_says_in_one_line_why_not(exported, monkeypatch, run_here):
    folder = await exported()
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    status, said = run_here(main, "rollouts", "push", folder, "somebody/rollouts")
    assert (status, said.out) == (1, "")
    assert "the hub at http://127.0.0.1:9 cannot be reached" in said.err
    assert f"`hf upload somebody/rollouts {folder} --repo-type dataset` sends it later" in said.err.replace("\n", " ")


async def test_the_command_line_exports_and_verifies_in_the_sandbox(author, manifest, rng, tmp_path, run_here):
    swarm, key, state = tmp_path / "swarm.toml", tmp_path / "node.key", tmp_path / "state"
    swarm.write_text(render_manifest(manifest))
    place = state_folder(state, manifest, create_key(key, None).peer_id)
    place.path.mkdir(parents=True)
    kept = Database(place.database, SCHEMA)
    await keeper(author, manifest, rng, kept, Book(kept, manifest, rng=rng, signed_bytes=2**20))()
    kept.close()
    own = ("--swarm", swarm, "--key", key, "--state", state)
    status, said = run_here(main, "rollouts", "export", *own, tmp_path / "data")
    assert (status, said.out) == (0, f"wrote 2 groups to {tmp_path / 'data'}\n")
    rewrite(tmp_path / "data", lambda rows: rows[1].update(levels=[1.0] * 8))
    status, said = await trio.to_thread.run_sync(run_here, main, "rollouts", "verify", tmp_path / "data", "--json")
    facts = json.loads(said.out)
    assert (status, facts["failures"]) == (1, {"levels differs from what was signed": 1})
    assert (facts["groups"], facts["ended_early"]) == (2, False)


async def test_an_export_of_a_swarm_whose_scorer_is_not_installed_is_not_verified(exported, manifest, run_here):
    folder = await exported()
    later = replace(manifest, tasks=tuple(replace(task, scorer=3) for task in manifest.tasks))
    (folder / SWARM).write_text(render_manifest(later))
    status, said = await trio.to_thread.run_sync(run_here, main, "rollouts", "verify", folder)
    assert (status, said.out) == (1, "")
    assert "by version 3, and version 2 is installed here" in said.err.replace("\n", " ")
