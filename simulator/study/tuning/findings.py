"""What came of a search."""
from typing import NamedTuple

from simulator.study.tuning.candidates import Dropped
from simulator.study.tuning.tried import Tried


class Findings(NamedTuple):
    """What came of a search.

    search : which it was. tried : with all requests. dropped : never run. eliminated : with fewer requests, and then no
    more. is_complete : all that could run were tried in full, or cannot win.
    """

    search: str
    tried: list[Tried]
    dropped: list[Dropped]
    eliminated: list[Tried]
    is_complete: bool
