"""Base class of scorers: a score of each replica for a request, a number from 0 to 1, higher is better.

A scorer fills `scores`; `weighted` clamps them to 0 .. 1, weighs them and adds them up.
"""
from libc.stdint cimport int8_t, int32_t, int64_t

from simulator.domain.request cimport Demand, Request
from simulator.kv.content cimport Content
from simulator.core.tied_minima cimport TiedMinima
from simulator.signals.view cimport View


cdef class Scorer:
    cdef readonly View view
    cdef readonly int32_t num_replicas
    cdef readonly bint is_per_request   # scores depend on the request; otherwise on the replicas alone, and change only
                                        # when they do. Set in __init__
    cdef bint has_rewritten             # `rate` may have changed scores of replicas that were not noted since the last
                                        # call; stays true unless a scorer knows better
    cdef readonly bint lists_some       # `rate_some` works. Set in __init__
    cdef double* values                 # [num_replicas] the scores; of closed replicas: anything
    cdef const int8_t* kept             # [num_replicas] the filters before the scorers kept it; NULL: they kept all
    cdef const Request* requests        # [row] of the workload, borrowed, like demands
    cdef const Demand* demands
    cdef Content content                # of prompts: hashes of blocks
    cdef object _owners                 # the arrays these pointers borrow from

    # State or account of a replica changed; called for each replica at first. `is_open`: it can be routed to.
    cdef int note(self, int32_t replica, bint is_open) except -1 nogil

    # Update `values` for request `row`. Returns 0 if all would be 0, and need not be written.
    # Without is_per_request, called only after something changed or where filters may keep others than before, and of
    # no request in particular.
    cdef int rate(self, int32_t row, int64_t now_ns) except -1 nogil

    # Update `values` of the replicas with another score than all others, which have a lower one, written to `rest`.
    # `listed`, [num_replicas]: these replicas in ascending order. Returns their number; -1: use `rate`, now.
    # Called without `kept`.
    cdef int32_t rate_some(self, int32_t row, int64_t now_ns, int32_t* listed, double* rest) except -2 nogil

    # Whether a replica is a candidate: scores that compare replicas compare candidates alone.
    cdef inline bint takes_part(self, int32_t replica) noexcept nogil:
        return self.view.accounts[replica].is_routable and (self.kept == NULL or self.kept[replica])

    # Notifications, as for routers.
    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil
    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil
    cdef int closed(self, int32_t replica, int64_t now_ns) except -1 nogil


# Scorers of one level per replica: the lowest level of an open replica is worth 1 and the highest 0.
cdef class LowestBest(Scorer):
    cdef TiedMinima lows                # levels, infinity: closed
    cdef TiedMinima highs               # negative levels
    cdef double _most, _width           # for which `values` were computed: the highest level, and less the lowest

    cdef double level(self, int32_t replica) noexcept nogil

    # The highest and the lowest level of a candidate; -infinity and infinity if there is none.
    cdef void find_extremes(self, double* most, double* least) noexcept nogil
