"""KV on its way from replica to replica: transfers over links that they share.

A transfer begins with a time that occupies no link, the `base`; then its bytes flow. Four models of what transfers do
to each other, by name:
  fair      flows share links max-min fairly (collective/flow/fair_share)
  none      each has the links for itself
  at_start  each gets the rate of its path divided by the number of transfers under way when it begins, itself included,
            and keeps it. Source: BLIS, sim/cluster (specification, B.11)
  fifo      one after the other into a replica, the base included
Where a transfer comes to its end is known at once but for `fair`, where each beginning and each end may move others.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.collective.flow.fair_share cimport FairShare
from simulator.core.slot_heap cimport SlotHeap


cdef enum Contention:           # in the order of CONTENTIONS in plan.py
    FAIR
    NONE
    AT_START
    FIFO


cdef enum:
    MAX_HOPS = 4                # links of a path


cdef struct Transit:            # a transfer under way; known by its slot
    double left_bytes           # to flow, at since_ns
    double rate                 # bytes per ns
    int64_t since_ns            # when its rate last changed
    int32_t row                 # whose KV it is; -1: the slot is free
    int32_t source              # replicas
    int32_t destination
    int32_t num_links           # of its path
    int32_t links[MAX_HOPS]
    bint flows                  # fair: the base is over


@cython.final
cdef class Transport:
    cdef readonly int32_t num_under_way
    cdef readonly int32_t peak_under_way
    cdef readonly int64_t num_begun         # transfers, each once, in however many parts
    cdef readonly int64_t depths            # sum over these: under way when it had begun, itself included
    cdef Contention _contention
    cdef int64_t _base_ns, _resolution_ns
    cdef Transit* _transits             # [slot]
    cdef int32_t* _free                 # [_num_free] slots, a stack
    cdef int32_t _num_free, _room
    cdef int64_t _order                 # of the transfer that begins next
    cdef SlotHeap _due                  # when each has its next change: the base is over, or all has come
    cdef FairShare _share               # None unless FAIR
    cdef const double[::1] _capacities  # [link] bytes per ns
    cdef const int32_t[:, ::1] _ends    # [replica][OUT, INTO, INNER_OUT, INNER_INTO, DOMAIN, POOL], see plan.Network
    cdef const int32_t[:, ::1] _narrow  # [replica][pool of the other end] a link of some of its cards; -1: all are used
    cdef int64_t[::1] _busy_until_ns    # [replica] FIFO: when the last that began into it ends

    # A transfer of so many bytes begins; return its slot. The same without the base.
    cdef int32_t begin(self, int32_t row, int32_t source, int32_t destination, double num_bytes,
                       int64_t now_ns) except -1 nogil
    cdef int32_t go_on(self, int32_t row, int32_t source, int32_t destination, double num_bytes,
                       int64_t now_ns) except -1 nogil
    cdef int32_t _begin(self, int32_t row, int32_t source, int32_t destination, double num_bytes, int64_t base_ns,
                        int64_t now_ns) except -1 nogil

    # It does not come to its end.
    cdef int stop(self, int32_t slot, int64_t now_ns) except -1 nogil

    # When something changes next; NEVER_NS: nothing is under way.
    cdef inline int64_t next_ns(self) noexcept nogil:
        return self._due.next_ns()

    # Do what is due at `now_ns`, until a transfer comes to its end: its row; -1: none does any more.
    cdef int32_t take(self, int64_t now_ns) except -2 nogil

    # How long so many bytes take if nothing else is under way, the base included.
    cdef int64_t alone_ns(self, int32_t source, int32_t destination, double num_bytes) noexcept nogil

    cdef int32_t _path(self, int32_t source, int32_t destination, int32_t* links) noexcept nogil
    cdef double _rate(self, const int32_t* links, int32_t num_links) noexcept nogil
    cdef int64_t _rounded_ns(self, int64_t end_ns, int64_t now_ns) noexcept nogil
    cdef int32_t _occupy(self) except -1 nogil
    cdef void _vacate(self, int32_t slot) noexcept nogil
    cdef void _let_flow(self, int64_t now_ns) noexcept nogil
    cdef void _go_on(self, int64_t now_ns) noexcept nogil
