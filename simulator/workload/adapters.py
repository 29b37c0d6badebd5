"""The assignment of LoRA adapters to requests."""
import numpy as np
from msgspec.structs import replace

from simulator.domain.traits import Adapters
from simulator.errors import InputErrors, KeyFault
from simulator.workload.columns import Columns
from simulator.workload.own_draws import keys_of, uniforms

NONE = -1


def with_adapters(columns: Columns, given: Adapters | None, seed: int) -> Columns:
    """Return the requests with the adapters that [workload.adapters] gives them.

    All requests of a play use one adapter: otherwise they could not share their KV cache.

    Raises
    ------
    InputErrors
        The workload already assigns adapters.
    """
    if given is None:
        return columns
    if "adapter" in columns.labels:
        raise InputErrors([KeyFault("workload.adapters: the trace has a column adapter; leave one of them out")])
    plays = np.arange(len(columns)) if columns.waits is None else columns.waits.plays
    _, first_rows, plays = np.unique(plays, return_index=True, return_inverse=True)
    by_first_row = np.argsort(np.argsort(first_rows, kind="stable"), kind="stable")
    keys = keys_of(columns.request_ids, len(columns))[first_rows]
    chosen = _choose(given, by_first_row, uniforms(seed, "adapters", keys))
    chosen[uniforms(seed, "adapters/none", keys) < given.none_share] = NONE
    return replace(columns, labels=columns.labels | {"adapter": (chosen[plays], list(given.names))})


def _choose(given: Adapters, numbers: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return the index in `names` of each play's adapter.

    numbers : of the plays, in workload order.
    draws : uniform on [0, 1).
    """
    count = len(given.names)
    if given.assign == "round_robin":
        return numbers % count
    weights = np.ones(count)
    if given.assign == "weighted":
        weights = np.array(given.weights)
    elif given.assign == "zipf":
        weights = np.arange(1, count + 1) ** -given.exponent
    ends = np.cumsum(weights / weights.max())
    return np.searchsorted(ends, draws * ends[-1], side="right")
