"""The configuration of a node: the defaults, then a TOML file, then the environment, then the command line.

This module documents every key. An unknown key, and an unknown variable of the environment, is an error.
"""

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args

from sapo_node.app.environment import FILE_VARIABLE, settings_of
from sapo_node.app.places import PATHS, placed
from sapo_node.groups.messages import FILTERS, Auto, Dtype, ExternalObjective
from sapo_node.groups.model_name import is_hub_name
from sapo_node.groups.prompt import MAX_EXAMPLES
from sapo_node.observability.curves.request import LIBRARIES
from sapo_node.sampling.mix import AUTO, MAX_EXTERNAL
from sapo_node.sampling.weights import Selection
from sapo_node.storage.user_folders import default_state
from sapo_protocol import LocalError, limits, public_key_of
from sapo_protocol.files import NoSuchFile, expanded
from sapo_protocol.toml import read_toml, toml_value

_MAX_BYTES = 8 * 2**20
"""Size limit of a configuration file in bytes, enough for 100,000 trusted peers."""

_IN_WORDS = {int: "a whole number", bool: "true or false", str: "text"}
_NUMBER_OR_AUTO: Mapping[str, type] = {
    "external": int,
    "lora": int,
    "examples": int,
    "max_tokens": int,
    "learning_rate": float,
}
"""The keys that hold a number of this type, or AUTO."""


def _key(default: Any, doc: str) -> Any:
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of a node. Raises LocalError for an invalid value."""

    swarm: str = _key(
        "starter",
        "The swarm to join: a shipped manifest (starter, smollm2-easy, interop, paper-nine) or the path of one.",
    )
    key: str = _key("node.key", "The file of this node's Ed25519 key. The node makes it if it is missing.")
    state: str = _key(
        default_state(),
        "The folder under which each swarm and key keeps its state. The folder above it must exist, unless this is the "
        "default.",
    )
    listen: tuple[str, ...] = _key(("/ip4/0.0.0.0/tcp/0",), "Multiaddresses to listen on; port 0 takes a free port.")
    announce: tuple[str, ...] = _key(
        (), "Multiaddresses that the node tells peers to dial, if they differ from `listen`."
    )
    bootstrap: tuple[str, ...] = _key((), "Nodes to dial at the start, as multiaddresses that end in /p2p/<peer id>.")
    mdns: bool = _key(True, "Find nodes of the same swarm on the local network.")
    train: bool = _key(True, "Train a model. With false the node only verifies and relays.")
    feed: str = _key(
        "off",
        "HOST:PORT of loopback where a trainer of your own takes the place of the model; needs train = false. Port 0 "
        "takes a free port. `off` serves no trainer. See docs/start/your-trainer.md.",
    )
    generate: str = _key(
        "off",
        "The address of a vLLM or SGLang server that samples the completions of rounds with the weights of this node: "
        "https, or a server on this machine. `off` lets the learner sample. See docs/start/your-server.md.",
    )
    local: int = _key(4, "I: local groups per round. They set the cost of a round.")
    external: int | Auto = _key(
        AUTO,
        "J: most external groups per round. A round may have fewer. With `auto` the node chooses J, up to 16: it "
        "compares what a local and an external group are worth to its learning.",
    )
    trusted: tuple[str, ...] = _key(
        (),
        "Peer ids of friends. While a peer is named here, it is healthy, whatever it earned.",
    )
    banned: tuple[str, ...] = _key(
        (), "Peer ids to ignore. While a peer is named here, the node takes nothing from it, whatever it earned."
    )
    model: str = _key(
        "seed",
        "The model: `seed` (in the package), a model that `sapo-node fetch` got, a Hugging Face folder, a GGUF file, "
        "or owner/name on the hub.",
    )
    lora: int | Auto = _key(
        AUTO,
        "Rank of LoRA adapters; 0 trains all weights. With `auto` the model decides: see docs/start/your-model.md.",
    )
    lora_layers: int = _key(0, "Layers with adapters, counted from the output. 0 gives all layers adapters.")
    dtype: Dtype = _key(
        AUTO,
        "The number format of the model when it generates and trains: float32 or bfloat16. With bfloat16 the optimizer "
        "keeps a float32 copy of the trained weights, so that small updates are not lost. `auto` takes bfloat16 for a "
        "large model where the processor computes in it.",
    )
    examples: int | Auto = _key(
        AUTO,
        "Worked examples of the same task that the model reads before each prompt. Peers do not see them. `auto` as "
        "for `lora`.",
    )
    thinking: bool = _key(
        False, "Whether a model that can think before it answers does so, as Qwen3. It needs many more `max_tokens`."
    )
    gradient_checkpointing: bool = _key(
        False, "Compute activations twice instead of storing them: the same gradients, less memory, more time."
    )
    device: str = _key("auto", "Where the learner runs: auto, cpu, cuda or mps.")
    threads: int = _key(0, "CPU threads of the learner. With 0 it uses all cores but one.")
    learning_rate: float | Auto = _key(AUTO, "Adam's learning rate, before it decays. `auto` as for `lora`.")
    warmup: int = _key(0, "Steps over which the learning rate grows to its full value.")
    decay_rounds: int = _key(
        100,
        "Rounds after the warm-up until the learning rate is half of its full value. After twice as many it is a "
        "third, and so on, down to a twentieth. 0 keeps the rate constant.",
    )
    replay: bool = _key(False, "Where local groups have no advantage, train once more on earlier correct completions.")
    external_objective: ExternalObjective = _key(
        "positive-only",
        "Which external completions the loss counts: positive-only (those with positive advantage) or on-policy (all, "
        "as if this node had generated them).",
    )
    selection: Selection = _key(
        "trust",
        "How the node draws external groups: trust (by the peer's trust and the group's age) or informative (also by "
        "how rarely this node's policy solves the task).",
    )
    filters: tuple[str, ...] = _key(
        FILTERS,
        "Filters for correct external completions, against poison: all, some, or none with []. The node trains only "
        "on what passes them. docs/trust/trust.md says what each filter does.",
    )
    max_tokens: int | Auto = _key(AUTO, "Longest completion of this node, in its model's tokens. `auto` as for `lora`.")
    dashboard: str = _key(
        "127.0.0.1:0",
        "HOST:PORT at which the node serves its page; port 0 takes a free port, `off` serves no page. Beyond loopback "
        "the page asks for a token. The address that the node prints contains the token.",
    )
    log_to: tuple[str, ...] = _key(
        (),
        f"Where the curves go: some of {', '.join(LIBRARIES)}. jsonl and tensorboard write below the state folder, in "
        "`curves`.",
    )
    archive: int = _key(
        0,
        "MiB of verified rollouts of peers that the node keeps, with what their issuers signed, for "
        "`sapo-node rollouts export`. The oldest make room. 0 keeps none.",
    )
    checkpoint_every: int = _key(
        10, "Rounds between checkpoints. After a crash the node replays the rounds since the last one."
    )
    eval_every: int = _key(
        50,
        "Rounds between evaluations on held-out prompts, 16 per task. The first runs before any training. 0 turns "
        "evaluation off.",
    )
    no_sandbox: bool = _key(False, "Train on external groups even if this system cannot sandbox the scorer.")

    def __post_init__(self) -> None:
        for name in PATHS:
            object.__setattr__(self, name, expanded(getattr(self, name)))
        bounds = {
            "local": (1, 16),
            "external": (0, 256),
            "lora": (0, 1024),
            "lora_layers": (0, 1024),
            "examples": (0, MAX_EXAMPLES),
            "warmup": (0, 1_000_000),
            "decay_rounds": (0, 1_000_000),
            "threads": (0, 1024),
            "max_tokens": (1, 65_536),
            "checkpoint_every": (1, 100_000),
            "eval_every": (0, 100_000),
            "archive": (0, 65_536),
        }
        for name, (low, high) in bounds.items():
            if getattr(self, name) == AUTO and name in _NUMBER_OR_AUTO:
                continue
            if not low <= getattr(self, name) <= high:
                raise LocalError(f"{name} is {getattr(self, name)}; give a whole number from {low} to {high}")
        choices = {
            "external_objective": get_args(ExternalObjective),
            "selection": ("trust", "informative"),
            "device": ("auto", "cpu", "cuda", "mps"),
            "dtype": get_args(Dtype),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise LocalError(f"{name} is {getattr(self, name)!r}; give one of {', '.join(allowed)}")
        self._require_peers()
        for name, known in {"filters": FILTERS, "log_to": tuple(LIBRARIES)}.items():
            for each in getattr(self, name):
                if each not in known:
                    raise LocalError(f"{name} holds {each!r}; give some of {', '.join(known)}")
        if self.fed and self.train:
            raise LocalError("feed gives the training to your own trainer; give --no-train, too (train = false)")
        if self.learning_rate != AUTO and not 0 < self.learning_rate <= 1:
            raise LocalError(f"learning_rate is {self.learning_rate}; give a number above 0 and at most 1")

    def _require_peers(self) -> None:
        for peer in (*self.trusted, *self.banned):
            public_key_of(peer)
        if both := set(self.trusted) & set(self.banned):
            raise LocalError(f"trusted and banned both hold {min(both)}; take it out of one")

    @property
    def states(self) -> Path:
        """The folder under which each swarm and key keeps its state. Raises LocalError if there is none."""
        if not self.state:
            raise LocalError("this user has no home folder, so there is no default for --state: give a folder")
        return Path(self.state)

    @property
    def fed(self) -> bool:
        """Whether the policy is a trainer of another program."""
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


def load_config(path: Path | None, environ: Mapping[str, str] = os.environ) -> Config:
    """Return the defaults, overridden by the file at `path`, and then by the variables SAPO_NODE_* in `environ`.
    Without `path`, SAPO_NODE_CONFIG may name a file.

    Raises LocalError for a bad file, variable, key or value.
    """
    kinds = {each.name: _NUMBER_OR_AUTO.get(each.name, type(each.default)) for each in fields(Config)}
    path = path or (Path(expanded(environ[FILE_VARIABLE])) if environ.get(FILE_VARIABLE) else None)
    written = placed(checked(_read(path), str(path)), path.parent) if path else {}
    return Config(**(written | settings_of(environ, kinds, frozenset(_NUMBER_OR_AUTO))))


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_toml(path, _MAX_BYTES, "configuration")
    except NoSuchFile as error:
        raise LocalError(f"{error}; make one with: sapo-node config > {path}") from error


def checked(table: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the values of a table in the types of their fields. `source` is where the table stands, for errors.

    Raises LocalError for an unknown key, or for a value of another type.
    """
    return {name: _value(name, value, source) for name, value in table.items()}


def _value(name: str, value: Any, source: str) -> Any:
    if isinstance(value, Mapping) or (isinstance(value, list) and any(isinstance(each, Mapping) for each in value)):
        raise LocalError(
            f"{source}: a configuration has no section [{name}]; remove that line and keep the keys below it"
        )
    if any(isinstance(each, str) and "\0" in each for each in (value if isinstance(value, list) else [value])):
        raise LocalError(f"{source}: {name} holds a zero byte; take it out")
    defaults = {each.name: each.default for each in fields(Config)}
    if name not in defaults:
        close = difflib.get_close_matches(name, defaults, 1)
        hint = f"; did you mean {close[0]!r}?" if close else "; `sapo-node config` prints all keys"
        raise LocalError(f"{source}: unknown key {name!r}{hint}")
    default = defaults[name]
    if isinstance(default, tuple):
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return tuple(value)
        raise LocalError(f"{source}: {name} must be a list of strings")
    if name in _NUMBER_OR_AUTO:
        return _number_or_auto(name, value, source)
    if type(value) is not type(default):
        raise LocalError(f"{source}: {name} must be {_IN_WORDS[type(default)]}")
    return value


def _number_or_auto(name: str, value: Any, source: str) -> Any:
    kind = _NUMBER_OR_AUTO[name]
    if value == AUTO or type(value) is kind:
        return value
    if kind is float and type(value) is int:
        return float(value)
    raise LocalError(f"{source}: {name} must be a {'whole ' if kind is int else ''}number or {AUTO!r}")


def render_config(config: Config) -> str:
    """Return the configuration as TOML, every key with its meaning."""
    lines = ["# Configuration of sapo-node. Every key is optional; environment and command line override this file."]
    for each in fields(Config):
        lines += ["", f"# {each.metadata['doc']}", f"{each.name} = {toml_value(getattr(config, each.name))}"]
    return "\n".join(lines) + "\n"
