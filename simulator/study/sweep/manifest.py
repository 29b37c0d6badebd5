"""Files that describe a study in its directory: the study as it was given, and the program that ran it."""
import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

import simulator
from simulator.config.load import plain, plain_as_given, plain_value
from simulator.results.provenance import PACKAGE, git_revision
from simulator.study.sweep.names import PROVENANCE, STUDY
from simulator.study.sweep.sources import hash_of_sources
from simulator.study.sweep.study_file import Study
from simulator.study.sweep.writing import write

SCHEMA = 1


def keep(study: Study, directory: Path) -> None:
    """Write both files; files with equal content are left as they are.

    Raises
    ------
    OutputError
        A file cannot be written.
    """
    write(directory / STUDY, text_of(study))
    keep_program(directory)


def text_of(study: Study) -> str:
    """Return an equivalent study file, with base and overrides in it.

    The axes keep their order, which sets the order of points: a table among them, {from, to, steps}, stays on its line.
    """
    table = tomli_w.dumps(plain_value(dict(study.of_points or {})) | plain_as_given(study.base))
    asked = _plain_study(study)
    lines = [f"{_key(key)} = {_inline(value)}" for key, value in asked.items() if not isinstance(value, dict)]
    parts = [table, "\n".join(["[study]", *lines, ""])]
    for name, inner in asked.items():
        if isinstance(inner, dict):
            lines = [f"{_key(key)} = {_inline(value)}" for key, value in inner.items()]
            parts.append("\n".join([f"[study.{_key(name)}]", *lines, ""]))
    return "\n".join(parts)


def keep_program(directory: Path) -> None:
    """Write version, revision and sources of the program that ran a study.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    program = {"schema": SCHEMA, "version": simulator.__version__, "git_revision": git_revision(PACKAGE.parent),
               "sources": hash_of_sources(), "python": platform.python_version(), "numpy": np.__version__}
    write(directory / PROVENANCE, json.dumps(program, indent=2) + "\n")


def _plain_study(study: Study) -> dict[str, Any]:
    table = plain(study.settings)
    table = table | {"seeds": list(study.seeds)} if table.pop("seeds") != 1 else table      # 1: the experiment's
    return {key: value for key, value in table.items() if value not in ((), [], {}, None)}


def _key(name: str) -> str:
    return tomli_w.dumps({name: 0}).removesuffix(" = 0\n")


def _inline(value: Any) -> str:
    """Return a value as TOML without sections of its own: the writer puts tables in an array inline, in their order."""
    text = tomli_w.dumps({"x": [value]})
    return text.removeprefix("x = [").removesuffix("]\n").strip().removesuffix(",")
