"""Uploads an exported folder to the Hugging Face hub, as a private repository of the operator."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from huggingface_hub import HfApi, constants
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, HTTPError, OfflineModeIsEnabled

from sapo_node.learner.hub import ODD_REPLY, HubError

_NOT_LOGGED_IN = frozenset({401, 403})
"""HTTP status codes."""


def push(
    folder: Path,
    name: str,
    *,
    message: str,
    kind: Literal["model", "dataset"] = "model",
    only: Sequence[str] | None = None,
) -> str:
    """Upload the folder to the repository `name`, which the hub makes private if it is new. Return its address.

    `message` is that of the commit. `only` names the files to upload, or is None for all. Raises HubError, in one line,
    if that fails. The folder stays as it is.
    """
    repo_type = "" if kind == "model" else f" --repo-type {kind}"
    again = f"the folder {folder} is complete: `hf upload {name} {folder}{repo_type}` sends it later"
    api = HfApi()
    try:
        address = api.create_repo(name, repo_type=kind, private=True, exist_ok=True)
        files = None if only is None else list(only)
        api.upload_folder(
            repo_id=name, repo_type=kind, folder_path=folder, commit_message=message, allow_patterns=files
        )
    except HFValidationError as error:
        raise HubError(f"{name} is not the name of a repository; give owner/name. {again}") from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        remedy = "; log in with `hf auth login`" if status in _NOT_LOGGED_IN else ""
        raise HubError(f"the hub refused {name} (HTTP {status}){remedy}. {again}") from error
    except (HTTPError, OfflineModeIsEnabled, OSError) as error:
        raise HubError(f"the hub at {constants.ENDPOINT} cannot be reached; check the network. {again}") from error
    except ODD_REPLY as error:
        raise HubError(
            f"what answers at {constants.ENDPOINT} is no hub; check HF_ENDPOINT, and whether the network asks for a "
            f"login. {again}"
        ) from error
    return str(address)
