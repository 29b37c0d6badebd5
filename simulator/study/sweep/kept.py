"""What a directory of a study says of itself: the study as it was asked, and the program that answers it."""
import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

import simulator
from simulator.config.load import plain, plain_value
from simulator.results.provenance import PACKAGE, git_revision
from simulator.study.sweep.names import PROVENANCE, STUDY
from simulator.study.sweep.sources import hash_of_sources
from simulator.study.sweep.study_file import Study
from simulator.study.sweep.writing import write

SCHEMA = 1


def keep(study: Study, directory: Path) -> None:
    """Write both files; those that say the same stay.

    Raises
    ------
    OutputError
        They cannot be written.
    """
    table = plain_value(dict(study.apart or {})) | plain(study.base) | {"study": _plain_study(study)}
    write(directory / STUDY, tomli_w.dumps(table))
    keep_program(directory)


def keep_program(directory: Path) -> None:
    """Write by which program a study was answered.

    Raises
    ------
    OutputError
        It cannot be written.
    """
    told = {"schema": SCHEMA, "version": simulator.__version__, "git_revision": git_revision(PACKAGE.parent),
            "sources": hash_of_sources(), "python": platform.python_version(), "numpy": np.__version__}
    write(directory / PROVENANCE, json.dumps(told, indent=2) + "\n")


def _plain_study(study: Study) -> dict[str, Any]:
    table = plain(study.settings) | {"seeds": list(study.seeds)}
    return {key: value for key, value in table.items() if value not in ((), [], {}, None)}
