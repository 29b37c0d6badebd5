"""KV transfers between a replica's blocks and its tier, and when the scheduler learns of their ends.

There are loads, for requests that wait holding their blocks, and reads by the tier of blocks of completed requests.
An end is noticed when an iteration ends, or at once while nothing executes. If the tier is notified of each step, a
step polls when it is launched, as vLLM's workers do, and reports when it ends.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.core.event_queue cimport Event, EventQueue


cdef enum TransferKind:
    LOAD                        # KV of a sequence that waits for it
    KEEP                        # the tier reads the blocks of a completed request


@cython.final
cdef class Transfers:
    cdef EventQueue _queue
    cdef Event* _polled                 # [num_polled % room] ends seen by steps and not reported
    cdef int64_t _room                  # a power of two
    cdef int64_t _num_taken             # ends reported so far
    cdef readonly int64_t num_polled    # ends seen so far
    cdef object _log                    # (event, row, tokens) for the debug face; None: not kept

    # Log an event: tokens are loaded "later" or "now", they "came", blocks of a request were "read".
    cdef inline int tell(self, const char* what, int32_t row, int64_t tokens) except -1 nogil:
        return self._write_down(what, row, tokens) if self._log is not None else 0

    # A transfer to or from the blocks of `slot` ends at `done_ns`; NEVER_NS: not known yet, so begin() is called again.
    cdef inline int begin(self, TransferKind kind, int32_t slot, int64_t done_ns) except -1 nogil:
        return self._queue.push(done_ns, 0, kind, slot, 0) if done_ns < NEVER_NS else 0

    # The end of the first transfer; NEVER_NS: there is none.
    cdef inline int64_t next_ns(self) noexcept nogil:
        return self._queue.next_time()

    # Remove the first transfer that has ended by `now_ns`; return its slot, and its kind in `kind`; -1: there is none.
    cdef int32_t take(self, int64_t now_ns, int32_t* kind) noexcept nogil

    # A step is launched, and sees transfers that have ended by then; return `num_polled`. `take_polled` removes the
    # first one seen and not reported, up to that number, like `take`.
    cdef inline int64_t poll(self, int64_t now_ns) except -1 nogil:
        return self._poll(now_ns) if self.next_ns() <= now_ns else self.num_polled

    cdef int32_t take_polled(self, int64_t num_polled, int32_t* kind) noexcept nogil

    # Are all ends seen by steps reported?
    cdef inline bint is_quiet(self) noexcept nogil:
        return self._num_taken == self.num_polled

    cdef int64_t _poll(self, int64_t now_ns) except -1 nogil
    cdef int _grow(self) except -1 nogil
    cdef int _write_down(self, const char* what, int32_t row, int64_t tokens) except -1 nogil

    # Drop all, after a failure.
    cdef inline void clear(self) noexcept nogil:
        self._queue.clear()
        self._num_taken = self.num_polled
