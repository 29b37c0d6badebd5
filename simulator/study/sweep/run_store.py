"""The store of a search's runs: segments like those of a sweep, so that it resumes.

The runs of a directory are summarized with one warm-up, set of metrics and confidence: these are no part of a run's
identity.
"""
import json
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from simulator.errors import InputErrors, OutputError
from simulator.results.directory import PICTURES, REPORT
from simulator.study.sweep.manifest import keep
from simulator.study.sweep.names import LOOK, PROVENANCE, STUDY
from simulator.study.sweep.segments import FOLDER, checked, read_all
from simulator.study.sweep.study_file import Study
from simulator.study.sweep.trial import Finished
from simulator.study.sweep.writing import write

OF_ALL = {LOOK, FOLDER, STUDY, PROVENANCE, REPORT, PICTURES}


class Kind(NamedTuple):
    """One kind of search.

    name : in sentences. asks : noun for its objectives, in sentences. files : names of its own files. kept : statuses
    of runs that are not run again.
    """

    name: str
    asks: str
    files: Collection[str]
    kept: Collection[str]


def known_in(directory: Path, kind: Kind) -> dict[str, Finished]:
    """Return the stored runs of a directory that are not run again, by id.

    Raises
    ------
    InputErrors
        Damaged segments, runs with two different results.
    """
    stored = checked(read_all(directory))
    if stored.differing:
        raise InputErrors(stored.faults)
    return {id: end for id, end in stored.finished.items() if end.status in kind.kept}


def settle(directory: Path, kind: Kind, study: Study, metrics: Collection[str]) -> None:
    """Make the directory of a search, or check that its runs were summarized alike.

    Raises
    ------
    InputErrors
        It is the directory of another search, or holds something else.
    OutputError
        A file cannot be written.
    """
    rules = study.settings.statistics
    look = {"warmup": study.warmup, "metrics": sorted(metrics), "confidence": rules.confidence,
            "min_tail": rules.min_tail} | ({"model_confidence": study.risk.confidence} if study.risk else {})
    look = json.dumps(look, indent=2) + "\n"
    path, elsewhere = directory / LOOK, "--out chooses another directory"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if path.exists():
            if path.read_text(encoding="utf-8") != look:
                raise InputErrors([f"{directory}: holds runs that were looked at for other {kind.asks}, or with other "
                                   f"[study.statistics]; {elsewhere}"])
        elif strangers := sorted({each.name for each in directory.iterdir()} - OF_ALL - set(kind.files)):
            raise InputErrors([f"{directory}: holds something else than a {kind.name} study ({strangers[0]}); "
                               f"{elsewhere}"])
    except OSError as error:
        raise OutputError(directory, error) from error
    write(path, look)
    keep(study, directory)
