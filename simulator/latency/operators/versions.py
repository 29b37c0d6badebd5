"""Versions: of tables, which `[latency] table_version` chooses, and of engines, which decide what kernels serve."""
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from simulator.errors import InputErrors, KeyFault, did_you_mean
from simulator.latency.operators.files import version_numbers, version_of

NEWEST = "newest"
Version = Annotated[str, Meta(pattern=r"^\d+(\.\d+)*[0-9A-Za-z.+]*$")]
TableVersion = Annotated[str | dict[str, str], Meta(description=(
    'version of the tables, as their folders have it: "newest", which has usable rows; one version, e.g. "0.19.0", of '
    'all tables that have it, the others as newest; or a table of versions by table or family of tables, e.g. {moe = '
    '"0.19.0"}'))]


def is_vllm(parameters) -> bool:
    """Return whether vLLM's kernels are priced. parameters : OperatorsParameters."""
    return parameters.framework in (None, "vllm")


def is_before(parameters, release: str) -> bool:
    """Return whether the engine's version is known and older than a release."""
    version = parameters.engine_version
    return version is not None and version_numbers(version) < version_numbers(release)


def of_versions(files: dict[str, list[Path]], asked: str | dict[str, str]) -> tuple[dict[str, list[Path]], list[str]]:
    """Return the files of each table in the asked versions, and notes on others.

    files : the newest first.

    Raises
    ------
    InputErrors
        No table has a version; a table or family is not there, or lacks its version.
    """
    if asked == NEWEST:
        return files, []
    if isinstance(asked, str):
        chosen = {table: _with(paths, asked) or paths for table, paths in files.items()}
        if not any(_with(paths, asked) for paths in files.values()):
            raise InputErrors([_lacks("", asked, [path for paths in files.values() for path in paths])])
        lacking = sorted(table for table, paths in files.items() if not _with(paths, asked))
        return chosen, [f"table_version {asked}: not of {', '.join(lacking)}: the newest"] if lacking else []
    faults, chosen = [], dict(files)
    for name, version in asked.items():
        tables = [table for table, paths in files.items() if name == table or name in map(_family, paths)]
        if not tables:
            known = sorted({*files, *(_family(path) for paths in files.values() for path in paths)} - {""})
            faults.append(KeyFault(f"latency.table_version.{name}: no such table or family{did_you_mean(name, known)}"))
        found = {table: _with(files[table], version) for table in tables}
        if tables and not any(found.values()):
            faults.append(_lacks(f".{name}", version, [path for table in tables for path in files[table]]))
        chosen |= {table: paths for table, paths in found.items() if paths}
    if faults:
        raise InputErrors(faults)
    return chosen, []


def _family(path: Path) -> str:
    return path.parents[2].name if version_of(path) else ""


def _with(paths: list[Path], version: str) -> list[Path]:
    return [path for path in paths if version_of(path) == version]


def _lacks(key: str, version: str, paths: list[Path]) -> KeyFault:
    known = sorted({version_of(path) for path in paths} - {""}, key=version_numbers)
    return KeyFault(f'latency.table_version{key}: "{version}" is in no folder of these tables; found '
                    f"{', '.join(known) or 'no versions'}")
