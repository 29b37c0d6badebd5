from typing import Any

import numpy as np

from simulator.routing.base import Router, RoutingContext
from simulator.signals.request_view import RequestView

class PythonRouter(Router):
    Parameters: Any                     # a frozen msgspec.Struct class, or None
    uses_caches: bool
    uses_tiers: bool
    parameters: Any
    states: np.ndarray
    accounts: np.ndarray

    def __init__(self, parameters: Any, context: RoutingContext) -> None: ...
    def choose(self, request: RequestView, now_ns: int) -> int | None: ...
    def on_sent(self, request: RequestView, replica: int, now_ns: int) -> None: ...
    def on_left(self, request: RequestView, replica: int, now_ns: int) -> None: ...
    def cached_blocks(self, request: RequestView, now_ns: int) -> list[int]: ...
    def tier_blocks(self, request: RequestView, now_ns: int) -> list[tuple[int, int, int, int]]: ...
