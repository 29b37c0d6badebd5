from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from simulator.routing.base import RoutingContext
from simulator.routing.scoring.base import Scorer
from simulator.signals.request_view import RequestView

class PythonScorer(Scorer):
    Parameters: Any                     # a frozen msgspec.Struct class, or None
    parameters: Any
    states: np.ndarray
    accounts: np.ndarray

    def __init__(self, parameters: Any, context: RoutingContext) -> None: ...
    def rate_all(self, request: RequestView, now_ns: int) -> ArrayLike: ...
