"""How requests move between replicas: what `engine.migration` is told."""
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Port:
    """How the replicas of a pool are linked, each by all its accelerators together.

    block_bytes : of a KV block, on all of them.
    inner_bytes_per_s : in each direction, between replicas of one scale-up domain; 0: as beyond.
    outer_bytes_per_s : in each direction, between others.
    replicas_per_domain : that share a scale-up domain.
    """

    block_bytes: float
    inner_bytes_per_s: float
    outer_bytes_per_s: float
    replicas_per_domain: int = 1


@dataclass(frozen=True)
class MovePlan:
    """How requests move.

    ports : of each pool.
    mode : "live", "blocking" or "recompute".
    max_in, max_out : moves to and from a replica at a time.
    latency_ns : of each copy, besides.
    max_stages : of a live move, the last one included.
    last_stage_blocks : when no more are left to copy, the request stands still.
    rescheduler, parameters : a Rescheduler subclass and its `Parameters`; None: requests move only where somebody
        empties a replica.
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
