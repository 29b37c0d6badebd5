"""Failures of replicas, and the fate of their requests."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.engine.operations.agenda cimport Agenda
from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.operations.lifecycle cimport Lifecycle, Place
from simulator.core.row_list cimport RowList


@cython.final
cdef class Outages:
    cdef Fleet _fleet
    cdef Agenda _agenda
    cdef Lifecycle _lifecycle
    cdef object _health         # domain.failures.Health
    cdef object _retry          # domain.guards.Retry; None: requests are sent elsewhere at once
    cdef object _waits          # numpy.random.Generator of its waits
    cdef list _sources          # Source
    cdef object _pools          # names of the pools
    cdef object _seed
    cdef dict _slow             # (replica, id of a Failure) -> its Outage, where requests are moved off slow replicas
    cdef int64_t _num_kept      # prefix caches that were not emptied when they should have been
    cdef RowList _rows          # requests taken off a replica, until all are handled
    cdef dict waits             # row -> its wait before it is sent elsewhere; a request that ends is taken out
    cdef list _retried  # (Gateway, row) of requests to retry, sent when all replicas that failed together are empty

    # Take the requests off a replica that has failed: they are dropped, or retried by `_send_elsewhere`. Of a
    # prefill leg that is its client's request.
    cdef int _take_off(self, Place place, outage, int64_t now_ns) except -1
    cdef int _settle(self, Place place, int32_t row, bint is_retried, int64_t now_ns) except -1

    # Restart a request, as if it had not produced a token.
    cdef void _void(self, int32_t row) noexcept nogil

    # Add the time since `since_ns`, when the replica of a request failed, to its downtime.
    cdef void _count_downtime(self, int32_t row, int64_t since_ns, int64_t now_ns) noexcept nogil
