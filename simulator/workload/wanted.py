"""What an experiment wants of a workload besides its parameters."""
from collections.abc import Callable
from typing import NamedTuple


class Wanted(NamedTuple):
    """What `columns` of a type of workload is asked for.

    arrivals : times at which requests come; else what ended lets them come, and `arrival_ns` may all be 0.
    num_requests : requests, or sessions, to be drawn for stages, and where nothing but a duration bounds a closed loop;
        the engine asks again, for more, if they do not suffice.
    longest_text : returns max_model_len; None: it does not matter.
    """

    arrivals: bool = True
    num_requests: int = 0
    longest_text: Callable[[], int] | None = None


WANTED = Wanted()
