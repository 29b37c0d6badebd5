"""Sums of the tokens that members may still generate."""
from libc.stdlib cimport free
from libc.string cimport memset
cimport cython

from simulator.core.memory cimport resize


@cython.final
cdef class Owed:
    """Tokens left of answers, by slot; see sglang_owed.pxd."""

    def __cinit__(self):
        self._far = FinishHeap()

    def __dealloc__(self):
        free(self._debts)

    cdef int reserve(self, int32_t num_slots) except -1 nogil:
        if num_slots > self._num_slots:
            resize(&self._debts, num_slots * sizeof(Debt))
            memset(self._debts + self._num_slots, 0, (num_slots - self._num_slots) * sizeof(Debt))
            self._num_slots = num_slots
        return 0

    cdef Sum* _sum_of(self, int32_t slot) noexcept nogil:
        return &self._whole if self._debts[slot].is_whole else &self._part

    cdef int put(self, int32_t slot, int64_t iteration, int64_t ends, bint is_whole) except -1 nogil:
        cdef Debt* debt = &self._debts[slot]
        cdef Sum* total
        debt.ends, debt.is_whole, debt.place = ends, is_whole, NEAR
        total = self._sum_of(slot)
        if ends - iteration > MOST_RESERVED:
            self._far.push(ends - MOST_RESERVED, 0, slot)
            debt.place = FAR
            total.num_far += 1
        else:
            total.ends += ends
            total.num_near += 1
        return 0

    cdef void drop(self, int32_t slot) noexcept nogil:
        cdef Sum* total = self._sum_of(slot)
        if self._debts[slot].place == FAR:
            self._far.remove(slot)
            total.num_far -= 1
        elif self._debts[slot].place == NEAR:
            total.ends -= self._debts[slot].ends
            total.num_near -= 1
        self._debts[slot].place = NOWHERE

    cdef void _bring_near(self, int64_t iteration) noexcept nogil:
        cdef int32_t slot
        cdef Sum* total
        while self._far.size() > 0 and self._far.top_iteration() <= iteration:
            slot = self._far.pop()
            total = self._sum_of(slot)
            total.num_far -= 1
            total.num_near += 1
            total.ends += self._debts[slot].ends
            self._debts[slot].place = NEAR

    cdef int64_t in_part(self, int64_t iteration) noexcept nogil:
        self._bring_near(iteration)
        return self._part.ends - self._part.num_near * iteration + self._part.num_far * MOST_RESERVED

    cdef int64_t in_full(self, int64_t iteration) noexcept nogil:
        self._bring_near(iteration)
        return self._whole.ends - self._whole.num_near * iteration + self._whole.num_far * MOST_RESERVED
