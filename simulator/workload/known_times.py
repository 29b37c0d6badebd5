"""Arrival times, as far as they are known before any request is served."""
import numpy as np

from simulator.domain import records
from simulator.workload.base import Workload
from simulator.workload.script import Group, Script


def starts_ns(workload: Workload) -> np.ndarray:
    """Return when each request comes, or with a script when each play begins, int64.

    NEVER_NS: the time depends on slots, or on the end of other requests. Warm-up requests count as before time 0: times
    count from the beginning of the first group behind them.
    """
    script = workload.script
    if script is None:
        return workload.requests["arrival_ns"]
    times_ns, begins = np.full(len(script.start_ns), records.NEVER_NS), []
    for index, group in enumerate(script.groups):
        begins.append(None if index == 0 and workload.num_warmups else _begin_ns(script, group, begins, workload))
        if begins[-1] is not None and (group.has_times or group.slots is None):
            times_ns[group.plays] = begins[-1] + script.start_ns[group.plays]
    return times_ns


def _begin_ns(script: Script, group: Group, begins: list[int | None], workload: Workload) -> int | None:
    """Return when a group begins; None: when other groups have ended."""
    if group.after < 0 or (workload.num_warmups and group.after == 0):
        return group.interval_ns
    before, begin_ns = script.groups[group.after], begins[group.after]
    is_known = group.after_dispatch and before.slots is None and script.play_begins is None
    if begin_ns is None or not (is_known or not len(before.plays)):
        return None
    last_ns = script.start_ns[before.plays].max(initial=0)
    return int(begin_ns + max(last_ns, before.lasts_ns) + group.interval_ns)
