"""Settings for moves of requests between replicas, as `operations.migration` uses them."""
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Port:
    """Links of the replicas of a pool, each by all its accelerators together.

    block_bytes : of a KV block, summed over its accelerators.
    inner_bytes_per_s : in each direction, within a scale-up domain; 0: outer_bytes_per_s.
    outer_bytes_per_s : in each direction, between domains.
    replicas_per_domain : number of replicas that share a scale-up domain.
    """

    block_bytes: float
    inner_bytes_per_s: float
    outer_bytes_per_s: float
    replicas_per_domain: int = 1


@dataclass(frozen=True)
class MovePlan:
    """Mode, limits and rescheduler of moves.

    ports : of each pool.
    mode : "live", "blocking" or "recompute".
    max_in, max_out : concurrent moves to and from a replica.
    latency_ns : added to each copy.
    max_stages : of a live move, the last one included.
    last_stage_blocks : when at most this many are left to copy, the request stops for the last copy.
    rescheduler, parameters : a Rescheduler subclass and its `Parameters`; None: requests move only off
        replicas that are emptied.
    interval_ns : between two plans; None: the rescheduler's.
    """

    ports: tuple[Port, ...]
    mode: str = "live"
    max_in: int = 1
    max_out: int = 1
    latency_ns: int = 0
    max_stages: int = 3
    last_stage_blocks: int = 16
    rescheduler: type | None = None
    parameters: Any = None
    interval_ns: int | None = None
