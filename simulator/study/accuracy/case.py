"""One measured run of a deployment, and the values that it is compared with."""
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

# Metric -> unit. The first three are of requests, the others of a whole run.
UNITS = {"ttft": "ms", "tpot": "ms", "e2e": "ms", "makespan": "s", "throughput": "output tokens/s"}
NAMES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E", "makespan": "makespan", "throughput": "throughput"}


class Case(msgspec.Struct, frozen=True):
    """One run.

    label : its name in the data.
    tables : of the experiment, laid over those of the data set.
    measured : metric -> the mean over its requests; or float64 (n,), one for each request, NaN where it has none.
    published : name of a predictor -> metric -> mean, p50, p90, p99 -> predicted value.
    arrivals_ns : int64 (n,), arrival times, in place of the trace's; None: the experiment's.
    lengths : int64 (n, 2), tokens of prompt and output that the trace must have; None: not checked.
    request_ids : names of the requests, where they were measured one by one.
    backends : backend -> keys of [latency] under it, laid over those of the data set.
    pool_backends : backend -> pool -> keys of the pool's [latency] under it.
    """

    label: str
    tables: Mapping[str, Any]
    measured: Mapping[str, float | np.ndarray]
    published: Mapping[str, Mapping[str, Mapping[str, float]]] = {}
    arrivals_ns: np.ndarray | None = None
    lengths: np.ndarray | None = None
    request_ids: tuple[str, ...] = ()
    backends: Mapping[str, Mapping[str, Any]] = {}
    pool_backends: Mapping[str, Mapping[str, Mapping[str, Any]]] = {}
