"""Models of the Hugging Face hub by their names. Nothing is fetched unless somebody named it; no code of it ever runs.

A name means what the local cache holds of it: once fetched, a model stays the same until it is removed there.
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
"""Folders hold other formats, and some repositories the same weights twice."""


class HubError(LocalError):
    """A model of the hub cannot be had. No restart helps."""


def cached(name: str) -> Path | None:
    """Return the folder in the local cache that holds the model, or None where it is not there as a whole."""
    try:
        folder = snapshot_download(name, local_files_only=True, allow_patterns=_FILES, ignore_patterns=_LEFT_OUT)
    except (LocalEntryNotFoundError, HFValidationError):
        return None
    return Path(folder) if _is_whole(Path(folder)) else None


def fetch(name: str, tell: Callable[[str], None]) -> None:
    """Download the model into the local cache, unless it is there; `tell` hears of it before.

    Raises HubError, in one line, where that cannot work.
    """
    if cached(name):
        return
    with _reaching(name):
        listed = HfApi().model_info(name, files_metadata=True).siblings or []
        sizes = {file.rfilename: file.size or 0 for file in listed}
        wanted = list(filter_repo_objects(sizes, allow_patterns=_FILES, ignore_patterns=_LEFT_OUT))
        if not any(file.endswith(".safetensors") for file in wanted):
            raise HubError(f"{name} has no weights in the safetensors format; take another model")
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
            f"there is no folder {name}, and it cannot be downloaded ({_line(error)}); look at the network and at the "
            f"space in {constants.HF_HUB_CACHE}"
        ) from error


def _is_whole(folder: Path) -> bool:
    """Whether all weights are there: a download may have been interrupted."""
    index = folder / "model.safetensors.index.json"
    try:
        named = json.loads(index.read_text())["weight_map"].values() if index.exists() else ["model.safetensors"]
        parts = {str(part) for part in named}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False
    return all((folder / part).is_file() for part in (*parts, "config.json"))


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
