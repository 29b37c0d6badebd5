"""Regions: gateways forward requests to other regions, and see these with delay."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.event_queue cimport Event
from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.gateway.stage_base cimport Stage
from simulator.engine.operations.base cimport Operation
from simulator.routing.instances.base cimport Assignment


cdef struct Change:             # of the number of requests in a region
    int64_t time_ns
    int32_t following           # the next change of this region; -1: none yet
    int32_t delta


cdef struct Sending:            # of a request from its home to another region
    int64_t time_ns
    int32_t following           # the next one from this home to this region; -1: none yet


cdef struct Sight:              # one region, as the gateway of another, or its own, sees it
    int64_t latency_ns          # one way
    int32_t last                # last change that it knows; -1: none
    int32_t known               # requests by then
    int32_t first_sent          # oldest sending there that may not be in `known`; -1: none
    int32_t last_sent
    int32_t num_sent            # requests forwarded there that may not be in `known`


@cython.final
cdef class RegionStage(Stage):
    cdef Fleet _fleet
    cdef void* _gateway             # Gateway, borrowed: it refers to this stage
    cdef Assignment _assignment     # a region is a group of instances
    cdef int32_t _count             # regions
    cdef Sight* _sights             # [home, region]
    cdef int32_t[::1] _region_of    # [replica of the view]
    cdef void* _second              # Gateway of decode legs, borrowed; NULL: requests have one leg
    cdef int32_t[::1] _second_of    # [replica of its view] region
    cdef int8_t[::1] _does_both     # [replica of its view] it is in the view of `_gateway`, too
    cdef int32_t* _first            # [region] its first change; -1: none
    cdef int32_t* _last             # [region]
    cdef Change* _changes           # [_num_changes] in order of time
    cdef int32_t _num_changes
    cdef int32_t _room              # changes that fit before it must grow
    cdef Sending* _sendings         # [_num_sendings] in order of time
    cdef int32_t _num_sendings
    cdef int32_t _sendings_room
    cdef int32_t[::1] _homes        # [row]
    cdef int8_t[::1] _is_away       # [row] it was forwarded
    cdef int8_t[::1] _is_in         # [row] 1: it is counted in its region; 2: no more
    cdef double _spill_at
    cdef bint _prefers_near
    cdef readonly dict arrays       # name -> array (requests,)

    # Return whether a request was forwarded; how long it travels from its home to the region that serves it, and back.
    cdef inline bint is_away(self, int32_t row) noexcept nogil:
        return self._is_away[row]

    cdef inline int64_t there_ns(self, int32_t row) noexcept nogil:
        return self._sights[self._homes[row] * self._count + self._assignment.group_of(row)].latency_ns

    cdef inline int64_t back_ns(self, int32_t row) noexcept nogil:
        return self._sights[self._assignment.group_of(row) * self._count + self._homes[row]].latency_ns

    # leave: take a request that has ended out of its region. renew: its client will send it again, to its home.
    cdef int leave(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef void renew(self, int32_t row) noexcept nogil

    # A forwarded request reaches the gateway of its region: its queue, or the router.
    cdef int reach(self, int32_t row, int64_t now_ns) except -1 nogil

    cdef void _begin(self, Sight* sight, int64_t latency_ns) noexcept
    cdef int _note(self, int32_t region, int32_t row, int32_t delta, int64_t now_ns) except -1 nogil
    cdef int _note_sent(self, Sight* sight, int64_t now_ns) except -1 nogil
    cdef int64_t _requests(self, int32_t home, int32_t region, int64_t now_ns) noexcept nogil
    cdef double _load(self, int32_t home, int32_t region, int64_t now_ns) noexcept nogil
    cdef int32_t _choose(self, int32_t home, int64_t now_ns) noexcept nogil
    cdef int32_t _best(self, int32_t home, double limit, int64_t now_ns) noexcept nogil
    cdef bint _is_better(self, int64_t latency_ns, double load, int64_t nearest_ns, double lowest) noexcept nogil


@cython.final
cdef class RegionForwarding(Operation):
    cdef readonly list stages       # RegionStage, by gateway
    cdef void** _stages             # its elements, borrowed
    cdef int32_t _num_gateways
    cdef object _latency_ns         # int64 (regions, regions)
