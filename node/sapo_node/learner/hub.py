"""Downloads models of the Hugging Face hub into the local cache.

This downloads only a model that the operator named, and runs no code of it. A downloaded model never changes: the node
uses the copy in the cache until somebody removes it there.
"""

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
from sapo_protocol.files import NoSuchFile, read_json
from sapo_protocol.printable import line_of

_FILES = ["*.json", "*.jinja", "*.safetensors"]
MAX_INDEX_BYTES = 16 * 2**20
"""Bytes of an index of weights, at most. The largest in wide use has 9 MB."""
ODD_REPLY = (ValueError, TypeError, KeyError, AttributeError, AssertionError, RecursionError)
"""Errors of huggingface_hub if a reply with status 200 is not that of a hub: it does not check what it reads."""
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
        raise HubError(f"the hub did not give {name}: {line_of(error)}; try again later") from error
    except (HTTPError, OSError) as error:
        raise HubError(
            f"there is no folder {name}, and it cannot be downloaded ({line_of(error)}); check the network and the "
            f"free space in {constants.HF_HUB_CACHE}"
        ) from error
    except ODD_REPLY as error:
        raise HubError(
            f"{name} cannot be downloaded: what answers at {constants.ENDPOINT} is no hub ({line_of(error)}); check "
            "HF_ENDPOINT, and whether the network asks for a login"
        ) from error


def _is_whole(folder: Path) -> bool:
    """Return whether the folder has all weights. It lacks some if a download was interrupted."""
    index = folder / "model.safetensors.index.json"
    try:
        named = read_json(index, MAX_INDEX_BYTES, "index of weights")["weight_map"].values()
        parts = {str(part) for part in named}
    except NoSuchFile:
        parts = {"model.safetensors"}
    except (LocalError, KeyError, TypeError, AttributeError):
        return False
    return all((folder / part).is_file() for part in (*parts, "config.json"))
