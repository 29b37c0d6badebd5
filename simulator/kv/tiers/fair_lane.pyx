"""`fair`: copies of one direction share the bandwidth of a link equally, from instant to instant.

With n copies under way each gets an n-th of the bandwidth; the time before the first byte takes none. The work of a
copy is the time that it would take alone; `_virtual_ns` is the work done of every copy under way since some instant, so
that a copy ends when it has grown by its work (processor sharing; Kleinrock, Queueing Systems II, 4.4).
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memmove
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.core.memory cimport resize
from simulator.kv.tiers.lane cimport Lane


cdef struct Shared:
    double key                  # while it waits for its first byte: when that arrives; under way: the virtual end
    double work_ns
    int64_t end_ns              # once it has ended
    int32_t copy
    int32_t spare


cdef struct Row:                # sorted by key, equal ones in order of insertion
    Shared* copies              # [size]
    int32_t size
    int32_t room


cdef int insert(Row* row, Shared it) except -1 nogil:
    cdef int32_t low = 0, high = row.size, middle
    if row.size == row.room:
        resize(&row.copies, (2 * row.room + 8) * sizeof(Shared))
        row.room = 2 * row.room + 8
    while low < high:
        middle = (low + high) // 2
        if row.copies[middle].key <= it.key:
            low = middle + 1
        else:
            high = middle
    memmove(row.copies + low + 1, row.copies + low, (row.size - low) * sizeof(Shared))
    row.copies[low] = it
    row.size += 1
    return 0


cdef Shared pop(Row* row) noexcept nogil:
    cdef Shared it = row.copies[0]
    row.size -= 1
    memmove(row.copies, row.copies + 1, row.size * sizeof(Shared))
    return it


cdef int duplicate(Row* row) except -1 nogil:
    """Give a row memory of its own, with the same entries."""
    cdef const Shared* copies = row.copies
    row.copies, row.room = NULL, row.size
    if row.size > 0:
        resize(&row.copies, row.size * sizeof(Shared))
        memcpy(row.copies, copies, row.size * sizeof(Shared))
    return 0


cdef inline int64_t instant(double time_ns) noexcept nogil:
    """Return the nanosecond in which an event falls; sums of shares may lack a billionth of one."""
    cdef int64_t whole = <int64_t>(time_ns + 1e-3)
    return whole + (time_ns - <double>whole > 1e-3)


@cython.final
cdef class FairLane(Lane):
    """Copies at equal rates."""

    cdef Row _waiting           # for their first byte
    cdef Row _active
    cdef Row _ended             # in order of their end
    cdef double _now_ns         # the instant up to which the lane is simulated
    cdef double _virtual_ns

    def __dealloc__(self):
        free(self._waiting.copies)
        free(self._active.copies)
        free(self._ended.copies)

    cdef int begin(self, int32_t copy, int64_t num_blocks, int64_t now_ns) except -1 nogil:
        cdef double ready_ns = max(<double>now_ns + self._base_ns, self._now_ns)
        insert(&self._waiting, Shared(ready_ns, self._per_block_ns * <double>num_blocks, -1, copy, 0))
        self._note_next_end()
        return 0

    cdef double _next_end(self) noexcept nogil:
        """Return when the first copy under way gets its last byte."""
        return self._now_ns + (self._active.copies[0].key - self._virtual_ns) * <double>self._active.size

    cdef double _next_change(self) noexcept nogil:
        """Return when the next copy gets its first byte or its last one."""
        cdef double change_ns = <double>NEVER_NS
        if self._waiting.size > 0:
            change_ns = self._waiting.copies[0].key
        return min(change_ns, self._next_end()) if self._active.size > 0 else change_ns

    cdef int _go_on(self) except -1 nogil:
        """Let time pass until the next change, which then happens."""
        cdef Shared it
        cdef double until_ns = self._next_change()
        if self._active.size > 0 and self._next_end() <= until_ns:
            it = pop(&self._active)
            self._virtual_ns = it.key if self._active.size > 0 else 0.0     # not a sum that may lack a bit of it
            it.end_ns = instant(until_ns)
            it.key = <double>it.end_ns
            insert(&self._ended, it)
        else:
            if self._active.size > 0:
                self._virtual_ns += (until_ns - self._now_ns) / <double>self._active.size
            it = pop(&self._waiting)
            it.key = self._virtual_ns + it.work_ns
            insert(&self._active, it)
        self._now_ns = until_ns
        return 0

    cdef int32_t take(self, int64_t until_ns) except -2 nogil:
        cdef int32_t copy = -1
        while self._next_change() <= <double>until_ns + 1e-3:
            self._go_on()
        if self._ended.size > 0 and self._ended.copies[0].end_ns <= until_ns:
            copy = pop(&self._ended).copy
        self._note_next_end()
        return copy

    cdef void _note_next_end(self) noexcept nogil:
        self._next_end_ns = NEVER_NS
        if self._ended.size > 0:
            self._next_end_ns = self._ended.copies[0].end_ns
        elif self._waiting.size + self._active.size > 0:
            self._next_end_ns = instant(self._next_change())

    cdef int64_t end_ns(self, int32_t copy) except -2 nogil:
        """Let time pass in a copy of the lane's state."""
        cdef Row waiting = self._waiting, active = self._active, ended = self._ended
        cdef double now_ns = self._now_ns, virtual_ns = self._virtual_ns
        cdef int64_t end_ns = -1
        cdef int32_t i
        duplicate(&self._waiting)
        duplicate(&self._active)
        duplicate(&self._ended)
        while self._waiting.size + self._active.size > 0:
            self._go_on()
        for i in range(self._ended.size):
            if self._ended.copies[i].copy == copy:
                end_ns = self._ended.copies[i].end_ns
        free(self._waiting.copies)
        free(self._active.copies)
        free(self._ended.copies)
        self._waiting, self._active, self._ended = waiting, active, ended
        self._now_ns, self._virtual_ns = now_ns, virtual_ns
        return end_ns

    cdef void clear(self) noexcept nogil:
        self._waiting.size = self._active.size = self._ended.size = 0
        self._virtual_ns, self._next_end_ns = 0.0, NEVER_NS
