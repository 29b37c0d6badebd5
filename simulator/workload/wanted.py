"""What an experiment wants of a workload besides its parameters."""
from collections.abc import Callable
from typing import NamedTuple

FIRST_GUESS = 64                # plays for each slot of a load that only its end bounds

class Wanted(NamedTuple):
    """What `columns` of a type of workload is asked for.

    arrivals : times at which requests come; else what ended lets them come, and `arrival_ns` may all be 0.
    num_requests : requests, or sessions, to be drawn for stages, and where nothing but a duration bounds the slots of
        [workload.load].
    longest_text : returns max_model_len; None: it does not matter.
    guess : requests to be drawn for each slot of a client's own closed loop that only its end bounds. The engine asks
        again, for more, if they do not suffice.
    has_ceiling : who comes may wait at the client, as [workload.load] max_in_flight says.
    """

    arrivals: bool = True
    num_requests: int = 0
    longest_text: Callable[[], int] | None = None
    guess: int = FIRST_GUESS
    has_ceiling: bool = False


WANTED = Wanted()
