"""Writes the model in a GGUF file as a Hugging Face folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sapo_node.learner.gguf.architecture import describe
from sapo_node.learner.gguf.reader import GgufError, read_header
from sapo_node.learner.gguf.tokenizer import make_tokenizer
from sapo_node.learner.gguf.weights import write_weights


def write_folder(file: Path, folder: Path) -> None:
    """Write settings, tokenizer, chat template and weights to `folder`, which must exist.

    Raises GgufError for a file that cannot be converted exactly, and OSError if the folder cannot be written.
    """
    header = read_header(file)
    described = describe(header)
    tokenizer, settings = make_tokenizer(header)
    room = described.config["vocab_size"]
    if tokenizer.get_vocab_size() > room:
        raise GgufError(f"its tokenizer has {tokenizer.get_vocab_size()} tokens, and its model has {room}")
    _write_json(folder / "config.json", described.config)
    _write_json(folder / "tokenizer_config.json", settings)
    tokenizer.save(str(folder / "tokenizer.json"))
    if template := header.get("tokenizer.chat_template", str):
        (folder / "chat_template.jinja").write_text(template, "utf-8")
    write_weights(header, described.names, described.heads, folder / "model.safetensors")


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", "utf-8")
