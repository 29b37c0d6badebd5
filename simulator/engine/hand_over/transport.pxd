"""KV transfers between replicas, over links that they share.

A transfer begins with a time that occupies no link, the `base`; then its bytes flow. There are four models of the
effect of transfers on each other, by name:
  fair      flows share links max-min fairly (collective/flow/fair_share)
  none      each transfer has the links for itself
  at_start  each gets the rate of its path divided by the number of transfers under way when it begins, itself included,
            and keeps it. Source: BLIS, sim/cluster (specification, B.11)
  fifo      one after the other into a replica, the base included
The end of a transfer is known when it begins, except for `fair`, where each beginning and each end may move others.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.collective.flow.fair_share cimport FairShare
from simulator.core.index_heap cimport IndexHeap


cdef enum Contention:           # by index in CONTENTIONS in transport.pyx
    FAIR
    NONE
    AT_START
    FIFO


cdef enum:
    MAX_HOPS = 4                # links of a path


cdef struct Transit:            # a transfer in progress, identified by its slot
    double left_bytes           # to flow, at since_ns
    double rate                 # bytes per ns
    int64_t since_ns            # when its rate last changed
    int32_t row                 # request of the KV; -1: the slot is free
    int32_t source              # replicas
    int32_t destination
    int32_t num_links           # of its path
    int32_t links[MAX_HOPS]
    bint flows                  # fair: the base is over


@cython.final
cdef class Transport:
    cdef readonly int32_t num_under_way
    cdef readonly int32_t peak_under_way
    cdef readonly int64_t num_begun         # transfers, each counted once, in however many parts
    cdef readonly int64_t depths            # sum over transfers: number in progress when it had begun, itself included
    cdef Contention _contention
    cdef int64_t _base_ns, _resolution_ns
    cdef Transit* _transits             # [slot]
    cdef int32_t* _free                 # [_num_free] slots, a stack
    cdef int32_t _num_free, _room
    cdef int64_t _order                 # of the transfer that begins next
    cdef IndexHeap _due                  # next change of each transfer: its base is over, or all bytes have arrived
    cdef FairShare _share               # None unless FAIR
    cdef const double[::1] _capacities  # [link] bytes per ns
    cdef const int32_t[:, ::1] _ends    # [replica][OUT, INTO, INNER_OUT, INNER_INTO, DOMAIN, POOL], see plan.Network
    cdef const int32_t[:, ::1] _narrow  # [replica][pool of the other end] a link of some of its cards; -1: all are used
    cdef int64_t[::1] _busy_until_ns    # [replica] FIFO: when the last transfer into it ends

    # begin: begin a transfer of `num_bytes`; return its slot. go_on: the same without the base.
    cdef int32_t begin(self, int32_t row, int32_t source, int32_t destination, double num_bytes,
                       int64_t now_ns) except -1 nogil
    cdef int32_t go_on(self, int32_t row, int32_t source, int32_t destination, double num_bytes,
                       int64_t now_ns) except -1 nogil
    cdef int32_t _begin(self, int32_t row, int32_t source, int32_t destination, double num_bytes, int64_t base_ns,
                        int64_t now_ns) except -1 nogil

    # Cancel a transfer.
    cdef int stop(self, int32_t slot, int64_t now_ns) except -1 nogil

    # Return when the next change is due; NEVER_NS: no transfer is in progress.
    cdef inline int64_t next_ns(self) noexcept nogil:
        return self._due.next_ns()

    # Process changes due at `now_ns` up to the next end of a transfer: return its row; -1: no more transfer ends.
    cdef int32_t take(self, int64_t now_ns) except -2 nogil

    # Return the time for `num_bytes` with no other transfer in progress, the base included.
    cdef int64_t alone_ns(self, int32_t source, int32_t destination, double num_bytes) noexcept nogil

    cdef int32_t _path(self, int32_t source, int32_t destination, int32_t* links) noexcept nogil
    cdef double _rate(self, const int32_t* links, int32_t num_links) noexcept nogil
    cdef int64_t _rounded_ns(self, int64_t end_ns, int64_t now_ns) noexcept nogil
    cdef int32_t _occupy(self) except -1 nogil
    cdef void _vacate(self, int32_t slot) noexcept nogil
    cdef void _let_flow(self, int64_t now_ns) noexcept nogil
    cdef void _go_on(self, int64_t now_ns) noexcept nogil
