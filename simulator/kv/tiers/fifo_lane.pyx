"""`fifo`: copies of one direction run one after the other, each at the full bandwidth of the link.

Source: the behaviour of vLLM 0.32.0, vllm/v1/kv_offload/cpu/gpu_worker.py, which has one stream for each direction and
waits there for the copy before.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free
cimport cython

from simulator.core.arithmetic cimport round_half_up
from simulator.core.clock cimport NEVER_NS
from simulator.core.memory cimport resize
from simulator.kv.tiers.lane cimport Lane


cdef struct Queued:
    int64_t end_ns
    int32_t copy
    int32_t spare


@cython.final
cdef class FifoLane(Lane):
    """A queue of copies with known ends."""

    cdef Queued* _queue         # [_room] a ring
    cdef int32_t _first, _size, _room
    cdef int64_t _free_ns       # when the last copy ends

    def __dealloc__(self):
        free(self._queue)

    cdef int begin(self, int32_t copy, int64_t num_blocks, int64_t now_ns) except -1 nogil:
        cdef Queued* it
        cdef int32_t place
        if self._size == self._room:
            self._grow()
        self._free_ns = max(self._free_ns, now_ns) + round_half_up(
            self._base_ns + self._per_block_ns * <double>num_blocks)
        place = self._first + self._size
        it = &self._queue[place if place < self._room else place - self._room]
        it.end_ns, it.copy = self._free_ns, copy
        if self._size == 0:
            self._next_end_ns = self._free_ns
        self._size += 1
        return 0

    cdef int _grow(self) except -1 nogil:
        cdef int32_t before = self._room, i
        resize(&self._queue, (2 * before + 8) * sizeof(Queued))
        for i in range(self._first):                    # the part that had wrapped around continues behind the rest
            self._queue[before + i] = self._queue[i]
        self._room = 2 * before + 8
        return 0

    cdef double busy_ns(self, int64_t num_copies, int64_t num_blocks) noexcept nogil:
        return self._base_ns * <double>num_copies + self._per_block_ns * <double>num_blocks

    cdef int64_t end_ns(self, int32_t copy) except -2 nogil:
        cdef int32_t i
        for i in range(self._size):
            if self._queue[(self._first + i) % self._room].copy == copy:
                return self._queue[(self._first + i) % self._room].end_ns
        return -1

    cdef int32_t take(self, int64_t until_ns) except -2 nogil:
        cdef int32_t copy
        if self._next_end_ns > until_ns or self._size == 0:
            return -1
        copy = self._queue[self._first].copy
        self._first = self._first + 1 if self._first + 1 < self._room else 0
        self._size -= 1
        self._next_end_ns = self._queue[self._first].end_ns if self._size > 0 else NEVER_NS
        return copy

    cdef void clear(self) noexcept nogil:
        self._first = self._size = 0
        self._free_ns, self._next_end_ns = 0, NEVER_NS
