"""Reads settings from environment variables: the key `max_tokens` of the configuration is SAPO_NODE_MAX_TOKENS.

A list is written with commas between its values. The empty text is the empty list.
"""

import difflib
import re
from collections.abc import Mapping
from typing import Any

from sapo_node.sampling.mix import AUTO
from sapo_node.storage.keys import PASSPHRASE_FILE_VARIABLE, PASSPHRASE_VARIABLE
from sapo_protocol import LocalError

PREFIX = "SAPO_NODE_"
FILE_VARIABLE = "SAPO_NODE_CONFIG"
"""The path of the configuration file, for a command without --config."""
_OTHERS = frozenset({FILE_VARIABLE, PASSPHRASE_VARIABLE, PASSPHRASE_FILE_VARIABLE, "SAPO_NODE_API_KEY"})
"""Variables that are no key of the configuration."""
_KUBERNETES = re.compile(r"SAPO_NODE_(SERVICE|PORT)(_.*)?")
"""Variables that Kubernetes sets in each container when a service is called sapo-node."""
_SWITCH = {"true": True, "1": True, "false": False, "0": False}


def variable_of(key: str) -> str:
    """Return the name of the variable for a key of the configuration."""
    return PREFIX + key.upper()


def settings_of(environ: Mapping[str, str], kinds: Mapping[str, type], auto: frozenset[str]) -> dict[str, Any]:
    """Return the values of the variables by key. `kinds` gives the type of each key, and `auto` the keys that may be
    AUTO.

    Raises LocalError for an unknown variable, or for a value of another type.
    """
    keys = {variable_of(key): key for key in kinds}
    found = {}
    for name, text in sorted(environ.items()):
        if not name.startswith(PREFIX) or name in _OTHERS or _KUBERNETES.fullmatch(name):
            continue
        if name not in keys:
            close = difflib.get_close_matches(name, keys, 1)
            raise LocalError(f"unknown variable {name}; {f'did you mean {close[0]}?' if close else 'unset it'}")
        key = keys[name]
        found[key] = AUTO if text == AUTO and key in auto else _value(name, text, kinds[key])
    return found


def _value(name: str, text: str, kind: type) -> Any:
    if kind is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if kind is bool:
        if text.lower() not in _SWITCH:
            raise LocalError(f"{name} is {text!r}; give true or false")
        return _SWITCH[text.lower()]
    try:
        return kind(text)
    except ValueError as error:
        raise LocalError(f"{name} is {text!r}; give a {'whole ' if kind is int else ''}number") from error
