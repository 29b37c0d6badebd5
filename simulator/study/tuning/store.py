"""Where the runs of a tuning study are kept: segments as those of a sweep, so that it goes on where it stopped.

A directory holds runs that were looked at in one way: warm-up, metrics and confidence are no part of a run's identity.
"""
import json
import os
from collections.abc import Callable
from pathlib import Path

from simulator.errors import InputErrors, OutputError
from simulator.results.directory import PICTURES, REPORT
from simulator.study.sweep.kept import keep
from simulator.study.sweep.laboratory import Laboratory
from simulator.study.sweep.names import FRONT, LOOK, PROVENANCE, RANKING, STUDY, TUNE, WINNERS
from simulator.study.sweep.segments import FOLDER, checked, read_all
from simulator.study.sweep.trial import DONE, REFUSED, TIMEOUT, Finished
from simulator.study.tuning.table import Question

SUMMARY = TUNE
OWN = {LOOK, FOLDER, RANKING, FRONT, SUMMARY, WINNERS, STUDY, PROVENANCE, REPORT, PICTURES}
KNOWN = (DONE, REFUSED, TIMEOUT)        # ends of runs that are not begun anew; what failed is


def opened(question: Question, directory: Path, num_processes: int, stop: Callable[[], bool]) -> Laboratory:
    """Return a laboratory that knows what is there, and keeps there what it runs.

    Raises
    ------
    InputErrors
        The directory holds something else, runs that were looked at in another way, or damaged segments.
    """
    rules = question.settings.statistics
    look = {"warmup": question.study.warmup, "metrics": sorted(rules.metrics), "confidence": rules.confidence,
            "min_tail": rules.min_tail}
    _settle(directory, json.dumps(look, indent=2) + "\n")
    keep(question.study, directory)
    return Laboratory(question.study, directory, num_processes, known_in(directory), stop=stop)


def known_in(directory: Path) -> dict[str, Finished]:
    """Return the runs that a directory holds and that are not begun anew, by id.

    Raises
    ------
    InputErrors
        Damaged segments, runs that came out differently.
    """
    stored = checked(read_all(directory))
    if stored.differing:
        raise InputErrors(stored.faults)
    return {id: end for id, end in stored.finished.items() if end.status in KNOWN}


def _settle(directory: Path, look: str) -> None:
    path = directory / LOOK
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if path.exists():
            if path.read_text(encoding="utf-8") != look:
                raise InputErrors([f"{directory}: holds runs that were looked at for other objectives or bounds, or "
                                   "with other [study.statistics]; --out chooses another directory"])
            return
        if strangers := sorted(each.name for each in directory.iterdir() if each.name not in OWN):
            raise InputErrors([f"{directory}: holds something else than a tuning study ({strangers[0]}); --out chooses "
                               "another directory"])
        write(path, look)
    except OSError as error:
        raise OutputError(directory, error) from error


def write(path: Path, text: str) -> None:
    """Write a file under a temporary name, and rename it.

    Raises
    ------
    OutputError
        It cannot be written.
    """
    staged = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        staged.write_text(text, encoding="utf-8", newline="\n")
        os.replace(staged, path)
    except OSError as error:
        staged.unlink(missing_ok=True)
        raise OutputError(path, error) from error
