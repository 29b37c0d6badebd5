"""Trials of candidates at a given load."""
import math
from collections.abc import Callable, Iterable

from simulator.study.capacity.prober import observation_of
from simulator.study.capacity.varied import RATE
from simulator.study.capacity.verdict import Rules, weigh
from simulator.study.sweep.laboratory import Laboratory
from simulator.study.sweep.trial import DONE, Finished
from simulator.study.tuning.candidates import Candidate
from simulator.study.tuning.result import FEASIBLE, MISSED, CandidateResult, Stopped, check_objectives, valued
from simulator.study.tuning.tune_table import Question


class AtLoad:
    """Tries candidates at the load of their experiments.

    said : the remarks of its runs.

    Parameters
    ----------
    tell : callback, called with each candidate that has been tried.
    """

    def __init__(self, question: Question, laboratory: Laboratory, tell: Callable[[CandidateResult], None]):
        self._question, self._laboratory, self._tell = question, laboratory, tell
        self.said = laboratory.said
        self._has_checked = False
        self._ranks_rates = any(each.key == "rate" for each in question.objectives)    # each candidate has its own

    def try_all(self, candidates: Iterable[Candidate], num_requests: int | None = None) -> list[CandidateResult]:
        """Return the results of candidates, in their order.

        Parameters
        ----------
        num_requests : of each run; None: the experiment's.

        Raises
        ------
        Stopped
            Some runs were not started.
        InputErrors
            An objective or a bound is no number of summary.json.
        """
        return self._found(candidates, len(self._question.study.seeds), num_requests, self._tell)

    def look(self, candidates: Iterable[Candidate], num_seeds: int) -> list[CandidateResult]:
        """Return the results of candidates on the first seeds, without progress.

        Runs that are known are not run again. Raises as `try_all` does.
        """
        return self._found(candidates, num_seeds, None, None)

    def _found(self, candidates: Iterable[Candidate], num_seeds: int, num_requests: int | None,
               tell: Callable[[CandidateResult], None] | None) -> list[CandidateResult]:
        """Return the results of candidates; a callback has had each, even if later runs are not started."""
        candidates = list(candidates)
        seeds = self._question.study.seeds[:num_seeds]
        trials = [[self._laboratory.trial(candidate.assignment, seed, replication, num_requests)
                   for replication, seed in enumerate(seeds)] for candidate in candidates]
        ended: dict[str, Finished] = {}
        for end in self._laboratory.run(trial for own in trials for trial in own):
            ended[end.id] = end
            self._check_keys(end)
        found = []
        for candidate, own in zip(candidates, trials, strict=True):
            if all(trial.id in ended for trial in own):
                found.append(self._judged(candidate, [ended[trial.id] for trial in own], num_requests))
                if tell is not None:
                    tell(found[-1])
        if len(found) < len(candidates):
            raise Stopped
        return found

    def _judged(self, candidate: Candidate, ends: list[Finished], num_requests: int | None) -> CandidateResult:
        """Return the result of a candidate from its runs at a given load."""
        result = CandidateResult(candidate, FEASIBLE, assignment=candidate.assignment, num_requests=num_requests,
                                 ends=tuple(ends), rate=candidate.assignment.get(RATE) if self._ranks_rates else None)
        if failed := next((end for end in ends if end.status != DONE), None):
            return result._replace(status=failed.status, why=failed.error or failed.status)
        result = valued(self._question, result)
        bounds = self._question.bounds
        if not bounds.bounds:
            return result
        rules = Rules(bounds, max_seeds=1, confidence=self._question.settings.statistics.confidence)
        is_endless = math.isinf(self._question.study.base.horizon_s)
        verdict = weigh(0.0, [observation_of(end, bounds, is_endless) for end in ends], rules)
        result = result._replace(margin=verdict.margin)
        return result if verdict.passes else result._replace(status=MISSED, why=verdict.sentence)

    def _check_keys(self, end: Finished) -> None:
        """Raise if an objective or bound is not a key of summary.json; checked on the first finished run."""
        if self._has_checked or end.status != DONE:
            return
        check_objectives(self._question, end)
        self._has_checked = True
