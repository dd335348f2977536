"""Downloads models of the Hugging Face hub into the local cache.

This downloads only a model that the operator named, and runs no code of it. A downloaded model never changes: the node
uses the copy in the cache until somebody removes it there.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from huggingface_hub.utils import filter_repo_objects

from sapo_protocol.errors import LocalError

_FILES = ["*.json", "*.jinja", "*.safetensors"]
_LEFT_OUT = ["*/*", "consolidated*"]
"""Subfolders hold other formats. A file `consolidated*` holds the same weights a second time."""


class HubError(LocalError):
    """A model of the hub cannot be downloaded. A restart does not help."""


def cached(name: str) -> Path | None:
    """Return the folder in the local cache that holds the model, or None if the cache lacks any part of it."""
    try:
        folder = snapshot_download(name, local_files_only=True, allow_patterns=_FILES, ignore_patterns=_LEFT_OUT)
    except (LocalEntryNotFoundError, HFValidationError):
        return None
    return Path(folder) if _is_whole(Path(folder)) else None


def fetch(name: str, tell: Callable[[str], None]) -> None:
    """Download the model into the local cache, unless the cache has it. `tell` gets one line before a download.

    Raises HubError, in one line, if that fails.
    """
    if cached(name):
        return
    with _reaching(name):
        listed = HfApi().model_info(name, files_metadata=True).siblings or []
        sizes = {file.rfilename: file.size or 0 for file in listed}
        wanted = list(filter_repo_objects(sizes, allow_patterns=_FILES, ignore_patterns=_LEFT_OUT))
        if not any(file.endswith(".safetensors") for file in wanted):
            raise HubError(f"{name} has no weights in the safetensors format; give another model")
        size = sum(sizes[file] for file in wanted)
        tell(f"downloading {name} ({size / 1e9:.2f} GB) from {constants.ENDPOINT} into {constants.HF_HUB_CACHE}")
        snapshot_download(name, allow_patterns=_FILES, ignore_patterns=_LEFT_OUT)


@contextmanager
def _reaching(name: str) -> Iterator[None]:
    try:
        yield
    except GatedRepoError as error:
        raise HubError(
            f"{name} is gated: accept its terms at {constants.ENDPOINT}/{name}, then log in with `hf auth login`"
        ) from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise HubError(
            f"there is no folder {name}, and the hub has no such model or hides it; check the name, or log in with "
            "`hf auth login`"
        ) from error
    except HfHubHTTPError as error:
        raise HubError(f"the hub did not give {name}: {_line(error)}; try again later") from error
    except (HTTPError, OSError) as error:
        raise HubError(
            f"there is no folder {name}, and it cannot be downloaded ({_line(error)}); check the network and the free "
            f"space in {constants.HF_HUB_CACHE}"
        ) from error


def _is_whole(folder: Path) -> bool:
    """Return whether the folder has all weights. It lacks some if a download was interrupted."""
    index = folder / "model.safetensors.index.json"
    try:
        named = json.loads(index.read_text())["weight_map"].values() if index.exists() else ["model.safetensors"]
        parts = {str(part) for part in named}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False
    return all((folder / part).is_file() for part in (*parts, "config.json"))


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
