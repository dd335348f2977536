"""The help of a command with many options: its options in sections, with their defaults."""

from typing import Any

import click

from sapo_node.app.config import Config

_SECTIONS = {
    "Model": (
        *("model", "lora", "lora_layers", "dtype", "examples", "thinking", "max_tokens", "device"),
        *("gradient_checkpointing", "learning_rate", "decay_rounds", "train", "feed", "generate", "no_probe"),
    ),
    "Peers": ("external", "bootstrap", "mdns", "no_sandbox", "archive"),
    "Network": ("listen", "announce", "dashboard"),
    "Tasks": ("swarm", "local", "rounds", "prompts"),
    "Output": ("log_to", "json_output"),
}
"""The sections by the names of the parameters. The other options stand in the section FIRST."""
_FIRST = "Key, state and configuration"
_UNSET = {
    "config_file": "the file that SAPO_NODE_CONFIG names, if any",
    "passphrase": "none",
    "passphrase_file": "none",
    "train": "off",
    "rounds": "no end",
    "json_output": "off",
    "force": "off",
    "no_probe": "off",
}
"""The defaults that the configuration does not have under the name of the parameter."""


class SectionedCommand(click.Command):
    """A command whose help shows its options in sections. An option without a default of its own has that of the
    configuration.
    """

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section."""
        rows: dict[str, list[tuple[str, str]]] = {name: [] for name in (_FIRST, *_SECTIONS)}
        for param in self.get_params(ctx):
            if record := param.get_help_record(ctx):
                rows[_section_of(param)].append(_with_default(param, record))
        for name, records in rows.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


def _section_of(param: click.Parameter) -> str:
    return next((name for name, params in _SECTIONS.items() if param.name in params), _FIRST)


def default_of(option: click.Option) -> str:
    """Return the default of an option as the help shows it; empty if there is none to show."""
    name = option.name or ""
    if "[default: " in (option.help or ""):
        return (option.help or "").partition("[default: ")[2].rstrip("]")
    if option.show_default:
        return str(option.default)
    value: Any = _UNSET.get(name, getattr(Config(), name, ""))
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value) if not isinstance(value, tuple) else ", ".join(value) or "none"


def _with_default(param: click.Parameter, record: tuple[str, str]) -> tuple[str, str]:
    names, text = record
    if "[default: " in text or not isinstance(param, click.Option) or not (shown := default_of(param)):
        return record
    return names, f"{text}  [default: {shown}]"
