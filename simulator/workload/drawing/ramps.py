"""A rate that rises from request to request, and arrivals stretched to an exact end, as in `vllm bench serve`.

Source: vllm-project/vllm, vllm/benchmarks/serve.py, --ramp-up-strategy and the rescaling of its delays.
"""
from math import isfinite

import numpy as np

from simulator.errors import InputErrors, KeyFault
from simulator.workload.drawing.arrivals import arrival_times_s


def goes_by_number(parameters) -> bool:
    """Return whether the arrivals of a process depend on the number of requests."""
    stretches = getattr(parameters, "rescale_to_rate", False) and isfinite(parameters.rate_per_s)
    return stretches or getattr(parameters, "ramp", None) is not None


def ramped_times_s(unit_process, given, generator, count: int | None, duration_s: float) -> np.ndarray:
    """Return arrivals in seconds at a rising rate, or stretched.

    The gap before request i is a unit gap over rate_i. With p = i / max(N - 1, 1), rate_i is start + (end - start) p,
    or start (end / start)^p. Without a ramp, all arrivals are stretched so that the last of N is at N / rate.

    Parameters
    ----------
    unit_process : draws gaps of mean 1.
    given : its parameters, with `ramp` and the keys of a ramp.
    """
    if count is None:
        raise InputErrors([KeyFault("workload.num_requests: missing; a ramp and rescale_to_rate go by the number of "
                                    "requests")])
    if given.ramp is None:
        times_s = arrival_times_s(unit_process, generator, count)
        last = times_s[-1]
        times_s = times_s * (count / given.rate_per_s / last) if last > 0 else times_s
    else:
        times_s = np.cumsum(unit_process.gaps_s(generator, 0, count) / ramp_rates(given, count))
    return times_s[:np.searchsorted(times_s, duration_s)]


def ramp_rates(given, count: int) -> np.ndarray:
    """Return the rate of each request, per second."""
    part = np.arange(count) / max(count - 1, 1)
    start, end = given.start_rate_per_s, given.end_rate_per_s
    if given.ramp == "linear":
        return start + (end - start) * part
    return start * (end / start) ** part
