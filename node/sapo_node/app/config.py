"""The configuration of a node: the defaults, then a TOML file, then the environment, then the command line.

`Config` is the one table of settings. A row has the key, its default, its meaning and the values that it takes. The
file, the variables of the environment, the options of the commands, the checks and the reference are made from it:

    max_tokens = 80     SAPO_NODE_MAX_TOKENS=80     --max-tokens 80

An unknown key, and an unknown variable of the environment, is an error. A list in a variable has commas between its
values; the empty text is the empty list.

A relative path in a file begins at the folder of the file, so that the file names the same key, state, manifest and
model from wherever a command runs. If it began at the working directory, `start` from another folder would make a new
key: a node that no peer knows, and that has learnt nothing.
"""

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from math import inf
from pathlib import Path
from typing import Any, Literal, get_args

from sapo_node.groups.messages import FILTERS, Auto, Dtype, ExternalObjective, is_hub_name
from sapo_node.groups.prompt import MAX_EXAMPLES
from sapo_node.sampling.mix import MAX_EXTERNAL
from sapo_node.sampling.weights import Selection
from sapo_node.storage.keys import PASSPHRASE_FILE_VARIABLE, PASSPHRASE_VARIABLE
from sapo_node.storage.user_folders import default_state
from sapo_protocol import LocalError, TaskSpec, limits, public_key_of, shipped_manifests
from sapo_protocol.files import NoSuchFile, expanded
from sapo_protocol.printable import excerpt
from sapo_protocol.toml import read_toml, toml_value

AUTO: Literal["auto"] = "auto"
"""The value of a setting that the node chooses itself."""

_MAX_BYTES = 8 * 2**20
"""Size limit of a configuration file in bytes, enough for 100,000 trusted peers."""
_SHOWN_CHARACTERS = 80
"""Characters that an error shows of a refused value, at most."""
_PREFIX = "SAPO_NODE_"
_FILE_VARIABLE = "SAPO_NODE_CONFIG"
"""The path of the configuration file, for a command without --config."""
_OTHER_VARIABLES = {_FILE_VARIABLE, PASSPHRASE_VARIABLE, PASSPHRASE_FILE_VARIABLE, "SAPO_NODE_API_KEY"}
_KUBERNETES = re.compile(r"SAPO_NODE_(SERVICE|PORT)(_.*)?")
"""Variables that Kubernetes sets in each container if a service is called sapo-node."""
_SWITCH = {"true": True, "1": True, "false": False, "0": False}

Section = Literal["Node", "Model", "Training", "Peers", "Network", "Output"]
Use = Literal["always", "groups", "rounds", "learner"]
"""The nodes that a setting has an effect on: all; those that share groups; those that play rounds, also with a trainer
of another program; those that train a model themselves."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table. Its first sentence is the help of the option."""

    default: Any
    meaning: str
    section: Section
    use: Use
    bounds: tuple[float, float]
    """Least and greatest number. A number that may be broken must be above the least."""
    choices: tuple[str, ...]
    """All texts that may be given; empty if any text may."""
    auto: bool
    """True if AUTO may stand in place of a number."""
    kind: type
    unit: str
    """The placeholder of a value in the help of the option."""
    bare: str
    """The value of the option if no value follows it; empty if one must."""
    option: bool
    """True if `start` has an option for it."""

    @property
    def help(self) -> str:
        """The first sentence of the meaning."""
        return re.split(r"(?<=\.) ", self.meaning, maxsplit=1)[0]

    @property
    def wanted(self) -> str:
        """The values that the setting takes, in words."""
        low, high = self.bounds
        if self.kind is tuple:
            return f"some of {', '.join(self.choices)}" if self.choices else "a list of strings"
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.kind is bool:
            return "true or false"
        if self.kind is str:
            return "text"
        number = f"a whole number from {low} to {high}" if self.kind is int else f"a number above {low} up to {high}"
        return f"{number}, or {AUTO}" if self.auto else number

    def accepts(self, value: Any) -> bool:
        """Return whether the setting takes a value."""
        if self.kind is tuple:
            return isinstance(value, tuple) and all(
                isinstance(each, str) and (not self.choices or each in self.choices) for each in value
            )
        if self.auto and value == AUTO:
            return True
        low, high = self.bounds
        if type(value) is self.kind is int:
            return low <= value <= high
        if type(value) is self.kind is float:
            return low < value <= high
        return type(value) is self.kind and (not self.choices or value in self.choices)

    def parse(self, text: str) -> Any:
        """Return the value that a text gives, or the text if it gives none. `accepts` refuses it then."""
        if self.kind is tuple:
            return tuple(part.strip() for part in text.split(",") if part.strip())
        if self.kind is bool:
            return _SWITCH.get(text.lower(), text)
        if self.kind in (int, float) and text != AUTO:
            try:
                return self.kind(text)
            except ValueError:
                return text
        return text


def _setting(
    default: Any,
    section: Section,
    meaning: str,
    *,
    use: Use = "always",
    bounds: tuple[float, float] = (-inf, inf),
    choices: tuple[str, ...] = (),
    kind: type | None = None,
    unit: str = "",
    bare: str = "",
    option: bool = True,
) -> Any:
    row = Setting(
        default=default,
        meaning=meaning,
        section=section,
        use=use,
        bounds=bounds,
        choices=choices,
        auto=kind is not None,
        kind=kind or type(default),
        unit=unit,
        bare=bare,
        option=option,
    )
    return field(default=default, metadata={"row": row})


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of a node. Raises LocalError for an invalid value."""

    swarm: str = _setting(
        "starter",
        "Node",
        f"The swarm to join: a shipped manifest ({', '.join(shipped_manifests())}) or the path of one.",
        unit="NAME|FILE",
    )
    key: str = _setting(
        "node.key", "Node", "The file of this node's Ed25519 key. The node makes it if it is missing.", unit="FILE"
    )
    state: str = _setting(
        default_state(),
        "Node",
        "The folder under which each swarm and key keeps its state. The folder above it must exist, unless this is the "
        "default.",
        unit="FOLDER",
    )
    listen: tuple[str, ...] = _setting(
        ("/ip4/0.0.0.0/tcp/0", "/ip6/::/tcp/0"),
        "Network",
        "Addresses to listen on: IP:PORT or a multiaddress. Port 0 takes a free port.",
        unit="ADDRESS",
    )
    announce: tuple[str, ...] = _setting(
        (), "Network", "Addresses that peers are told to dial, if they differ from `listen`.", unit="ADDRESS"
    )
    bootstrap: tuple[str, ...] = _setting(
        (), "Network", "Nodes to dial at the start, as multiaddresses that end in /p2p/<peer id>.", unit="MULTIADDR"
    )
    network: str = _setting(
        AUTO,
        "Network",
        "With `auto` the node finds nodes of the same swarm on the local network (mDNS), and asks the router to "
        "forward its port (PCP, NAT-PMP or UPnP). With `manual` it does neither.",
        choices=(AUTO, "manual"),
    )
    dashboard: str = _setting(
        "127.0.0.1:0",
        "Network",
        "HOST:PORT at which the node serves its page; `off` serves none. Port 0 takes a free port. Beyond loopback the "
        "page asks for a token. The address that the node prints contains the token.",
        unit="[HOST:]PORT",
    )
    local: int = _setting(
        4,
        "Training",
        "I: local groups per round. They set the cost of a round.",
        use="groups",
        bounds=(1, 16),
        unit="I",
    )
    external: int | Auto = _setting(
        AUTO,
        "Peers",
        "J: most external groups per round. A round may have fewer. With `auto` the node chooses J, up to 16: it "
        "compares what a local and an external group are worth to its learning.",
        bounds=(0, 256),
        kind=int,
        unit="J",
    )
    trusted: tuple[str, ...] = _setting(
        (),
        "Peers",
        "Peer ids of friends. While a peer is named here, it is healthy, whatever it earned.",
        option=False,
    )
    banned: tuple[str, ...] = _setting(
        (),
        "Peers",
        "Peer ids to ignore. While a peer is named here, the node takes nothing from it, whatever it earned.",
        option=False,
    )
    sandbox: bool = _setting(
        True, "Peers", "Train on external groups only if this system can sandbox the scorer of their texts."
    )
    archive: int = _setting(
        0,
        "Peers",
        "MiB of verified rollouts of peers to keep for `sapo-node rollouts export`. Each is kept with what its issuer "
        "signed. The oldest make room. 0 keeps none.",
        bounds=(0, 65_536),
        unit="MIB",
    )
    train: bool = _setting(True, "Training", "Train a model. Without it the node only verifies and relays.")
    feed: str = _setting(
        "off",
        "Training",
        "HOST:PORT of loopback where a trainer of your own takes the steps, with --no-train. Port 0 takes a free port. "
        "`off` serves no trainer. See docs/start/your-trainer.md.",
        unit="HOST:PORT",
        bare="127.0.0.1:0",
    )
    generate: str = _setting(
        "off",
        "Training",
        "URL of a vLLM or SGLang server that samples the completions. It samples with the weights of this node, and "
        "is reached over https or on this machine. `off` lets the learner sample. See docs/start/your-server.md.",
        use="learner",
        unit="URL",
    )
    model: str = _setting(
        "seed",
        "Model",
        "The model: `seed` (in the package), one that `sapo-node model fetch` got, a folder, a GGUF file or owner/name "
        "on the hub.",
        use="groups",
        unit="MODEL",
    )
    lora: int | Auto = _setting(
        AUTO,
        "Model",
        "Rank of LoRA adapters; 0 trains all weights. With `auto` the model decides: see docs/start/your-model.md.",
        use="learner",
        bounds=(0, 1024),
        kind=int,
        unit="RANK",
    )
    lora_layers: int = _setting(
        0,
        "Model",
        "Layers with adapters, counted from the output; 0 is all.",
        use="learner",
        bounds=(0, 1024),
        unit="LAYERS",
    )
    dtype: Dtype = _setting(
        AUTO,
        "Model",
        "The number format in which the model generates and trains. With bfloat16 the optimizer keeps a float32 copy "
        "of the trained weights, so that small updates are not lost. `auto` takes bfloat16 for a large model if the "
        "processor computes in it.",
        use="learner",
        choices=get_args(Dtype),
    )
    examples: int | Auto = _setting(
        AUTO,
        "Model",
        "Worked examples that the model reads before each prompt. They are of the same task, and peers do not see "
        "them. `auto` as for `lora`.",
        use="groups",
        bounds=(0, MAX_EXAMPLES),
        kind=int,
        unit="N",
    )
    thinking: bool = _setting(
        False,
        "Model",
        "Let a model that can think do so before it answers, as Qwen3. It needs many more `max_tokens`.",
        use="learner",
    )
    max_tokens: int | Auto = _setting(
        AUTO,
        "Model",
        "Longest completion, in tokens of the model. `auto` as for `lora`.",
        use="groups",
        bounds=(1, 65_536),
        kind=int,
        unit="TOKENS",
    )
    device: str = _setting(
        AUTO, "Training", "The device of the learner.", use="learner", choices=(AUTO, "cpu", "cuda", "mps")
    )
    threads: int = _setting(
        0,
        "Training",
        "CPU threads of the learner. With 0 it uses all cores but one.",
        use="learner",
        bounds=(0, 1024),
        option=False,
    )
    gradient_checkpointing: bool = _setting(
        False,
        "Training",
        "Use less memory and more time. Activations are computed twice instead of stored; the gradients are the same.",
        use="learner",
    )
    learning_rate: float | Auto = _setting(
        AUTO,
        "Training",
        "Adam's learning rate, before it decays. `auto` as for `lora`.",
        use="learner",
        bounds=(0, 1),
        kind=float,
        unit="RATE",
    )
    warmup: int = _setting(
        0,
        "Training",
        "Steps over which the learning rate grows to its full value.",
        use="learner",
        bounds=(0, 1_000_000),
        option=False,
    )
    decay_rounds: int = _setting(
        100,
        "Training",
        "Rounds after the warm-up until the learning rate is half of its full value. After twice as many it is a "
        "third, and so on, down to a twentieth. 0 keeps the rate constant.",
        use="learner",
        bounds=(0, 1_000_000),
        unit="ROUNDS",
    )
    replay: bool = _setting(
        False,
        "Training",
        "If local groups have no advantage, train once more on earlier correct completions.",
        use="learner",
        option=False,
    )
    external_objective: ExternalObjective = _setting(
        "positive-only",
        "Peers",
        "Which external completions the loss counts: positive-only (those with positive advantage) or on-policy (all, "
        "as if this node had generated them).",
        use="rounds",
        choices=get_args(ExternalObjective),
        option=False,
    )
    selection: Selection = _setting(
        "trust",
        "Peers",
        "How the node draws external groups: trust (by the peer's trust and the group's age) or informative (also by "
        "how rarely this node's policy solves the task).",
        use="rounds",
        choices=("trust", "informative"),
        option=False,
    )
    filters: tuple[str, ...] = _setting(
        FILTERS,
        "Peers",
        "Filters for correct external completions, against poison: all, some, or none with []. The node trains only "
        "on what passes them. docs/trust/trust.md says what each filter does.",
        use="rounds",
        choices=FILTERS,
        option=False,
    )
    checkpoint_every: int = _setting(
        10,
        "Training",
        "Rounds between checkpoints. After a crash the node replays the rounds since the last one.",
        use="learner",
        bounds=(1, 100_000),
        option=False,
    )
    eval_every: int = _setting(
        50,
        "Training",
        "Rounds between evaluations on held-out prompts, 16 per task. The first runs before any training. 0 turns "
        "evaluation off.",
        use="learner",
        bounds=(0, 100_000),
        option=False,
    )
    log_to: tuple[str, ...] = _setting(
        (),
        "Output",
        "Where the node writes its curves, too. jsonl and tensorboard write below the state folder, in `curves`.",
        use="rounds",
        choices=("jsonl", "tensorboard", "trackio", "wandb"),
    )

    def __post_init__(self) -> None:
        for name in ("key", "state", "swarm", "model"):
            object.__setattr__(self, name, expanded(getattr(self, name)))
        for name, row in SETTINGS.items():
            _require(row, name, getattr(self, name))
        for peer in (*self.trusted, *self.banned):
            public_key_of(peer)
        if both := set(self.trusted) & set(self.banned):
            raise LocalError(f"trusted and banned both hold {min(both)}; take it out of one")
        if self.fed and self.train:
            raise LocalError("feed gives the training to your own trainer; give --no-train, too (train = false)")

    @property
    def states(self) -> Path:
        """The folder under which each swarm and key keeps its state. Raises LocalError if there is none."""
        if not self.state:
            raise LocalError("this user has no home folder, so there is no default for --state: give a folder")
        return Path(self.state)

    @property
    def task_files(self) -> Path:
        """The folder of the files that have the rows of tasks."""
        return self.states / "files"

    def files_of(self, tasks: Iterable[TaskSpec]) -> Path | None:
        """Return the folder of the files of these tasks; None if no task has a file, so that no folder is needed."""
        return self.task_files if any(task.source for task in tasks) else None

    @property
    def fed(self) -> bool:
        """True if a trainer of another program takes the steps."""
        return self.feed != "off"

    @property
    def most_external(self) -> int:
        """The most external groups in a round."""
        return MAX_EXTERNAL if self.external == AUTO else self.external

    @property
    def model_label(self) -> str:
        """The name of the model that peers see: its name on the hub or of its folder, never a path of this machine."""
        name = self.model if is_hub_name(self.model) else Path(self.model).resolve().name
        return name.encode("utf-8", "replace")[: limits.MAX_MODEL_LABEL_BYTES].decode("utf-8", "ignore")

    @property
    def groups(self) -> int:
        """The number of groups in the denominator of the loss: I + J of a full round, or 2 I if J is `auto`."""
        return 2 * self.local if self.external == AUTO else self.local + self.external

    def overridden(self, changes: Mapping[str, Any]) -> "Config":
        """Return this configuration with the options of the command line. None and () mean that one is not given."""
        return replace(self, **{name: value for name, value in changes.items() if value not in (None, ())})

    def in_folder(self, folder: Path) -> "Config":
        """Return this configuration with the relative paths as they are from `folder`."""
        return replace(self, **_placed(asdict(self), folder))

    def unused(self, *, contributes: bool) -> list[str]:
        """Return the settings that differ from their default and have no effect, because the node does not train.

        `contributes` says that the node shares completions of a contributor.
        """
        effective = {"always"}
        if self.train or self.fed or contributes:
            effective.add("groups")
        if self.train or self.fed:
            effective.add("rounds")
        if self.train:
            effective.add("learner")
        return [
            name for name, row in SETTINGS.items() if row.use not in effective and getattr(self, name) != row.default
        ]


SETTINGS: Mapping[str, Setting] = {each.name: each.metadata["row"] for each in fields(Config)}
"""The rows of the table by key."""


def variable_of(key: str) -> str:
    """Return the name of the environment variable for a key."""
    return _PREFIX + key.upper()


def _require(row: Setting, name: str, value: Any) -> None:
    if not row.accepts(value):
        shown = excerpt(repr(list(value) if isinstance(value, tuple) else value), _SHOWN_CHARACTERS)
        raise LocalError(f"{name} is {shown}; give {row.wanted}")


def load_config(path: Path | None, environ: Mapping[str, str] = os.environ) -> Config:
    """Return the defaults, overridden by the file at `path`, and then by the variables SAPO_NODE_* in `environ`.
    Without `path`, SAPO_NODE_CONFIG may name a file.

    Raises LocalError for a bad file, variable, key or value.
    """
    path = path or (Path(expanded(environ[_FILE_VARIABLE])) if environ.get(_FILE_VARIABLE) else None)
    written = _placed(checked(_read(path), str(path)), path.parent) if path else {}
    return Config(**(written | _in_environment(environ)))


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_toml(path, _MAX_BYTES, "configuration")
    except NoSuchFile as error:
        raise LocalError(f"{error}; make one with: sapo-node config > {path}") from error


def checked(table: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the values of a table of TOML or JSON. `source` is where the table stands, for errors.

    Raises LocalError for an unknown key, or for a value that the key does not take.
    """
    return {name: _value(name, value, source) for name, value in table.items()}


def _value(name: str, value: Any, source: str) -> Any:
    if isinstance(value, Mapping) or (isinstance(value, list) and any(isinstance(each, Mapping) for each in value)):
        raise LocalError(
            f"{source}: a configuration has no section [{name}]; remove that line and keep the keys below it"
        )
    if any(isinstance(each, str) and "\0" in each for each in (value if isinstance(value, list) else [value])):
        raise LocalError(f"{source}: {name} holds a zero byte; take it out")
    if name not in SETTINGS:
        close = difflib.get_close_matches(name, SETTINGS, 1)
        hint = f"; did you mean {close[0]!r}?" if close else "; `sapo-node config` prints all keys"
        raise LocalError(f"{source}: unknown key {name!r}{hint}")
    row = SETTINGS[name]
    if isinstance(value, list):
        value = tuple(value)
    elif row.kind is float and type(value) is int:
        value = float(value)
    _require(row, f"{source}: {name}", value)
    return value


def _in_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of the variables by key. Raises LocalError for an unknown variable or a refused value."""
    keys = {variable_of(key): key for key in SETTINGS}
    found = {}
    for name, text in sorted(environ.items()):
        if not name.startswith(_PREFIX) or name in _OTHER_VARIABLES or _KUBERNETES.fullmatch(name):
            continue
        if name not in keys:
            close = difflib.get_close_matches(name, keys, 1)
            raise LocalError(f"unknown variable {name}; {f'did you mean {close[0]}?' if close else 'unset it'}")
        row = SETTINGS[keys[name]]
        found[keys[name]] = row.parse(text)
        _require(row, name, found[keys[name]])
    return found


def _placed(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return settings whose paths begin at `folder`, with the paths as they are from the working directory."""
    if folder == Path():
        return dict(values)
    return {name: _path(name, value, folder.absolute()) for name, value in values.items()}


def _path(name: str, value: Any, folder: Path) -> Any:
    """Return a value with its path from the working directory. Names of shipped manifests and models are no paths."""
    if name not in {"key", "state", "swarm", "model"} or not value:
        return value
    value = expanded(value)
    is_path = (
        name in {"key", "state"}
        or (name == "swarm" and value not in shipped_manifests())
        or (name == "model" and value != "seed" and os.path.exists(folder / value))  # noqa: PTH110 - Path.exists raises for a long name
    )
    return str(folder / value) if is_path else value


def render_config(config: Config) -> str:
    """Return the configuration as TOML, every key with its meaning."""
    lines = ["# Configuration of sapo-node. Every key is optional; environment and command line override this file."]
    for name, row in SETTINGS.items():
        values = f" Give {row.wanted}." if row.choices or row.kind in {int, float} else ""
        lines += ["", f"# {row.meaning}{values}", f"{name} = {toml_value(getattr(config, name))}"]
    return "\n".join(lines) + "\n"
