"""How requests move between replicas: what `engine.migration` is told."""
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Port:
    """How the replicas of a pool are linked; bytes/s in each direction, of all accelerators of a replica together.

    block_bytes : of a KV block, on all accelerators. inner_bytes_per_s : between replicas of one scale-up domain; 0: as
    beyond. outer_bytes_per_s : between others. replicas_per_domain : that share a scale-up domain.
    """

    block_bytes: float
    inner_bytes_per_s: float
    outer_bytes_per_s: float
    replicas_per_domain: int = 1


@dataclass(frozen=True)
class MovePlan:
    """How requests move.

    ports : of each pool. mode : "live", "blocking" or "recompute". max_in, max_out : moves of a replica at a time.
    latency_ns : before what was sent is there. max_stages : the last one included. last_stage_blocks : so few are
    copied while the request stands still. rescheduler, parameters : a Rescheduler subclass and its `Parameters`; None:
    requests move only where somebody empties a replica. interval_ns : between two plans; None: as the rescheduler wants.
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
