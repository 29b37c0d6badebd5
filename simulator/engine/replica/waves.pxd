"""Who knows when that ranks in lock step run: messages between their front end, a coordinator and the ranks.

Ranks run in waves. Somebody who sends a request while he believes them idle tells the coordinator, who tells all ranks
to start; a rank that has the request needs no telling. When the ranks agree that nobody has unfinished requests, the
wave is over, and rank 0 says so. Each message takes `hop_ns` on its way. So a request may come with the number of a
wave that has ended meanwhile: the rank that finds it has the next one started.

Source: vLLM 0.32.0, vllm/v1/engine/core.py, DPEngineCoreProc; vllm/v1/engine/coordinator.py, DPCoordinatorProc.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.event_queue cimport Event, EventQueue


cdef struct Message:
    int64_t time_ns             # when it is in the input queue of a rank
    int32_t wave
    int32_t row                 # the request that comes; -1: the order to start
    int32_t excluded            # of an order: the rank that it does not concern; -1: none


cdef struct Inbox:
    Message* messages           # [size] not taken yet, in order of time
    int32_t size
    int32_t room
    int32_t num_requests        # of them


@cython.final
cdef class Waves:
    cdef int32_t _num_ranks
    cdef int64_t _hop_ns
    cdef EventQueue _events             # messages on their way to coordinator and front end
    cdef Inbox* _inboxes                # [rank]
    cdef int8_t* _is_running            # [rank] it forms batches, dummies if need be
    cdef int32_t* _wave                 # [rank] that it believes to be on
    cdef bint _ran                      # rank 0 did when the last step ended
    cdef int32_t _front_wave, _coordinator_wave
    cdef bint _front_believes, _coordinator_believes    # that ranks run
    cdef list _log                      # None: nobody wants to know

    # The front end sends a request to a rank at `now_ns`; it was withdrawn before the rank took it.
    cdef int arrive(self, int32_t rank, int32_t row, int64_t now_ns) except -1 nogil
    cdef void forget(self, int32_t rank, int32_t row) noexcept nogil

    # Let messages arrive that do by `now_ns`; a rank takes those in its queue.
    cdef inline int deliver(self, int64_t now_ns) except -1 nogil:
        return self._deliver(now_ns) if self._events.next_time() <= now_ns else 0

    cdef inline int take(self, int32_t rank, int64_t now_ns) except -1 nogil:
        if self._inboxes[rank].size > 0 and self._inboxes[rank].messages[0].time_ns <= now_ns:
            return self._take(rank, now_ns)
        return 0

    cdef inline bint is_running(self, int32_t rank) noexcept nogil:
        return self._is_running[rank]

    # Requests that a rank has not taken yet.
    cdef inline int32_t num_untaken(self, int32_t rank) noexcept nogil:
        return self._inboxes[rank].num_requests

    # When the next message arrives; when that is which a rank takes next. NEVER_NS: there is none.
    cdef inline int64_t next_ns(self) noexcept nogil:
        return self._events.next_time()

    cdef int64_t next_of(self, int32_t rank) noexcept nogil

    # A step has ended. `goes_on`: some rank has unfinished requests, or nobody asked.
    cdef int end_step(self, bint goes_on, int64_t now_ns) except -1 nogil

    # The order to start need not be told any more: all run or know that they may.
    cdef inline bint is_settled(self) noexcept nogil:
        return self._ran

    # Ranks that stand still go on together; all stand still, and nobody believes otherwise.
    cdef void go_on(self) noexcept nogil
    cdef void stand_still(self) noexcept nogil

    cdef int _deliver(self, int64_t now_ns) except -1 nogil
    cdef int _take(self, int32_t rank, int64_t now_ns) except -1 nogil
    cdef int _put(self, int32_t rank, Message message) except -1 nogil
    cdef int _start(self, int64_t now_ns, int32_t wave, int32_t excluded) except -1 nogil
    cdef int _hear(self, Event event) except -1 nogil
    cdef int _note(self, int64_t now_ns, int kind, int32_t wave, int32_t rank) except -1 nogil
