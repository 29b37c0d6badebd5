from typing import Any

import msgspec
import numpy as np

class PoolLabel(msgspec.Struct, frozen=True):
    name: str = "default"
    context_range: tuple = ()

class RoutingContext(msgspec.Struct, frozen=True):
    view: Any
    workload: Any
    content: Any
    block_size: int = 16
    seed: int = 0
    stream: str = "routing"
    scorers: tuple = ()
    draws: Any = None                   # simulator.core.draws.Draws
    prefill_legs: Any = None            # structured array of records.REQUEST
    outputs: Any = None                 # simulator.signals.output_counts.OutputCounts; None: those of the records
    quotas: tuple = ()                  # simulator.routing.parts.quotas.Quota of each pool
    filters: tuple = ()
    pools: tuple = ()                   # PoolLabel
    classes: Any = None

class Router:
    view: Any                           # View
    num_replicas: int
    reads_state: bool
    has_scores: bool
    tier_keys: tuple[str, ...]
    counts_promised: bool
    turns_away: bool
    takes_scorers: bool
    reads_quotas: tuple[str, ...]
    why_no_legs: str
    takes_filters: bool

    def __init__(self, parameters: Any, context: RoutingContext) -> None: ...
    @classmethod
    def weighs_promised(cls, parameters: Any, scorers: tuple) -> bool: ...
    @classmethod
    def sees_tiers(cls, parameters: Any) -> bool: ...
    @classmethod
    def idle_keys(cls) -> dict[str, tuple[str, str]]: ...
    @staticmethod
    def usual_scorers(parameters: Any) -> tuple[tuple[str, float, dict[str, Any]], ...]: ...
    def for_decodes(self) -> Router: ...
    def choose_replica(self, row: int, now_ns: int) -> int: ...
    def note_sent(self, row: int, replica: int, now_ns: int) -> None: ...
    def note_left(self, row: int, replica: int, now_ns: int) -> None: ...
    def scores(self, row: int, now_ns: int) -> np.ndarray: ...
