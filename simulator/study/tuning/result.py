"""The result of a simulated candidate."""
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from simulator.errors import InputErrors, did_you_mean
from simulator.study.capacity.bounds import check_keys
from simulator.study.statistics.intervals import Estimate
from simulator.study.sweep.trial import Finished
from simulator.study.telling.said import Said
from simulator.study.tuning.candidates import Candidate
from simulator.study.tuning.objectives import estimates_of, numbers_of
from simulator.study.tuning.tune_table import Question

FEASIBLE, MISSED, ELIMINATED = "feasible", "infeasible", "eliminated"


class CandidateResult(NamedTuple):
    """The result of a candidate.

    status : "feasible", "infeasible", "eliminated" by a race, or the status of a failed run.
    why : reason if not feasible, else empty.
    values : of the objectives, with half-widths. margin : least room to the bounds, relative; NaN: not known.
    assignment : of the runs, with the rate that was found. num_requests : of each run; None: the experiment's.
    ends : its runs, one for each seed. rate : that was found; None: none was searched.
    said : the remarks of all runs of a search for a rate; None: none was searched.
    """

    candidate: Candidate
    status: str
    why: str = ""
    values: tuple[Estimate, ...] = ()
    margin: float = math.nan
    assignment: Mapping[str, Any] | None = None
    num_requests: int | None = None
    ends: tuple[Finished, ...] = ()
    rate: float | None = None
    notes: tuple[str, ...] = ()
    said: Said | None = None


class Stopped(Exception):
    """The study was stopped: no further run is started."""


class Trier(Protocol):
    """Tries candidates.

    said : the remarks of its runs.
    """

    said: Said

    def try_all(self, candidates: Iterable[Candidate], num_requests: int | None = None) -> list[CandidateResult]:
        """Return the results of candidates, in their order.

        num_requests : of each run; None: the experiment's.
        """


def valued(question: Question, result: CandidateResult) -> CandidateResult:
    """Return the result with its objectives; infeasible where a value is missing."""
    numbers = [numbers_of(end, result.candidate.experiment, result.rate) for end in result.ends]
    values = estimates_of(question.objectives, numbers, list(result.ends), question.settings.statistics.confidence)
    missing = [each.key for each, value in zip(question.objectives, values, strict=True) if math.isnan(value.mean)]
    result = result._replace(values=values)
    return result._replace(status=MISSED, why=f"{missing[0]}: there is nothing to measure") if missing else result


def check_objectives(question: Question, end: Finished) -> None:
    """Refuse objectives and bounds that are not numbers of a run.

    Raises
    ------
    InputErrors
        Every such key with the nearest existing key.
    """
    place = f"{question.study.file}: study"
    faults: list[str] = []
    numbers = numbers_of(end, question.study.base)
    faults += [f'{place}.objectives: a run has no number "{each.key}"{did_you_mean(each.key, numbers)}'
               for each in question.objectives if each.key not in numbers]
    try:
        check_keys(question.bounds, end.summary, f"{place}.slo")
    except InputErrors as errors:
        faults += errors.faults
    if faults:
        raise InputErrors(faults)
