"""Verdicts and probes of plain functions, for searches."""
from simulator.study.capacity.bounds import Bound, Bounds
from simulator.study.capacity.verdict import Observation, Rules, judge


class Judged:
    """A judge of a function of the value; `probes` are the values that it was asked for.

    Parameters
    ----------
    function : value -> number, or (value, seed) -> number where `is_random`.
    most : bound of the number.
    """

    def __init__(self, function, most, is_random=False, **rules):
        self.probes = []
        self._function, self._is_random = function, is_random
        self._rules = Rules(Bounds((Bound("delay", most, True),)), **rules)

    def __call__(self, value):
        self.probes.append(value)
        return judge(value, self._observe, self._rules)

    def _observe(self, value, seeds):
        return [Observation(seed, {"delay": self._function(value, seed) if self._is_random else self._function(value)})
                for seed in seeds]
