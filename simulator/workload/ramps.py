"""A rate that rises by steps of time, then stays constant, as in AIPerf.

Source: ai-dynamo/aiperf, docs/tutorials/ramping.md@09c49999; when a gap is drawn: src/aiperf/timing/strategies,
request_rate.py, and how the rate rises: src/aiperf/timing/ramping.py, LinearStrategy.
"""
from collections.abc import Callable
from math import ceil

import numpy as np

STEP_S = 0.1            # from one rate to the next
BLOCK = 1024            # gaps drawn at a time


def stepped_times_s(unit_gaps: Callable[[int, int], np.ndarray], rate_per_s: float, ramp_s: float, count: int | None,
                    duration_s: float) -> np.ndarray:
    """Return arrivals in seconds at a rate that rises, then stays constant.

    The rate begins at rate * STEP_S / ramp. At each multiple t of STEP_S below the ramp it is on the line from there to
    the final rate, which holds from the first multiple not below the ramp on. A gap is a unit gap divided by the rate
    at the gap's beginning.

    Parameters
    ----------
    unit_gaps : (first, count) -> gaps of mean 1 for `count` requests from number `first` on.
    ramp_s : 0: the rate is constant.
    count : at most this number of arrivals; None: all before `duration_s`.
    """
    times_s, time_s, end_s = [], 0.0, min(ceil(ramp_s / STEP_S) * STEP_S, duration_s)
    least = rate_per_s * STEP_S / ramp_s if ramp_s else rate_per_s
    gaps = np.empty(0)
    while time_s < end_s and len(times_s) != count:
        gaps = unit_gaps(len(times_s), BLOCK if count is None else min(BLOCK, count - len(times_s)))
        used = 0
        while used < len(gaps) and time_s < end_s:
            reached_s = int(time_s / STEP_S + 1e-9) * STEP_S
            time_s += gaps[used] / (least + (rate_per_s - least) * reached_s / ramp_s)
            times_s.append(time_s)
            used += 1
        gaps = gaps[used:]
    blocks, drawn, ramped_s, units = [np.array(times_s)], len(times_s), time_s, 0.0
    while True:
        if len(gaps):
            gaps[0] += units                    # one running sum over all blocks
            sums = np.cumsum(gaps)
            blocks.append(ramped_s + sums / rate_per_s)
            drawn, units, time_s = drawn + len(gaps), float(sums[-1]), float(blocks[-1][-1])
        if drawn == count or time_s >= duration_s:
            break
        due = np.inf if np.isinf(duration_s) else 1.1 * (duration_s - time_s) * rate_per_s + 100
        gaps = unit_gaps(drawn, int(min(due, np.inf if count is None else count - drawn)))
    times_s = np.concatenate(blocks)
    return times_s[:np.searchsorted(times_s, duration_s)]
