"""Profiles of one model on one accelerator, read as operator tables, with a cache of the converted tables.

LLMServingSim's (llmservingsim.py) and Frontier's (frontier.py). Their content depends on the model
and its parallelism, so a conversion is cached under the digest of the files and of both.
"""
import hashlib
from pathlib import Path

import msgspec

from simulator.latency.operators import frontier, llmservingsim
from simulator.latency.operators.cache import converted, digest_of


def profile_files(folder: Path) -> dict[str, Path]:
    """Return the files of a profile by name; empty: the folder has no profile."""
    return llmservingsim.profile_files(folder) or frontier.profile_files(folder)


def read_profile(folder: Path, deployment, parameters, notes: list[str]) -> tuple[dict, str, dict[str, str]]:
    """Return columns by table, the digest of all files, and of each file by path.

    All three are empty without a profile.

    parameters : OperatorsParameters
    notes : receives a note if a cached conversion was damaged and is made again.

    Raises
    ------
    InputErrors
        A file cannot be used, or the profile is of another model or degree of parallelism.
    """
    is_graph, cache_directory = parameters.cuda_graph, parameters.cache_directory
    files = profile_files(folder)
    if not files:
        return {}, "", {}
    opened = {str(path): digest_of(path, cache_directory) for path in files.values()}
    digest = _digest(*(f"{name} {opened[str(path)]}" for name, path in sorted(files.items())))
    site = msgspec.json.encode([deployment.model, deployment.parallelism, is_graph, folder.name]).decode()

    def flat():
        tables = (llmservingsim.read_profile(files, deployment) if llmservingsim.profile_files(folder) else
                  frontier.read_profile(files, deployment, is_graph))
        return {f"{table}.{name}": values for table, columns in tables.items() for name, values in columns.items()}

    tables = {}
    for name, values in converted(_digest(digest, site), cache_directory, flat, notes).items():
        table, _, column = name.rpartition(".")
        tables.setdefault(table, {})[column] = values
    return tables, digest, opened


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
