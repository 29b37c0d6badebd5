"""Where the runs of a search are kept: segments as those of a sweep, so that a search goes on where it stopped.

A directory holds runs that were looked at in one way: warm-up, metrics and confidence are no part of a run's identity.
"""
import json
import os
from pathlib import Path

from msgspec.structs import replace

from simulator.errors import InputErrors, OutputError
from simulator.results.directory import PICTURES, REPORT
from simulator.study.capacity.bounds import Bounds
from simulator.study.sweep.kept import keep
from simulator.study.sweep.laboratory import Laboratory
from simulator.study.sweep.names import CAPACITY, CURVE, LOOK, PROVENANCE, STUDY
from simulator.study.sweep.segments import FOLDER, checked, read_all
from simulator.study.sweep.study_file import Study
from simulator.study.sweep.trial import DONE, REFUSED

OWN = {LOOK, FOLDER, CAPACITY, CURVE, STUDY, PROVENANCE, REPORT, PICTURES}


def opened(study: Study, bounds: Bounds, directory: Path, num_processes: int) -> Laboratory:
    """Return a laboratory that knows what a directory holds, and keeps its runs there.

    Raises
    ------
    InputErrors
        The directory holds something else, runs that were looked at in another way, or damaged segments.
    """
    rules = study.settings.statistics
    look = {"warmup": study.warmup, "metrics": sorted(bounds.metrics), "confidence": rules.confidence,
            "min_tail": rules.min_tail}
    _settle(directory, json.dumps(look, indent=2) + "\n")
    keep(study, directory)
    stored = checked(read_all(directory))
    if stored.differing:
        raise InputErrors(stored.faults)
    known = {id: end for id, end in stored.finished.items() if end.status in (DONE, REFUSED)}
    return Laboratory(looking_at(study, bounds), directory, num_processes, known)


def looking_at(study: Study, bounds: Bounds) -> Study:
    """Return a study whose runs are looked at for their bounds."""
    statistics = replace(study.settings.statistics, metrics=bounds.metrics or ("ttft_ms.mean",))
    return study._replace(settings=replace(study.settings, statistics=statistics))


def _settle(directory: Path, look: str) -> None:
    path = directory / LOOK
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if path.exists():
            if path.read_text(encoding="utf-8") != look:
                raise InputErrors([f"{directory}: holds runs that were looked at for other bounds, or with other "
                                   "[study.statistics]; --out chooses another directory"])
            return
        if strangers := sorted(each.name for each in directory.iterdir() if each.name not in OWN):
            raise InputErrors([f"{directory}: holds something else than a capacity study ({strangers[0]}); --out "
                               "chooses another directory"])
        staged = path.with_name(f"{LOOK}.{os.getpid()}.partial")
        staged.write_text(look, encoding="utf-8", newline="\n")
        os.replace(staged, path)
    except OSError as error:
        raise OutputError(directory, error) from error
