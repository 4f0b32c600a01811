"""Resolves a local path or a Hugging Face Hub id to a folder. The only module that uses the network.

A local path never uses the network. A hub id is downloaded by `huggingface_hub`, which uses HF_HOME, HF_HUB_OFFLINE and
HF_TOKEN. Only weights, settings and vocabularies are downloaded, never code, and pickles only where they are allowed.
"""

import os
import re
from pathlib import Path

from headway.checkpoints.header import PICKLES
from headway.errors import CheckpointError

DATA_ONLY = ["*.json", "*.safetensors", "*.txt", "*.model", "*.spm", "*.jinja"]
HUB_ID = re.compile(r"(?P<repository>\w[\w.-]*(?:/\w[\w.-]*)?)(?:@(?P<revision>\w[\w./-]*))?", re.ASCII)
TRUE_VALUES = {"1", "ON", "YES", "TRUE"}

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".txt", ".xlsx", ".parquet")  # files of data, not of a model


def resolve(name_or_path: str | os.PathLike[str], *, pickles: bool = False) -> Path:
    """The folder of a model: a local folder, a local file's folder, or a downloaded `owner/name@revision`; with its
    weights as pickles if there are no others and `pickles` allows it."""
    text = os.path.expanduser(os.fspath(name_or_path))
    if os.path.exists(text):
        path = Path(text)
        if path.suffix.lower() in TABLES and not (path.parent / "config.json").exists():
            raise CheckpointError(
                f"{text} is a data file, not a model; name the model first, and the data with --file: "
                f"headway run MODEL --file {text}"
            )
        return path if path.is_dir() else path.parent
    hub_id = HUB_ID.fullmatch(text)
    parent = os.path.dirname(text)
    if hub_id is not None and parent and os.path.isdir(parent):
        raise CheckpointError(f"{text}: no such folder")
    if isinstance(name_or_path, Path) or hub_id is None:
        raise CheckpointError(f"{text}: no such folder, and not a hub id of the form owner/name or owner/name@revision")
    folder = _download(hub_id["repository"], hub_id["revision"], DATA_ONLY)
    if pickles and not any(folder.glob("*.safetensors")):
        folder = _download(hub_id["repository"], hub_id["revision"], [PICKLES])
    return folder


def _download(repository: str, revision: str | None, patterns: list[str]) -> Path:
    from huggingface_hub import constants, errors, snapshot_download

    what = repository if revision is None else f"{repository}@{revision}"
    offline = constants.HF_HUB_OFFLINE or os.environ.get("HF_HUB_OFFLINE", "").upper() in TRUE_VALUES
    reason: str
    cause: Exception
    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=patterns, local_files_only=offline))
    except errors.GatedRepoError as error:
        reason, cause = "it is gated: accept its terms on the hub, then set HF_TOKEN to a token of yours", error
    except errors.RevisionNotFoundError as error:
        reason, cause = "the repository exists, but not that revision", error
    except errors.RepositoryNotFoundError as error:
        reason, cause = "not found on the hub (a private repository needs HF_TOKEN)", error
    except errors.LocalEntryNotFoundError as error:
        if offline:
            reason, cause = "the hub is offline (HF_HUB_OFFLINE is set) and the model is not in the cache", error
        else:
            reason = f"the hub cannot be reached and the model is not in the cache ({_first_line(error)})"
            cause = error
    except Exception as error:  # the hub's HTTP library has exceptions of its own
        reason, cause = f"the download failed: {_first_line(error)}", error
    raise CheckpointError(f"{what}: no such local folder; as a hub id, {reason}") from cause


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
