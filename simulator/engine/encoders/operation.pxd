"""Encoding of prompt items on replicas of their own, before the requests are routed."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.domain.encode_job cimport EncodeJob
from simulator.domain.request cimport Request
from simulator.engine.encoders.group cimport Group
from simulator.engine.encoders.station cimport Station
from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.operations.base cimport Operation


cdef enum Left:                 # items of a request that have still to arrive; else a count
    NOT_COME = -1               # encoding of its items has not begun


@cython.final
cdef class Encoders(Operation):
    cdef readonly object table              # structured array (jobs,), `records.ENCODE_JOB`
    cdef readonly list groups               # Group, in order of the gateways
    cdef readonly list stations             # Station
    cdef EncodeJob* _jobs                   # [job] of the table
    cdef void** _stations                   # [encoder replica] the elements of stations, borrowed
    cdef void** _group_of                   # [encoder replica] Group, borrowed
    cdef int32_t* _left                     # [row of a client] see Left
    cdef const int64_t* _begins             # [row + 1] first job of each request, borrowed
    cdef int64_t* _encoded_of               # [row] embeddings computed for each request, borrowed
    cdef Request* _requests
    cdef Fleet _fleet
    cdef object _plan                       # EncodePlan
    cdef object _owners
    cdef int64_t _latency_ns

    # Have the items of an admitted request encoded. False: it has no items, or all have arrived.
    cdef bint begin(self, int32_t row, Group group, int64_t now_ns) except -1 nogil

    # At a replica: schedule a look at its queue; look, and begin a batch; end the batch. _come: a job has arrived.
    cdef int _call(self, Station station, int32_t replica, int64_t now_ns) except -1 nogil
    cdef int _begin_batch(self, Station station, int32_t replica, int64_t now_ns) except -1 nogil
    cdef int _end_batch(self, Station station, int32_t replica, int64_t now_ns) except -1 nogil
    cdef int _come(self, int32_t job, Group group, int64_t now_ns) except -1 nogil
