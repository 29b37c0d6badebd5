"""The directory of a tuning study: stored runs, and its files."""
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simulator.study.sweep.laboratory import Laboratory
from simulator.study.sweep.names import FRONT, RANKING, TUNE, WINNERS
from simulator.study.sweep.run_store import Kind, known_in, settle
from simulator.study.sweep.trial import DONE, REFUSED, TIMEOUT
from simulator.study.tuning.tune_table import Question

KIND = Kind("tuning", "objectives or bounds", {RANKING, FRONT, TUNE, WINNERS}, {DONE, REFUSED, TIMEOUT})


def opened(question: Question, directory: Path, num_processes: int, stop: Callable[[], bool],
           elsewhere: Callable[..., Any] | None = None) -> Laboratory:
    """Return a laboratory with the stored runs, which stores those that it makes.

    elsewhere : runs trials in place of processes of this machine, as `Laboratory` takes it.

    Raises
    ------
    InputErrors
        The directory holds something else, runs that were summarized differently, or damaged segments.
    """
    settle(directory, KIND, question.study, question.settings.statistics.metrics)
    return Laboratory(question.study, directory, num_processes, known_in(directory, KIND), stop=stop,
                      elsewhere=elsewhere)
