"""Checks that an experiment fits into memory and time, by lower bounds, before it is run."""
import math
import os
from collections.abc import Iterator
from contextlib import suppress

from simulator import registry
from simulator.errors import InputErrors, KeyFault

MOST_ROWS = 10**8               # rows of a table, or events: 5 GB, ten minutes
# Bytes of a request, at least: a run of 1,000 requests with its files took 62 MB, one of 1,000,000 took 225 MB.
BYTES_PER_REQUEST = 160
# Bytes of an idle replica, at least: 1 took 46 MB, 100,000 took 314 MB.
BYTES_PER_REPLICA = 2_600
BYTES_PER_PROCESS = 46e6        # with one idle replica
_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def least_bytes(experiment) -> float:
    """Return a lower bound of the memory of a process that runs an experiment."""
    drawn = experiment.workload.parameters
    requests = _rows(experiment, _requests(drawn) or _requests(getattr(drawn, "parameters", drawn)))
    replicas = sum(_most(pool) for pool in experiment.all_pools())
    return BYTES_PER_PROCESS + requests * BYTES_PER_REQUEST + replicas * BYTES_PER_REPLICA


def check_memory(experiment) -> None:
    """Refuse more requests or replicas than memory can hold.

    Raises
    ------
    InputErrors
        One fault for requests and one for replicas, with the arithmetic.
    """
    limit = memory_bytes()
    drawn = experiment.workload.parameters
    if not _requests(drawn):
        drawn = getattr(drawn, "parameters", drawn)     # of a format of clients
    requests = _rows(experiment, _requests(drawn))
    faults = []
    if requests * BYTES_PER_REQUEST > limit:
        key = "num_requests" if getattr(drawn, "num_requests", None) is not None else "duration_s"
        faults.append(KeyFault(f"workload.{key}: " + _arithmetic(requests, "requests", BYTES_PER_REQUEST, limit)))
    replicas = sum(_most(pool) for pool in experiment.all_pools())
    if replicas * BYTES_PER_REPLICA > limit:
        faults.append(KeyFault("topology.replicas: " + _arithmetic(replicas, "replicas", BYTES_PER_REPLICA, limit)))
    if faults:
        raise InputErrors(faults)


def check_time(experiment, workload) -> None:
    """Refuse repetitions that occur too often until the last request arrives.

    Raises
    ------
    InputErrors
        One fault for each key that leads to more than `MOST_ROWS` rows or events.
    """
    if workload.chunks is not None:         # nothing that repeats goes with them
        return
    last_s = float(workload.requests["arrival_ns"].max(initial=0)) * 1e-9
    span_s = min(last_s, experiment.horizon_s)
    faults = [KeyFault(f"{key}: {count:.3g} {what} until the last request arrives, after {span_s:g} s; at most "
                       f"{MOST_ROWS:.0e} are possible") for key, count, what in _repeated(experiment, span_s)
              if count > MOST_ROWS]
    if faults:
        raise InputErrors(faults)


def memory_bytes() -> float:
    """Return the memory that this process may use.

    The least of the limits of the machine, its control group and its resource limit.
    """
    limits = [math.inf]
    with suppress(AttributeError, ValueError, OSError):     # not a POSIX system
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(ImportError):
        import resource  # not everywhere
        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        limits.append(math.inf if soft == resource.RLIM_INFINITY else soft)
    for path in _CGROUPS:
        with suppress(OSError, ValueError), open(path, encoding="ascii") as file:       # no such group, or "max"
            limits.append(int(file.read()))
    return min(limits)


def _rows(experiment, requests: float) -> float:
    """Return how many rows are held at the same time, at least."""
    return 0 if experiment.output.streamed else requests


def _requests(drawn) -> float:
    """Return an upper bound of the requests of a drawn workload; with a duration: by its rate."""
    given = getattr(drawn, "num_requests", None)
    if given is not None:
        return given
    duration_s = getattr(drawn, "duration_s", None) or 0.0
    if getattr(drawn, "rate", None) is not None:
        return _due(drawn.rate, duration_s)
    process = getattr(getattr(drawn, "arrival", None), "parameters", drawn)
    rate_per_s = getattr(process, "steady_rate_per_s", getattr(process, "rate_per_s", None)) or 0.0
    return duration_s * rate_per_s


def _due(rate, duration_s: float) -> float:
    """Return the number of requests of a changing rate; 0 if it depends on a file or on random draws."""
    import numpy as np  # few experiments have a rate

    from simulator.workload.drawing.rates.base import Changing

    chosen = registry.load("rate", rate.kind)
    if not issubclass(chosen, Changing):
        return 0.0
    course = chosen(rate.parameters).course(np.random.default_rng(0))
    return 0.0 if course.is_random else course.requests_until(duration_s)


def _most(pool) -> int:
    return max(pool.at_start, pool.max_replicas or 0)


def _repeated(experiment, span_s: float) -> Iterator[tuple[str, float, str]]:
    """Yield key, number and name of each repeated row or event, as a lower bound."""
    replicas = sum(pool.at_start for pool in experiment.all_pools())
    for part in experiment.parts():
        yield from part.repeated(replicas, span_s)


def _arithmetic(count: float, what: str, each_bytes: int, limit: float) -> str:
    return (f"{count:.0f} {what} of at least {each_bytes} bytes need {count * each_bytes / 1e9:.1f} GB; this process "
            f"may use {limit / 1e9:.1f} GB")
