"""Results of a search for the best deployment."""
from typing import NamedTuple

from simulator.study.tuning.candidates import Dropped
from simulator.study.tuning.result import CandidateResult


class Findings(NamedTuple):
    """Results of a search.

    search : its name. results : of candidates with all requests. dropped : never run. eliminated : tried with fewer
    requests, or seeds, only. is_complete : all that could run were tried in full, or cannot win.
    """

    search: str
    results: list[CandidateResult]
    dropped: list[Dropped]
    eliminated: list[CandidateResult]
    is_complete: bool
