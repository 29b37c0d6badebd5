"""The flags of an engine's version: engines/ENGINE-VERSION.toml, which tools/engine_flags.py writes."""
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import tomli

from simulator.domain.facts import shipped
from simulator.domain.vllm_versions import VERSIONS
from simulator.errors import InputErrors

ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}


class FlagTable(NamedTuple):
    """One version's flags.

    rows : key -> kind, names, off (names that turn it off), nargs, choices, keys (of an object), default, optional
        (None is a value beside a default).
    """

    engine: str
    version: str
    release: str
    rows: dict[str, dict[str, Any]]

    def defaults(self) -> dict[str, Any]:
        """Return the parser's default of each flag that has one."""
        return {key: row["default"] for key, row in self.rows.items() if "default" in row}

    def names(self) -> dict[str, str]:
        """Return {flag: key}."""
        return {name: key for key, row in self.rows.items() for name in (*row["names"], *row.get("off", ()))}


@cache
def versions(engine: str) -> tuple[str, ...]:
    """Return the versions of an engine with a table, oldest first."""
    found = [path.stem.partition("-")[2] for path in Path(shipped("engines")).glob(f"{engine}-*.toml")]
    return tuple(sorted(found, key=lambda version: [int(part) for part in version.split(".")]))


@cache
def flag_table(engine: str, version: str) -> FlagTable:
    """Return the table of a version.

    Raises
    ------
    InputErrors
        There is none; the versions that have one are named.
    """
    path = shipped("engines") / f"{engine}-{version}.toml"
    if not path.is_file():
        raise InputErrors([f"{ENGINES.get(engine, engine)} {version}: its flags are not known here; known versions: "
                           f"{', '.join(versions(engine))}; --version nearest takes the nearest"])
    data = tomli.loads(path.read_text(encoding="utf-8"))
    return FlagTable(data["engine"], data["version"], data["release"], data["flags"])


def version_named(engine: str, text: str | None) -> tuple[str, str]:
    """Return the version that a text asks for, and why; None: the newest.

    text : 0.33, v0.33.0 or the like.

    Raises
    ------
    InputErrors
        A version that has no table.
    """
    known = versions(engine)
    if text is None:
        return known[-1], f"the newest of {ENGINES[engine]} that is modelled"
    number = text.removeprefix("v")
    for version in known:
        if number == version or number.startswith(f"{version}."):
            return version, f"{ENGINES[engine]} {number}"
    unknown = "not modelled; versions that are"
    if engine == "vllm" and any(number == row or number.startswith(f"{row}.") for row in VERSIONS):
        unknown = "its scheduler is modelled (engine.vllm_version), its flags are not; versions with flags"
    raise InputErrors([f"{ENGINES[engine]} {number}: {unknown}: {', '.join(known)}; "
                       "--version nearest takes the nearest of them"])


def nearest_version(engine: str, text: str | None) -> str:
    """Return the modelled version nearest to a text; the newest where it names none."""
    return nearest_among(versions(engine), text)


def nearest_among(known: Iterable[str], text: str | None) -> str:
    """Return the version nearest to a text; the newest where it names none."""
    numbers = {version: [int(part) for part in version.split(".")] for version in known}
    parts = [int(part) for part in (text or "").removeprefix("v").split(".") if part.isdigit()]
    if not parts:
        return max(numbers, key=numbers.get)
    return min(numbers, key=lambda version: [abs(mine - asked) for mine, asked in zip(numbers[version], parts)])
