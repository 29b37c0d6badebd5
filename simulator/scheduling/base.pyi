from collections.abc import Iterable, Iterator
from typing import Any, Literal

from simulator.scheduling.questions import KVPlan, MemoryNeeds, ReplicaContext, SchedulerFacts

class Scheduler:
    kv: Any                             # KVCache
    waiting: Any                        # WaitingQueue
    num_slots: int
    tier: Any                           # KVTier, None: there is none
    transfers: Any                      # Transfers, likewise
    copies: bool                        # the tier copies blocks
    strides: Any                        # Strides, likewise
    ends_at_start: bool
    max_running: int
    longest_prompt: int
    loading: int
    loading_tokens: int
    prefix_query_tokens: int
    prefix_hit_tokens: int
    preemptions: int

    def __init__(self, parameters: Any, context: ReplicaContext) -> None: ...
    @staticmethod
    def facts(parameters: Any) -> SchedulerFacts: ...
    @classmethod
    def memory(cls, parameters: Any, deployment: Any, max_model_len: int) -> MemoryNeeds: ...
    @staticmethod
    def completed(parameters: Any, topology: Any) -> Any: ...
    @staticmethod
    def faults(parameters: Any, engine: Any) -> Iterable[tuple[str, str]]: ...
    @staticmethod
    def kv_cache(parameters: Any, plan: KVPlan) -> Any: ...
    def advice(self, plight: Literal["livelock", "too large", "passed over", "left alone"]) -> str: ...
    def check(self) -> None: ...
    def running_rows(self) -> list[int]: ...
    def held_rows(self) -> list[int]: ...
    def slots(self, first: int = -2) -> Iterator[int]: ...
