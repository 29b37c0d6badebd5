"""The directory of a capacity search: its runs, summarized for its bounds."""
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from simulator.study.capacity.bounds import Bounds
from simulator.study.sweep.laboratory import Laboratory
from simulator.study.sweep.names import CAPACITY, CURVE
from simulator.study.sweep.run_store import Kind, known_in, settle
from simulator.study.sweep.study_file import Study
from simulator.study.sweep.trial import DONE, REFUSED

KIND = Kind("capacity", "bounds", {CAPACITY, CURVE}, {DONE, REFUSED})


def opened(study: Study, bounds: Bounds, directory: Path, num_processes: int,
           elsewhere: Callable[..., Any] | None = None) -> Laboratory:
    """Return a laboratory with the stored runs of a directory, which stores more.

    elsewhere : runs trials in place of processes of this machine, as `Laboratory` takes it.

    Raises
    ------
    InputErrors
        The directory holds something else, runs that were summarized differently, or damaged segments.
    """
    settle(directory, KIND, study, bounds.metrics)
    return Laboratory(looking_at(study, bounds), directory, num_processes, known_in(directory, KIND),
                      elsewhere=elsewhere)


def looking_at(study: Study, bounds: Bounds) -> Study:
    """Return a study with statistics for its bounds."""
    statistics = replace(study.settings.statistics, metrics=bounds.metrics or ("ttft_ms.mean",))
    return study._replace(settings=replace(study.settings, statistics=statistics))
