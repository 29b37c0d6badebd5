"""The kind of a results directory, found by its files."""
import json
from pathlib import Path
from typing import Any

import tomli

from simulator.errors import InputErrors
from simulator.study.sweep import names
from simulator.study.sweep.names import LOOK, PROVENANCE, STUDY

RUN, SWEEP, CAPACITY, TUNE, CALIBRATE = "run", "sweep", "capacity", "tune", "calibrate"
WORDS = {RUN: "a run", SWEEP: "a sweep", CAPACITY: "a capacity search", TUNE: "a tuning study",
         CALIBRATE: "a calibration"}
MARKS = ((names.CALIBRATION, CALIBRATE), (names.CAPACITY, CAPACITY), (names.TUNE, TUNE), (names.PLAN, SWEEP),
         (names.EVALUATIONS, CALIBRATE))


def kind_of(directory: Path) -> str:
    """Return the kind of a directory; RUN where no file shows a study.

    A stopped search has no answer yet: the kind is that of its study file.

    Raises
    ------
    InputErrors
        It is a search without a study file.
    """
    for name, kind in MARKS:
        if (directory / name).is_file():
            return kind
    if (directory / LOOK).is_file():
        asked = toml_of(directory / STUDY).get("study", {}).get("kind") if (directory / STUDY).is_file() else None
        if asked in (CAPACITY, TUNE):
            return asked
        raise InputErrors([f"{directory}: holds runs of a search without its answer, and no {STUDY} that says what was "
                           "asked; run `simulator capacity` or `simulator tune` again to go on"])
    return RUN


def toml_of(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file; empty if there is no such file.

    Raises
    ------
    InputErrors
        It cannot be read; also in the functions below.
    """
    try:
        return tomli.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise InputErrors([f"{path}: cannot be read: {error}"]) from error


def json_of(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file; empty if there is no such file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise InputErrors([f"{path}: cannot be read: {error}"]) from error
    if not isinstance(found, dict):
        raise InputErrors([f"{path}: expected an object"])
    return found


def origin_of(directory: Path) -> list[tuple[str, str]]:
    """Return the program that made a study, from its provenance."""
    found = json_of(directory / PROVENANCE)
    return [(name.replace("_", " "), str(found[name])) for name in
            ("version", "git_revision", "sources", "python", "numpy") if found.get(name) is not None]


def files_of(directory: Path) -> tuple[tuple[str, str], ...]:
    """Return the study with every default, to be folded."""
    path = directory / STUDY
    if not path.is_file():
        return ()
    return (("Study, with every default", path.read_text(encoding="utf-8")),)


def check_pair(directory: Path, against: Path) -> None:
    """Refuse to compare directories of two kinds.

    Raises
    ------
    InputErrors
        The kinds differ; the message names both.
    """
    own, other = kind_of(directory), kind_of(against)
    if own != other:
        raise InputErrors([f"--against: {against} holds {WORDS[other]}, {directory} {WORDS[own]}; expected two of a "
                           "kind"])
