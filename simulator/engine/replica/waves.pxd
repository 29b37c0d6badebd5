"""Wave messages of ranks in lock step, between their front end, a coordinator and the ranks.

Ranks run in waves. If the front end sends a request while it believes the ranks idle, it notifies the coordinator,
which orders all ranks to start; the rank with the request starts without the order. In vLLM 0.33 the rank with the
request notifies the coordinator, and the front end does not. When the ranks agree that none has
unfinished requests, the wave is over, and rank 0 reports it. Each message takes `hop_ns`. So a request may arrive with
the number of a wave that has ended meanwhile: the rank that detects this has the next wave started.

Source: vLLM 0.32.0 and 0.33.0, vllm/v1/engine/core.py, DPEngineCoreProc; vllm/v1/engine/coordinator.py,
DPCoordinatorProc.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.event_queue cimport Event, EventQueue


cdef struct Message:
    int64_t time_ns             # when it is in the input queue of a rank
    int32_t wave
    int32_t row                 # the request that arrives; -1: the order to start
    int32_t excluded            # of an order: the rank that ignores it; -1: none


cdef struct Inbox:
    Message* messages           # [size] not taken yet, in order of time
    int32_t size
    int32_t room
    int32_t num_requests        # messages with a request


@cython.final
cdef class Waves:
    cdef int32_t _num_ranks
    cdef int64_t _hop_ns
    cdef EventQueue _events             # messages in transit to coordinator and front end
    cdef Inbox* _inboxes                # [rank]
    cdef int8_t* _is_running            # [rank] it forms batches, dummies if need be
    cdef int32_t* _wave                 # [rank] the wave it believes to be in
    cdef bint _engines_start            # 0.33: the rank with the first request starts a wave; the front end does not
    cdef bint _ran                      # rank 0 was running when the last step ended
    cdef int32_t _front_wave, _coordinator_wave
    cdef bint _front_believes, _coordinator_believes    # whether ranks run
    cdef list _log                      # None: no log

    # The front end sends a request to a rank at `now_ns`. forget: the request was withdrawn before the rank took it.
    cdef int arrive(self, int32_t rank, int32_t row, int64_t now_ns) except -1 nogil
    cdef void forget(self, int32_t rank, int32_t row) noexcept nogil

    # deliver: process messages that arrive by `now_ns`. take: a rank takes messages in its queue.
    cdef inline int deliver(self, int64_t now_ns) except -1 nogil:
        return self._deliver(now_ns) if self._events.next_time() <= now_ns else 0

    cdef inline int take(self, int32_t rank, int64_t now_ns) except -1 nogil:
        if self._inboxes[rank].size > 0 and self._inboxes[rank].messages[0].time_ns <= now_ns:
            return self._take(rank, now_ns)
        return 0

    cdef inline bint is_running(self, int32_t rank) noexcept nogil:
        return self._is_running[rank]

    # Return the number of requests that a rank has not taken yet.
    cdef inline int32_t num_untaken(self, int32_t rank) noexcept nogil:
        return self._inboxes[rank].num_requests

    # Return when the next message arrives; next_of: the next message that a rank takes. NEVER_NS: there is none.
    cdef inline int64_t next_ns(self) noexcept nogil:
        return self._events.next_time()

    cdef int64_t next_of(self, int32_t rank) noexcept nogil

    # A step has ended. `goes_on`: some rank has unfinished requests, or the ranks did not check.
    cdef int end_step(self, bint goes_on, int64_t now_ns) except -1 nogil

    # Return whether the order to start is void: all ranks run, or may start.
    cdef inline bint is_settled(self) noexcept nogil:
        return self._ran

    # go_on: all halted ranks run again. stand_still: all stop, and front end and coordinator believe so.
    cdef void go_on(self) noexcept nogil
    cdef void stand_still(self) noexcept nogil

    cdef int _deliver(self, int64_t now_ns) except -1 nogil
    cdef int _take(self, int32_t rank, int64_t now_ns) except -1 nogil
    cdef int _put(self, int32_t rank, Message message) except -1 nogil
    cdef int _start(self, int64_t now_ns, int32_t wave, int32_t excluded) except -1 nogil
    cdef int _hear(self, Event event) except -1 nogil
    cdef int _note(self, int64_t now_ns, int kind, int32_t wave, int32_t rank) except -1 nogil
