"""`weighted_random`: a random replica, with a chance in proportion to its weight."""
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from simulator.routing.base cimport Router
from simulator.routing.parts.pick cimport pick_in_proportion

import msgspec
import numpy as np

from simulator.routing.parts.quotas import Quota, column


class WeightedRandomParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The chance of a replica is its share of the weights of all open replicas.

    Weights are pools.weight if an open replica has a positive one, else pools.rpm, else pools.tpm by the same rule,
    else all chances are equal. A replica without a value has no chance where others have one.
    Source: simple-shuffle, the default of LiteLLM 1.110.2 (litellm/router_strategy/simple_shuffle.py).
    """


@cython.final
cdef class WeightedRandom(Router):
    """A random replica, by weights or limits of its pool."""

    Parameters = WeightedRandomParameters
    reads_quotas = Quota._fields

    cdef double* _values        # [field x replica] weight, rpm, tpm; 0: not given
    cdef double* _chances       # [replica] scratch
    cdef int32_t _num_fields

    def __cinit__(self, parameters, context):
        cdef double[::1] values
        cdef int32_t field, i
        self._num_fields = len(Quota._fields)
        self._values = <double*>calloc(self._num_fields * self.num_replicas, sizeof(double))
        self._chances = <double*>calloc(self.num_replicas, sizeof(double))
        if self._values == NULL or self._chances == NULL:
            raise MemoryError()
        pool_of = np.asarray(context.view.account_array["pool"])
        for field in range(self._num_fields):
            values = column(context.quotas, Quota._fields[field], pool_of, 0.0)
            for i in range(self.num_replicas):
                self._values[field * self.num_replicas + i] = values[i]

    def __dealloc__(self):
        free(self._values)
        free(self._chances)

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        self.score(row, now_ns, self._chances)
        return pick_in_proportion(self._chances, self.num_replicas, self.draws)

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef const double* values
        cdef double total
        cdef int32_t field, i
        for field in range(self._num_fields + 1):
            values = &self._values[field * self.num_replicas]
            total = 0.0
            for i in range(self.num_replicas):
                scores[i] = -INFINITY
                if self.view.accounts[i].is_routable:
                    scores[i] = values[i] if field < self._num_fields else 1.0
                    total += scores[i]
            if total > 0.0:
                break
        return 0
