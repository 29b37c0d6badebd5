"""Max-min fair rates of flows on links, updated as flows begin and end.

Rates are max-min fair if and only if every flow has a bottleneck: a full link on which no flow is faster (Bertsekas and
Gallager, Data Networks, 2nd edition, 6.5.2). After a change, flows that lost their bottleneck are shared out again by
progressive filling, with all others held; flows that lose their own bottleneck by that join, until none does. By the
theorem the result is exact, and the work is in proportion to what changes.
"""
cimport cython
from libc.stdint cimport int32_t, int64_t


cdef struct Link:
    double capacity             # bytes per ns
    double residual             # while filling: what flows with fixed rates leave
    double share                # rate of the flows that it held back in the last filling; -1: none
    int32_t first               # hop of a flow that passes here; -1: none
    int32_t num_flows
    int32_t num_held            # flows with this link as bottleneck
    int32_t num_open            # while filling: flows without a rate yet
    int32_t num_affected        # while filling: flows that are shared out again
    int64_t round               # in which its fields for filling were set
    bint is_changed             # a flow left since the last solve


cdef struct Hop:                # of a flow over a link, in the link's list; those of slot s begin at s * max_hops
    int32_t link
    int32_t next, previous      # hops on the same link; -1: none


cdef struct Flow:
    double rate                 # bytes per ns
    int64_t solve               # in which it was last affected
    int32_t bottleneck          # link; -1: not known yet
    int32_t num_hops            # 0: the slot is free
    bint is_open                # while filling: has no rate yet


cdef struct Offer:              # of a link to the flows that it might hold back
    double share
    int32_t link


@cython.final
cdef class FairShare:
    cdef Link* _links
    cdef int32_t num_links, _max_hops
    cdef Flow* flows            # by slot
    cdef Hop* _hops
    cdef readonly int32_t room  # slots
    cdef int64_t _solve, _round
    cdef int32_t* _changed      # links that a flow left
    cdef int32_t _num_changed
    cdef int32_t* affected      # slots with rates of the last solve; the owner reads them and sets num_affected to 0
    cdef int32_t num_affected
    cdef int32_t* _touched      # links that affected flows pass
    cdef int32_t _num_touched
    cdef Offer* _offers         # heap, lowest share first
    cdef int32_t _num_offers

    # Make room for slots below `room`. -1 without memory.
    cdef int reserve(self, int32_t room) except -1 nogil

    # A flow begins in a free slot, over 1 .. max_hops different links; it has no rate before the next solve.
    cdef void attach(self, int32_t slot, const int32_t* links, int32_t num_hops) noexcept nogil

    # A flow ends; its slot is free.
    cdef void detach(self, int32_t slot) noexcept nogil

    # Give all flows their fair rates; `affected` lists flows with rates that may have changed.
    cdef void solve(self) noexcept nogil

    # Forget all flows.
    cdef void clear(self) noexcept nogil

    cdef void _affect(self, int32_t slot) noexcept nogil
    cdef void _collect(self) noexcept nogil
    cdef void _touch(self) noexcept nogil
    cdef void _open(self, int32_t link) noexcept nogil
    cdef void _fill(self) noexcept nogil
    cdef void _freeze(self, int32_t link, double share) noexcept nogil
    cdef int32_t _widen(self) noexcept nogil
    cdef int32_t _widen_at(self, Link* link, int32_t number) noexcept nogil
    cdef void _sift_down(self, int32_t hole) noexcept nogil

    # Raise RuntimeError unless rates are feasible and every flow has a bottleneck.
    cpdef int check(self) except -1 nogil
