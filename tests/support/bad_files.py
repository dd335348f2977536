"""A folder of what people give to commands by mistake: files that are missing, damaged, huge, or somebody else's.

`write_bad_files` adds them to the folder of a node that has run with the key `node.key`, and of its backup.
"""

import gzip
import io
import json
import os
import shutil
import socket
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

from sapo_node.learner.folder import POLICY_DIR
from sapo_node.storage.keys import create_key, load_key
from sapo_protocol import (
    GroupHeader,
    Header,
    encode_evidence,
    encode_header,
    load_manifest,
    parse_envelope,
    render_manifest,
    seal,
)

HUGE = 2**40
"""Bytes of a sparse file, which takes no room."""
CURVES = {arm: {"reward": [0.1], "poison": [0.0]} for arm in ("alone", "control", "undefended", "defended")}
RESULTS = {"outcomes": [{"scenario": "poison-text", "label": "poison-text", "verdicts": [], "curves": CURVES}]}
"""Of a run, as far as its picture needs them."""
NOISE = bytes(range(128, 256)) * 16
STARTER = load_manifest("starter")

MANIFESTS = {
    "name": ('name = "starter"', 'name = "../../etc"'),
    "version": ("version = 2", "version = 1"),
    "genesis": ("genesis = 1767225600", "genesis = -1"),
    "epoch_seconds": ("epoch_seconds = 600", "epoch_seconds = 1"),
    "max_rounds": ("max_rounds = 2400", "max_rounds = 0"),
    "completions": ("completions = 8", "completions = 1"),
    "max_completion_bytes": ("max_completion_bytes = 1024", "max_completion_bytes = 1"),
    "max_message_bytes": ("max_message_bytes = 524288", "max_message_bytes = 4_000_000"),
    "shards": ("shards = 1", "shards = 33"),
    "reasoning_gym": ('"0.1.25"', f'"{"9" * 40}"'),
    "other_gym": ('"0.1.25"', '"0.0.1"'),
    "predecessor": ('predecessor = ""', 'predecessor = "abc"'),
    "x": ('predecessor = ""', f'x = {{ note = "{"y" * 300}" }}'),
    "x_type": ('predecessor = ""', "x = 3"),
    "float": ("min_digits = 2", "min_digits = 2.5"),
    "weight": ("weight = 1", "weight = 0"),
    "scorer": ("scorer = 2", "scorer = 0"),
    "dataset": ('"products"', '""'),
    "plugin": ('"products"', '"somebody.riddles"'),
    "bidi_dataset": ('"products"', '"\\u202Estcudorp"'),
    "config": ("config = { min_digits = 2, max_digits = 2 }", "config = 3"),
    "task_key": ("weight = 1", "weigth = 1"),
    "type": ("shards = 1", 'shards = "one"'),
    "missing": ("shards = 1\n", ""),
    "unknown": ("shards = 1", "shards = 1\nshrads = 1"),
    "twice": ("shards = 1", "shards = 1\nshards = 1"),
}
"""Each in the place of what the starter swarm has there: see `manifests/NAME.toml`."""
CONFIGS = {
    "unknown": "extrenal = 4",
    "alien": "qqqq = 4",
    "red": '"\\u001b[31m" = 4',
    "type": 'local = "four"',
    "list": 'trusted = "12D3KooW"',
    "numbers": "listen = [4001]",
    "yes": "sandbox = 1",
    "range": "local = 0",
    "rate": "learning_rate = nan",
    "filters": 'filters = ["nonsense"]',
    "choice": 'external_objective = "none"',
    "peer": 'banned = ["12D3KooWnonsense"]',
    "base58": 'trusted = ["0OIl"]',
    "both": 'trusted = ["{other}"]\nbanned = ["{other}"]',
    "external": 'external = "many"',
    "broken": "local = [4",
    "again": "local = 4\nsandbox = true\nlocal = 5",
    "section": "[node]\nlocal = 4",
    "mark": "\ufefflocal = 4",
    "crlf_mark": "\ufeff# a\r\nlocal = 4\r\n",
    "zero": "local = 4\nsandbox = \0",
    "tilde": 'state = "~nobody-has-this-name/x"',
}
"""See `configs/NAME.toml`."""
SCENARIOS = {
    "broken": "title = [",
    "empty": "",
    "key": 'title = "t"\nattack = "false-claim"\nundefended = []\nextra = 1',
    "attack": 'title = "t"\nattack = "nonsense"\nundefended = []',
    "defence": 'title = "t"\nattack = "false-claim"\nundefended = ["nonsense"]',
    "bound": 'title = "t"\nattack = "false-claim"\nundefended = []\nholds = { reward_lost = { above = 1 } }',
    "list": 'title = "t"\nattack = "false-claim"\nundefended = 5',
    "table": 'title = "t"\nattack = "false-claim"\nundefended = []\nharm = 3',
    "node": 'title = "t"\nattack = "false-claim"\nundefended = []\nnode = { nonsense = 3 }',
    "simulation": 'title = "t"\nattack = "false-claim"\nundefended = []\nsimulation = 3',
}
"""See `scenarios/NAME.toml`."""


def write_bad_files(folder, state, place):
    """Fill `folder`; `state` is where its node keeps states, and `place` that of the database there.

    What the commands of the tables call things, by name.
    """
    database = state / place
    names = {
        "peer": load_key(folder / "node.key").peer_id,
        "other": create_key(folder / "other.key").peer_id,
        "bytes": os.fsdecode(b"\xff"),
        "bidi": "\u202e",
        "escape": "\x1b[31m",
    }
    _write_keys(folder)
    _write_what_is_no_file(folder)
    _write_texts(folder, names["other"])
    _write_messages(folder, database)
    _write_states(folder, database, place, names)
    _write_archives(folder, database, place)
    _write_model(folder)
    return names


def _write_keys(folder):
    create_key(folder / "locked.key", "passphrase")
    _write(folder / "passphrase", b"passphrase\n").chmod(0o600)
    _write(folder / "passphrase.wrong", b"wrong\n").chmod(0o600)
    _write(folder / "passphrase.readable", b"passphrase\n").chmod(0o644)
    good = (folder / "node.key").read_bytes()
    pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    keys = {
        "rsa": generate_private_key(65_537, 1_024).private_bytes(*pem),
        "public": Ed25519PrivateKey.generate().public_key().public_bytes(*public),
        "truncated": good[:60],
        "empty": b"",
        "noise": NOISE,
        "readable": good,
    }
    for name, data in keys.items():
        _write(folder / f"{name}.key", data).chmod(0o644 if name == "readable" else 0o600)
    _write_huge(folder / "huge.key").chmod(0o600)


def _write_what_is_no_file(folder):
    (folder / "place").mkdir(mode=0o700)
    os.mkfifo(folder / "pipe", 0o600)
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(folder / "socket"))
    (folder / "socket").chmod(0o600)
    (folder / "dangling").symlink_to("nowhere")
    (folder / "loop").symlink_to("loop")


def _write_texts(folder, other):
    _write(folder / "empty", b"")
    _write(folder / "noise", NOISE)
    _write_huge(folder / "huge")
    deep, digits = f"a = {'[' * 3_000}{']' * 3_000}", f"local = {'9' * 5_000}"
    for name, text in {"deep": deep, "digits": digits}.items():
        _write(folder / f"{name}.toml", text.encode())
    _write(folder / "relay.toml", b"train = false")  # a good one, which spares `doctor` the model
    for name in ("utf-16", "utf-16-le", "utf-32"):
        _write(folder / f"{name}.toml", 'title = "starter"\n'.encode(name))
    _write(folder / "mark.toml", 'title = "starter"\n'.encode("utf-8-sig"))
    _write(folder / "twice.toml", b'title = "a"\ntitle = "b"\n')
    _write(folder / "latin.toml", 'swarm = "größer"'.encode("latin-1"))
    _write(folder / "deep.json", b"[" * 100_000)
    _write(folder / "other.json", json.dumps({"title": "something else"}).encode())
    _write(folder / "list.json", b"[1]")
    _write(folder / "results.json", json.dumps(RESULTS).encode())
    starter = render_manifest(STARTER)
    for name, (there, instead) in MANIFESTS.items():
        assert there in starter, name
        _write(folder / "manifests" / f"{name}.toml", starter.replace(there, instead, 1).encode())
    hint = 'bootstrap = ["/dnsaddr/seed.example", "/ip4/127.0.0.1/tcp/1"]\n'
    _write(folder / "manifests" / "hinted.toml", f"{hint}{starter}".encode())
    without_tasks = starter.partition("[[tasks]]")[0]
    _write(folder / "manifests" / "tasks.toml", without_tasks.encode())
    for name, text in CONFIGS.items():
        _write(folder / "configs" / f"{name}.toml", text.replace("{other}", other).encode())
    for name, text in SCENARIOS.items():
        _write(folder / "scenarios" / f"{name}.toml", text.encode())


def _write_messages(folder, database):
    with closing(sqlite3.connect(database)) as connection:
        (message,) = connection.execute("SELECT message FROM published").fetchone()
    _write(folder / "message", message)
    _write(folder / "message.flipped", message[:100] + bytes([message[100] ^ 1]) + message[101:])
    _write(folder / "message.truncated", message[:-100])
    _write(folder / "message.longer", message + b"\0")
    _write(folder / "proof", _proof(load_key(folder / "node.key")))


def _proof(identity):
    """Two contents that a key signed for one round."""
    headers = [Header(0, 0, (GroupHeader(bytes(32), (True,) * 8, bytes([n]) * 32),)) for n in (1, 2)]
    seals = [
        seal(encode_header(header), issuer=identity.public_key, sign=identity.sign, network_id=STARTER.network_id)
        for header in headers
    ]
    return encode_evidence(*(parse_envelope(each, network_id=STARTER.network_id) for each in seals))


def _write_states(folder, database, place, names):
    """States like that of the node, each in a folder for `--state`."""

    def state(name):
        made = folder / "states" / name / place
        (made.parent / "checkpoints").mkdir(parents=True)
        return Path(shutil.copy(database, made))

    _damage(state("damaged"))
    _write(state("noise"), NOISE)
    _write(state("empty"), b"")
    os.truncate(state("truncated"), 5_000)
    with closing(sqlite3.connect(state("version"))) as connection:
        connection.execute("PRAGMA user_version = 99")
    alien = state("alien")
    alien.unlink()
    with closing(sqlite3.connect(alien)) as connection:
        connection.execute("CREATE TABLE cats (name TEXT)")
    file = state("folder")
    file.unlink()
    file.mkdir()
    with closing(sqlite3.connect(state("judged"))) as connection:
        *start, last = names["other"]
        for ending in sorted({"1", "2", "3"} - {last})[:2]:
            row = ("".join(start) + ending, "untrusted", 0.0, 0.0, 0, 0, 0, 0, 0.0, 0.0)
            connection.execute("INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        proof = (folder / "proof").read_bytes()
        connection.execute("INSERT INTO evidence VALUES (?, ?)", (names["peer"], proof))
        connection.commit()


def _write_archives(folder, database, place):
    """Beside `backup.tar`, which is a good one: what is none, or is damaged."""
    good = (folder / "backup.tar").read_bytes()
    _write(folder / "truncated.tar", good[: len(good) // 2])
    _write(folder / "backup.tar.gz", gzip.compress(good))
    _write_tar(folder / "alien.tar", {"cats.txt": b"cats"})
    for name, state in {"damaged": "damaged", "version": "version", "cats": "alien"}.items():
        _write_tar(folder / f"{name}.tar", {database.name: (folder / "states" / state / place).read_bytes()})
    whole = {database.name: database.read_bytes()}
    for name, kind in {"link": tarfile.SYMTYPE, "device": tarfile.CHRTYPE}.items():
        _write_tar(folder / f"{name}.tar", whole, _member("checkpoints/x", kind))
    _write_tar(folder / "absolute.tar", whole, _member(f"{folder}/escaped", tarfile.REGTYPE))
    _write_tar(folder / "parent.tar", whole, _member("checkpoints/../../escaped", tarfile.REGTYPE))
    _write_tar(folder / "deep.tar", whole, _member("checkpoints/" + "d/" * 2_000, tarfile.DIRTYPE))


def _member(name, kind):
    member = tarfile.TarInfo(name)
    member.type = kind
    member.linkname = "/etc/passwd"
    return member


def _write_tar(path, files, *members):
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        archive.addfile(_member("checkpoints", tarfile.DIRTYPE))
        for each in members:
            archive.addfile(each)


def _write_model(folder):
    """The policy in the package, in whose settings two architectures are mixed."""
    made = shutil.copytree(POLICY_DIR, folder / "mixed")
    config = json.loads((made / "config.json").read_text())
    _write(made / "config.json", json.dumps(config | {"model_type": "mamba"}).encode())


def _write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _write_huge(path):
    with path.open("wb") as file:
        file.truncate(HUGE)
    return path


def _damage(path):
    """Overwrite the middle."""
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 8_192] = NOISE * 2
    path.write_bytes(data)
