"""What an experiment wants of a workload besides its parameters."""
from typing import NamedTuple


class Wanted(NamedTuple):
    """What `columns` of a type of workload is asked for.

    arrivals : times at which requests come; else what ended lets them come, and `arrival_ns` may all be 0.
    num_requests : to be drawn where nothing but a duration bounds a closed loop: the engine asks again, for more, if
        they do not suffice. Whoever draws gives the same requests first then.
    """

    arrivals: bool = True
    num_requests: int = 0


WANTED = Wanted()
