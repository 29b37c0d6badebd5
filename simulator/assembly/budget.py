"""Checks that an experiment fits into memory and time, by lower bounds, before it is run."""
import math
import os
from collections.abc import Iterator
from contextlib import suppress
from operator import itemgetter
from typing import NamedTuple

from simulator import registry
from simulator.errors import InputErrors, KeyFault

MOST_ROWS = 10**8               # rows of a table, or events: 5 GB, ten minutes
# Bytes of a request, at least: growth of the peak from 100,000 to 400,000 requests with their files. Drawn at a rate
# 202, of clients 212 to 221, in slots 229 to 270.
BYTES_PER_REQUEST = 190
BYTES_OF_LABELS = 140           # with tenants or classes in the summary: 359 to 376
BYTES_OF_JOURNEY = 150          # with failures: 377; with labels, too: 508
BYTES_OF_TURN = 170             # of a session: 1, 4, 8, 16 turns took 398, 518, 799, 1,208 bytes each
BYTES_OF_EARLIER_TURN = 50
DRAWS = 1000                    # of the number of turns, for its mean
# Bytes of an idle replica, at least: 1 took 46 MB, 100,000 took 314 MB.
BYTES_PER_REPLICA = 2_600
BYTES_PER_PROCESS = 46e6        # with one idle replica
_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class Rows(NamedTuple):
    """Requests of a run; key : of the workload, which says how many there are."""

    key: str
    count: float
    each_bytes: int


def least_bytes(experiment) -> float:
    """Return a lower bound of the memory of a process that runs an experiment."""
    rows = _rows(experiment)
    replicas = sum(_most(pool) for pool in experiment.all_pools())
    return BYTES_PER_PROCESS + rows.count * rows.each_bytes + replicas * BYTES_PER_REPLICA


def check_memory(experiment) -> None:
    """Refuse more requests or replicas than memory can hold.

    Raises
    ------
    InputErrors
        One fault for requests and one for replicas, with the arithmetic.
    """
    limit, rows = memory_bytes(), _rows(experiment)
    faults = []
    if rows.count * rows.each_bytes > limit:
        faults.append(KeyFault(f"workload.{rows.key}: " + _arithmetic(rows.count, "requests", rows.each_bytes, limit)))
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


def _rows(experiment) -> Rows:
    """Return the requests that are held at the same time, at least."""
    drawn, each_bytes = experiment.workload.parameters, BYTES_PER_REQUEST
    if experiment.workload.type == "clients":
        drawn = drawn.parameters            # of their format
        if any(getattr(client, "tenant", "") or getattr(client, "slo_class", "")
               for client in getattr(drawn, "clients", ())):
            each_bytes += BYTES_OF_LABELS
    if experiment.failures or experiment.restarts or experiment.autoscaling is not None:
        each_bytes += BYTES_OF_JOURNEY
    counts = {key: getattr(drawn, key, None) for key in ("num_requests", "num_sessions")}
    counts["duration_s"] = _until_end(drawn)
    key, count = min(((key, count) for key, count in counts.items() if count), key=itemgetter(1), default=("", 0))
    if experiment.workload.type == "sessions":
        turns = _mean_turns(drawn.sessions.rounds)
        count *= turns
        each_bytes += BYTES_OF_TURN + round(BYTES_OF_EARLIER_TURN * (turns - 1))
    return Rows(key, 0 if experiment.output.streamed else count, each_bytes)


def _mean_turns(rounds) -> float:
    """Return the mean number of a session's turns, of some draws."""
    import numpy as np  # few experiments have sessions

    distribution = registry.load("length_distribution", rounds.distribution)(rounds.parameters)
    return float(np.maximum(distribution.draw(np.random.default_rng(0), DRAWS), 1).mean())


def _until_end(drawn) -> float:
    """Return the requests, or sessions, of a rate until `duration_s`; 0: without the one or the other."""
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
