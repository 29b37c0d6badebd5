"""The object that tries candidates under the load of a study."""
from collections.abc import Callable
from pathlib import Path

from simulator.study.sweep.laboratory import Laboratory
from simulator.study.tuning.at_load import AtLoad
from simulator.study.tuning.rates import AtCapacity
from simulator.study.tuning.result import CandidateResult, Trier
from simulator.study.tuning.tune_table import CAPACITY, Question


def trier_of(question: Question, laboratory: Laboratory, directory: Path, stop: Callable[[], bool],
             tell: Callable[[CandidateResult], None]) -> Trier:
    """Return the object that tries candidates.

    directory : of the store. stop : polled; True: no further run is started. tell : called with each candidate tried.
    """
    if question.settings.load == CAPACITY:
        return AtCapacity(question, laboratory, directory, stop, tell)
    return AtLoad(question, laboratory, tell)
