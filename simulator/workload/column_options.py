"""Requests of an experiment to its workload, besides the workload's parameters."""
from collections.abc import Callable
from typing import NamedTuple

FIRST_GUESS = 64                # plays for each slot of a load that only its end bounds

class ColumnOptions(NamedTuple):
    """Arguments of a workload type's `columns`.

    arrivals : arrival times are needed; else the end of other requests releases requests, and `arrival_ns` may be 0.
    num_requests : number of requests, or sessions, for stages, and for slots of [workload.load] that only a duration
        bounds.
    longest_text : returns max_model_len; None: it does not matter.
    guess : requests to be drawn for each slot of a client's own closed loop that only its end bounds. The engine asks
        again, for more, if they do not suffice.
    has_ceiling : requests may wait at the client, because of [workload.load] max_in_flight.
    """

    arrivals: bool = True
    num_requests: int = 0
    longest_text: Callable[[], int] | None = None
    guess: int = FIRST_GUESS
    has_ceiling: bool = False


DEFAULT_OPTIONS = ColumnOptions()
