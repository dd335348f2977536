"""The manifest: what two nodes must share to be in one swarm."""

from dataclasses import replace

import pytest

from sapo_protocol import (
    AnswerKind,
    FileSource,
    Layer,
    LocalError,
    RemoteError,
    TaskSpec,
    decode_manifest,
    load_manifest,
    parse_manifest,
    render_manifest,
    shipped_manifests,
)
from sapo_protocol.cbor import decode, encode

TEXT = render_manifest(load_manifest("starter"))
ROWS = FileSource("5d" * 32, 7_473, AnswerKind.NUMBER, "https://example.org/train.jsonl")
FROM_FILE = replace(load_manifest("starter"), tasks=(TaskSpec("word problems", {}, 1, levels=4, source=ROWS),))


def test_five_manifests_are_shipped():
    assert shipped_manifests() == ("interop", "math-easy", "paper-nine", "smollm2-easy", "starter")


@pytest.mark.parametrize("name", shipped_manifests())
def test_a_rendered_manifest_parses_to_the_same_network(name):
    manifest = load_manifest(name)
    assert parse_manifest(render_manifest(manifest), "copy").network_id == manifest.network_id


def test_comments_and_layout_do_not_change_the_network_id():
    assert parse_manifest("# hello\n" + TEXT, "x").network_id == load_manifest("starter").network_id


@pytest.mark.parametrize(
    "change",
    [
        {"name": "b"},
        {"genesis": 1},
        {"max_rounds": 7},
        {"completions": 4},
        {"inline_bytes": 0},
        {"predecessor": "00" * 32},
    ],
)
def test_every_field_changes_the_network_id(change):
    manifest = load_manifest("starter")
    assert replace(manifest, **change).network_id != manifest.network_id


@pytest.mark.parametrize(
    "change",
    [
        {"levels": 5},
        {"turns": 2},
        {"source": None},
        {"source": replace(ROWS, file="00" * 32)},
        {"source": replace(ROWS, rows=7_472)},
        {"source": replace(ROWS, answers=AnswerKind.MATH)},
        {"source": replace(ROWS, origin="")},
    ],
    ids=str,
)
def test_every_field_of_a_task_changes_the_network_id(change):
    (task,) = FROM_FILE.tasks
    assert replace(FROM_FILE, tasks=(replace(task, **change),)).network_id != FROM_FILE.network_id


def test_bootstrap_peers_stand_beside_the_manifest_and_change_no_network_id():
    peers = ("/dnsaddr/example.org", "/ip4/192.0.2.7/tcp/4001/p2p/12D3KooWAwY8BEjkKCFT1nCtm48gKvgQ9vTNGgHsCqgfstUKSLPT")
    hinted = replace(FROM_FILE, bootstrap=peers)
    assert (hinted.network_id, hinted) == (FROM_FILE.network_id, FROM_FILE)
    assert parse_manifest(render_manifest(hinted), "x").bootstrap == peers
    assert decode_manifest(hinted.encoded).bootstrap == ()


def test_an_encoding_that_holds_bootstrap_peers_is_refused():
    table = decode(FROM_FILE.encoded, limit=65_536)
    for peers in ([], ["/dnsaddr/example.org"]):
        with pytest.raises(RemoteError) as refused:
            decode_manifest(encode({**table, "bootstrap": peers}))
        assert refused.value.layer is Layer.MANIFEST


def test_a_task_from_a_file_survives_toml_and_encoding():
    assert parse_manifest(render_manifest(FROM_FILE), "x") == FROM_FILE
    assert decode_manifest(FROM_FILE.encoded) == FROM_FILE


def test_the_order_of_tasks_is_part_of_the_network_id():
    manifest = load_manifest("starter")
    assert replace(manifest, tasks=manifest.tasks[::-1]).network_id != manifest.network_id


BAD = {
    "not TOML": ("name =", "not valid TOML"),
    "an unknown key": ("colour = 1\n" + TEXT, "unknown key 'colour'"),
    "a missing key": (TEXT.replace("genesis", "# genesis", 1), "the key 'genesis' is missing"),
    "another protocol version": (TEXT.replace("version = 2", "version = 1", 1), "protocol version 1"),
    "a float in a task's configuration": (TEXT.replace("config = {", "config = { p = 0.5,", 1), "unsigned integer"),
    "a negative integer in a task's configuration": (TEXT.replace("config = {", "config = { p = -1,", 1), "unsigned"),
    "one completion per group": (TEXT.replace("completions = 8", "completions = 1", 1), "completions is 1"),
    "a message limit over the protocol's": (
        TEXT.replace("max_message_bytes = 524288", "max_message_bytes = 2000000"),
        "max_message_bytes",
    ),
    "a weight of zero": (TEXT.replace("weight = 1", "weight = 0", 1), "weight"),
    "256 levels": (TEXT.replace("levels = 1", "levels = 256", 1), "levels of products is 256"),
    "no turns": (TEXT.replace("turns = 1", "turns = 0", 1), "turns of products is 0"),
    "answers of an unknown kind": (
        render_manifest(FROM_FILE).replace('"number"', '"code"'),
        "answers is 'code'; give one of exact, number, choice, math",
    ),
    "a file that is no SHA-256": (render_manifest(FROM_FILE).replace("5d5d", "5D5D"), "file is a SHA-256"),
    "a file of one row": (render_manifest(FROM_FILE).replace("7473", "1"), "rows is 1"),
    "a source without its rows": (render_manifest(FROM_FILE).replace("rows = 7473, ", ""), "the key 'rows' is missing"),
    "an unknown key of a source": (render_manifest(FROM_FILE).replace("rows =", "split ="), "unknown key 'split'"),
    "seventeen bootstrap peers": (f"bootstrap = {['/dnsaddr/a'] * 17}\n{TEXT}", "at most 16 bootstrap peers"),
    "a bootstrap peer of 257 bytes": (f"bootstrap = ['{'a' * 257}']\n{TEXT}", "an address has at most 256 bytes"),
    "a number for a bootstrap peer": (f"bootstrap = [1]\n{TEXT}", "bootstrap is a list of addresses"),
    "a number for a name": (TEXT.replace('name = "starter"', "name = 3", 1), "wrong type"),
}


@pytest.mark.parametrize(("text", "reason"), BAD.values(), ids=BAD.keys())
def test_a_manifest_is_refused_with(text, reason):
    with pytest.raises(LocalError, match=reason):
        parse_manifest(text, "swarm.toml")


def test_the_keys_that_an_error_names_are_those_that_people_write():
    with pytest.raises(LocalError, match="known keys are bootstrap, completions") as refused:
        parse_manifest("colour = 1\n" + TEXT, "swarm.toml")
    assert "x" not in str(refused.value).partition("known keys are ")[2].split(", ")


def test_a_name_that_is_neither_shipped_nor_a_file_says_what_there_is():
    with pytest.raises(LocalError, match="paper-nine, smollm2-easy, starter"):
        load_manifest("no-such-swarm")


def test_a_manifest_is_read_back_from_its_encoding():
    for name in shipped_manifests():
        assert decode_manifest(load_manifest(name).encoded) == load_manifest(name)


def test_an_extension_is_part_of_the_network_id_and_changes_nothing_else():
    plain = load_manifest("starter")
    extended = replace(plain, x={"later": [1, True]})
    assert decode_manifest(extended.encoded) == extended
    assert extended.network_id != plain.network_id


@pytest.mark.parametrize("name", ["../away", "a/b", "", "-a", "A", "a" * 33, "a\n"])
def test_a_name_that_could_leave_the_state_folder_is_refused(name):
    with pytest.raises(LocalError, match="name"):
        replace(load_manifest("starter"), name=name)


def test_a_manifest_nested_deeper_than_the_encoding_allows_is_refused():
    deep = []
    for _ in range(6):
        deep = [deep]
    task = replace(load_manifest("starter").tasks[0], config={"deep": deep})
    with pytest.raises(LocalError, match="nested"):
        replace(load_manifest("starter"), tasks=(task,))
