"""A rate that rises by steps of time, and then stays: as AIPerf's does.

Source: ai-dynamo/aiperf, docs/tutorials/ramping.md@09c49999; when a gap is drawn: src/aiperf/timing/strategies,
request_rate.py, and how the rate rises: src/aiperf/timing/ramping.py, LinearStrategy.
"""
from collections.abc import Callable
from math import ceil

import numpy as np

STEP_S = 0.1            # from one rate to the next
BLOCK = 1024            # gaps drawn together


def stepped_times_s(unit_gaps: Callable[[int, int], np.ndarray], rate_per_s: float, ramp_s: float, count: int | None,
                    duration_s: float) -> np.ndarray:
    """Return arrivals in seconds at a rate that rises for some time, and then stays.

    The rate is rate * STEP_S / ramp at first; at each multiple t of STEP_S below the ramp it is on the line from there
    to the rate, which it is from the first multiple on that is not below. A gap is one of mean 1 over the rate at its
    beginning.

    Parameters
    ----------
    unit_gaps : returns gaps of mean 1, of so many requests from a number on.
    ramp_s : 0: the rate is the same from the beginning.
    count : at most so many; None: those before `duration_s`.
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
