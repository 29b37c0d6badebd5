"""KV on the way between a replica's blocks and its tier, and when the replica takes notice of it.

Two kinds: loads of requests that wait for them with their blocks, and blocks of completed requests that the tier still
reads. What has come is noticed when an iteration ends, or at once while nothing executes. Where the tier is told of
each step, a step polls when it is launched, as vLLM's workers do then, and reports when it ends.
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
    cdef Event* _polled                 # [num_polled % room] what steps have seen and not reported
    cdef int64_t _room                  # a power of two
    cdef int64_t _num_taken             # of num_polled, reported
    cdef readonly int64_t num_polled    # so far
    cdef object _log                    # (what, row, tokens) of what happened, for the debug face; None: not kept

    # Tell the debug face: tokens are loaded "later" or "now", they "came", blocks of a request were "read".
    cdef inline int tell(self, const char* what, int32_t row, int64_t tokens) except -1 nogil:
        return self._write_down(what, row, tokens) if self._log is not None else 0

    # What is on the way to or from the blocks of `slot` is done at `done_ns`; NEVER_NS: told again when that is known.
    cdef inline int begin(self, TransferKind kind, int32_t slot, int64_t done_ns) except -1 nogil:
        return self._queue.push(done_ns, 0, kind, slot, 0) if done_ns < NEVER_NS else 0

    # When the first is done; NEVER_NS: there are none.
    cdef inline int64_t next_ns(self) noexcept nogil:
        return self._queue.next_time()

    # Take out the first that is done by `now_ns`: its slot, and in `kind` what it was; -1: there is none.
    cdef int32_t take(self, int64_t now_ns, int32_t* kind) noexcept nogil

    # A step is launched: it has seen what is done by then; return `num_polled`. Take out the first of what was seen
    # and is not reported, up to that number, like `take`.
    cdef inline int64_t poll(self, int64_t now_ns) except -1 nogil:
        return self._poll(now_ns) if self.next_ns() <= now_ns else self.num_polled

    cdef int32_t take_polled(self, int64_t num_polled, int32_t* kind) noexcept nogil

    # All that was seen is reported.
    cdef inline bint is_quiet(self) noexcept nogil:
        return self._num_taken == self.num_polled

    cdef int64_t _poll(self, int64_t now_ns) except -1 nogil
    cdef int _grow(self) except -1 nogil
    cdef int _write_down(self, const char* what, int32_t row, int64_t tokens) except -1 nogil

    # Forget all, as a failure does.
    cdef inline void clear(self) noexcept nogil:
        self._queue.clear()
        self._num_taken = self.num_polled
