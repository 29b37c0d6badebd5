"""The time that messages take on a network where flows share links max-min fairly."""
cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t

from simulator.collective.flow.plan cimport Plan
from simulator.collective.flow.routes cimport Routes
from simulator.collective.flow.fair_share cimport FairShare
from simulator.core.index_heap cimport IndexHeap


cdef struct Sending:            # a message that waits for its start, or is on its way
    double left_bytes           # on the wire, headers included, at since_ns
    double since_ns             # when its rate last changed
    double rate                 # bytes per ns
    double began_ns             # when its first byte left
    double tail_ns              # from its last byte leaving to its acknowledgement
    int32_t lane, step


cdef packed struct MessageRow:  # of the record
    int32_t lane, step
    double began_ns             # the send latency is over
    double left_ns              # the last byte has left
    double done_ns              # acknowledged: what waits for it may begin
    double wire_bytes


@cython.final
cdef class FlowNetwork:
    cdef readonly Routes routes
    cdef readonly FairShare share
    cdef IndexHeap _starts, _ends       # slots, by the bits of their times: doubles >= 0 are ordered as their bits
    cdef Sending* _sendings             # by slot
    cdef int32_t* _free                 # stack of free slots
    cdef int32_t _num_free, _room
    cdef int32_t _max_hops
    cdef double _send_latency_ns, _packet_bytes, _header_bytes
    cdef double _end_ns                 # of the messages so far
    cdef readonly int64_t num_solves, num_rates         # of the last run: times shared out, rates set by that
    cdef public bint checks             # check everything at every instant; debug builds always do
    cdef Plan _plan
    cdef int32_t[::1] _waiting          # messages that each join still waits for
    cdef double[::1] _joined_ns         # the latest end of the messages done
    cdef MessageRow[::1] _record        # where asked for
    cdef int64_t _num_recorded
    cdef bint _records
    cdef double _num_bytes

    # Nanoseconds from the start of a collective of so many bytes, in 0 .. 1e18, to its end; the plan has passed
    # check_routes. -1 with an exception set.
    cdef double run(self, Plan plan, double num_bytes) except -1 nogil

    cdef int _reset(self, Plan plan, double num_bytes) except -1
    cdef int _pend(self, int32_t lane, int32_t step, double time_ns) except -1 nogil
    cdef int _begin(self, int32_t slot, double now_ns) except -1 nogil
    cdef int _finish(self, int32_t slot, double now_ns) except -1 nogil
    cdef int _arrive(self, int32_t lane, int32_t step, double time_ns) except -1 nogil
    cdef int _advance(self, double now_ns) except -1 nogil
    cdef int _share_out(self, double now_ns) except -1 nogil
    cdef void _write(self, const Sending* sending, double now_ns) noexcept nogil
    cdef int _grow(self) except -1 nogil
