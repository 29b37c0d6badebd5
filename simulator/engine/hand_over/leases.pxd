"""KV leases: how long blocks wait to be read, with renewal by the replica that will read them."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.index_heap cimport IndexHeap


cdef enum:
    FREE_LEASE = -2             # row of an unused entry


cdef struct Lease:              # on the blocks of a prefill leg
    int64_t until_ns            # expiry, unless renewed
    int64_t heartbeats_since_ns  # renewals began then; -1: not renewed
    int32_t row                 # request with KV in the blocks; -1: it will not be read any more
    int32_t source              # replica with the blocks
    int32_t slot                # of the blocks, in that replica
    int32_t reader              # replica that reads for the request; -1: none yet
    int32_t carrier             # slot of the transport while they are read, else -1
    bint has_expired


@cython.final
cdef class Leases:
    cdef Lease* _leases                 # [index]
    cdef int32_t* _free                 # [_num_free] a stack
    cdef int32_t _num_free
    cdef readonly int32_t room          # number of entries
    cdef int64_t _order                 # of the lease that begins next
    cdef IndexHeap _due                  # leases that are not renewed
    cdef int32_t* _held                 # [replica] leases on its blocks
    cdef int64_t _lease_ns, _heartbeat_ns, _extension_ns

    # Return when the first lease runs out; NEVER_NS: none does.
    cdef inline int64_t next_ns(self) noexcept nogil:
        return self._due.next_ns()

    cdef inline Lease* at(self, int32_t index) noexcept nogil:
        return &self._leases[index]

    cdef inline bint is_on(self, int32_t index) noexcept nogil:
        return self._leases[index].row != FREE_LEASE

    # A prefill leg has ended, and its blocks in `slot` stay; return the lease.
    cdef int32_t begin(self, int32_t row, int32_t source, int32_t slot, int64_t now_ns) except -1 nogil

    # Renew a lease from now on, the first time at once. fall_silent: no more, after the last renewal before `now_ns`.
    cdef void renew(self, int32_t index, int64_t now_ns) noexcept nogil
    cdef void fall_silent(self, int32_t index, int64_t now_ns) noexcept nogil
    cdef void end(self, int32_t index) noexcept nogil

    # Take a lease that has run out by `now_ns`; it stays in the book until `end`. -1: there is none.
    cdef int32_t take(self, int64_t now_ns) noexcept nogil

    cdef int _grow(self) except -1 nogil
