"""The search of Vidur, faults included: `compat = "vidur"`.

Source: microsoft/vidur, vidur/config_optimizer/config_explorer/capacity_search.py. A delay above 500 halves the right
end, which may fall below the left one; their distance is taken without its sign, and a lower rate that passes then
replaces a higher one. The consequences are described with the search in study.md, 3.1.
"""
from collections.abc import Callable
from typing import NamedTuple

NO_FAIL = 2.0**32


class VidurRules(NamedTuple):
    """Vidur's options, with their defaults there.

    limit : seconds of scheduling delay. granularity : of a bracket, as a share of the last rate.
    """

    limit: float = 5.0
    granularity: float = 0.025
    most_probes: int = 20


DEFAULT = VidurRules()


def search(start: float, delay_of: Callable[[float], float | None], rules: VidurRules = DEFAULT) -> float | None:
    """Return the last rate that passed.

    Parameters
    ----------
    start : the first rate.
    delay_of : the delay at a rate, s; None ends the search: a probe that crashed.
    """
    left, right, rate, best, lowest_fail = 0.0, 2 * start, 0.0, None, NO_FAIL
    for _ in range(rules.most_probes):
        if abs(left - right) < rules.granularity * rate:
            break
        rate = (left + right) / 2
        delay = delay_of(rate)
        if delay is None:
            break
        if delay <= rules.limit:
            best, left = rate, rate
            right = min(right * _widening(delay, rate, right, rules.limit), lowest_fail)
        else:
            right = rate / 2 if delay > 500 else rate
            lowest_fail = min(lowest_fail, rate)
    return best


def _widening(delay: float, rate: float, right: float, limit: float) -> float:
    if delay < limit / 8:
        return 4.0
    return 2.0 if delay < limit / 4 or rate > 0.8 * right else 1.0
