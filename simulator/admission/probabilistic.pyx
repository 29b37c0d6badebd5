"""`probabilistic`: sheddable classes are rejected with a chance that rises with the saturation."""
cimport cython
from libc.math cimport pow
from libc.stdint cimport int32_t, int64_t
from typing import Annotated

from simulator.admission.base cimport Admission
from simulator.admission.saturation.base cimport mean_utilisation
from simulator.core.clock cimport ns_from_s
from simulator.core.draws cimport Draws

from msgspec import Meta

from simulator.admission.saturation.utilisation import UtilisationParameters
from simulator.core.random_streams import RandomStreams


class ProbabilisticParameters(UtilisationParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reject priorities below 0 with the chance min(1, k s^power).

    s is the mean over replicas of max(waiting / its threshold, KV usage / its threshold). Source: probabilistic
    admitter of llm-d-router ebab6879, with its defaults: all are rejected from s = 0.32 on.
    """

    power: Annotated[float, Meta(gt=0, le=100, extra={"unit": "exponent"}, description=(
        "exponent of the saturation"))] = 5.0
    k: Annotated[float, Meta(ge=0, le=1e12, extra={"unit": "factor"}, description=(
        "factor on the saturation to that power"))] = 300.0


@cython.final
cdef class Probabilistic(Admission):
    """The fuller the replicas, the fewer requests of sheddable classes are let in."""

    Parameters = ProbabilisticParameters

    cdef double _waiting, _kv_usage, _power, _factor
    cdef int64_t _staleness_ns
    cdef Draws _draws

    def __init__(self, parameters, context):
        self._waiting, self._kv_usage = parameters.queue_depth_threshold, parameters.kv_usage_threshold
        self._power, self._factor = parameters.power, parameters.k
        self._staleness_ns = ns_from_s(parameters.staleness_s)
        self._draws = Draws(RandomStreams(context.seed).generator(context.stream))
        self.view.wants_times |= self._staleness_ns > 0
        self.reads_state = self.view.wants_counts = self.view.wants_levels = True

    cdef int admit(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef double saturation
        if not self.classes.is_sheddable(row):
            return 1
        self.view.look(now_ns)
        saturation = mean_utilisation(self.view, self._waiting, self._kv_usage, self._staleness_ns, now_ns)
        return self._draws.uniform() >= self._factor * pow(saturation, self._power)
