"""Records of the requests at each replica: all, in flight (not yet in a status), and prefill legs."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.domain.request cimport Request
from simulator.routing.llumnix.candidates cimport Candidate, Candidates


cdef struct Dispatch:               # one request at one replica
    int64_t sent_ns
    int64_t tokens                  # of its prompt; in lite mode of its text, as far as reported
    int64_t uncomputed_tokens       # of its prompt, without cache hits where they are looked up
    int32_t row                     # of the request
    int32_t replica
    int32_t gateway                 # lite mode: the gateway that sent it
    int32_t next_of_replica         # the next dispatch to this replica; -1: none; as in the next two
    int32_t previous_of_replica
    int32_t next_of_row             # the next dispatch of this request, elsewhere
    int8_t infer_type               # the role in which it was sent; NEUTRAL: both
    int8_t is_found                 # a status has shown it: no longer counted, but remembered while it waits
    int8_t was_waiting              # the last status shows it among requests that waited lately
    int8_t is_waiting               # ... among requests that wait
    int8_t is_prefilled             # lite mode: it has its first token


cdef class Dispatches:
    cdef Dispatch* items
    cdef int32_t* first_of_replica  # [replica]; -1: none
    cdef int32_t* first_of_row      # [row]
    cdef int32_t _room
    cdef int32_t _free              # first unused item, linked by next_of_replica
    cdef int32_t _num_replicas
    cdef int32_t _num_rows

    # The dispatch of a request to a replica; -1: none.
    cdef inline int32_t find(self, int32_t row, int32_t replica) noexcept nogil:
        cdef int32_t index = self.first_of_row[row]
        while index >= 0 and self.items[index].replica != replica:
            index = self.items[index].next_of_row
        return index

    # A new record, all zero but for these two.
    cdef int32_t insert(self, int32_t row, int32_t replica) except -1 nogil

    cdef void drop(self, int32_t index) noexcept nogil

    cdef int _grow(self) except -1 nogil

    # Raise RuntimeError if a record is not in the lists of its replica and its request, nor unused.
    cpdef int check(self) except -1


@cython.final
cdef class LocalAccount(Dispatches):
    cdef Candidates _candidates     # it keeps their in-flight fields
    cdef Candidate* _replicas       # the items of _candidates
    cdef bint _is_cache_aware
    cdef bint _leaks                # as upstream: a reverted prefill stays in in_flight, and a request that returns
                                    # while its last visit is remembered is not counted
    cdef int64_t _staleness_s

    # A request was sent. Ignored: a second time in one role, or after both roles.
    cdef int add(self, int32_t row, int32_t replica, int8_t infer_type, int64_t tokens, int64_t hit_tokens,
                 int64_t now_ns) except -1 nogil

    # Revert `add` for a prefill without a decode.
    cdef int revert_prefill(self, int32_t row, int32_t replica) except -1 nogil

    # Forget a request at one replica, or, replica < 0, everywhere.
    cdef void remove(self, int32_t row, int32_t replica) noexcept nogil

    # A replica has restarted, empty.
    cdef void restart(self, int32_t replica) noexcept nogil

    # Compare with a newer status of the replica, by was_waiting and is_waiting of its dispatches. If hits are looked up
    # and `waiting` requests wait, their tokens to compute are replaced by this account's values.
    cdef void reconcile(self, int32_t replica, int32_t waiting, int64_t now_ns) noexcept nogil

    cdef void _count(self, const Dispatch* one, int8_t infer_type, int32_t sign) noexcept nogil


cdef struct LegCount:               # of a replica
    int64_t tokens                  # of prompts
    int32_t requests                # in the waiting queue, or running
    int32_t spare


@cython.final
cdef class LegCounts(Dispatches):
    cdef LegCount* seen             # [replica] as of the last `count`; pushed: as of the last `push`
    cdef LegCount* pushed
    cdef const Request* _legs       # [row] state of prefill legs
    cdef object _owner

    # A prefill leg was sent; it has left.
    cdef int sent(self, int32_t row, int32_t replica) except -1 nogil
    cdef void left(self, int32_t row, int32_t replica) noexcept nogil

    # Count the legs that replicas have now; keep that count for later readers.
    cdef void count(self) noexcept nogil
    cdef void push(self) noexcept nogil
