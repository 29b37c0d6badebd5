"""Items of prompts that replicas of their own encode, before the requests are routed."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.domain.encode_job cimport EncodeJob
from simulator.domain.request cimport Request
from simulator.engine.encoders.group cimport Group
from simulator.engine.encoders.station cimport Station
from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.operations.base cimport Operation


cdef enum Left:                 # items of a request that have still to come; else a count
    NOT_COME = -1               # nobody has asked for them


@cython.final
cdef class Encoders(Operation):
    cdef readonly object table              # structured array (jobs,), `records.ENCODE_JOB`
    cdef readonly list groups               # Group, in order of the gateways
    cdef readonly list stations             # Station
    cdef EncodeJob* _jobs                   # [job] of the table
    cdef void** _stations                   # [replica] the same objects, borrowed
    cdef void** _group_of                   # [replica] Group, borrowed
    cdef int32_t* _left                     # [row of a client] see Left
    cdef const int64_t* _begins             # [row + 1] of the jobs of each, borrowed, like the next
    cdef int64_t* _encoded_of               # [row] embeddings computed for each
    cdef Request* _requests
    cdef Fleet _fleet
    cdef object _plan                       # EncodePlan
    cdef object _owners
    cdef int64_t _latency_ns

    # Have the items of a request encoded that was let in. False: there are none, or all have come.
    cdef bint begin(self, int32_t row, Group group, int64_t now_ns) except -1 nogil

    # Of a replica, by its number: it is to look at its queue, does so, ends its batch. A job has come.
    cdef int _call(self, Station station, int32_t replica, int64_t now_ns) except -1 nogil
    cdef int _begin_batch(self, Station station, int32_t replica, int64_t now_ns) except -1 nogil
    cdef int _end_batch(self, Station station, int32_t replica, int64_t now_ns) except -1 nogil
    cdef int _come(self, int32_t job, Group group, int64_t now_ns) except -1 nogil
