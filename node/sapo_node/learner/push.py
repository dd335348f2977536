"""Uploads an exported folder to the Hugging Face hub, as a private repository of the operator."""

from pathlib import Path
from typing import Literal

from huggingface_hub import HfApi, constants
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, HTTPError, OfflineModeIsEnabled

from sapo_node.learner.hub import HubError

_NOT_LOGGED_IN = frozenset({401, 403})
"""HTTP status codes."""


def push(folder: Path, name: str, *, message: str, kind: Literal["model", "dataset"] = "model") -> str:
    """Upload the folder to the repository `name`, which the hub makes private if it is new. Return its address.

    `message` is that of the commit. Raises HubError, in one line, if that fails. The folder stays as it is.
    """
    repo_type = "" if kind == "model" else f" --repo-type {kind}"
    again = f"the folder {folder} is complete: `hf upload {name} {folder}{repo_type}` sends it later"
    api = HfApi()
    try:
        address = api.create_repo(name, repo_type=kind, private=True, exist_ok=True)
        api.upload_folder(repo_id=name, repo_type=kind, folder_path=folder, commit_message=message)
    except HFValidationError as error:
        raise HubError(f"{name} is not the name of a repository; give owner/name. {again}") from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        remedy = "; log in with `hf auth login`" if status in _NOT_LOGGED_IN else ""
        raise HubError(f"the hub refused {name} (HTTP {status}){remedy}. {again}") from error
    except (HTTPError, OfflineModeIsEnabled, OSError) as error:
        raise HubError(f"the hub at {constants.ENDPOINT} cannot be reached; check the network. {again}") from error
    return str(address)
