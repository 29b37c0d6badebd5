"""`lru` of vLLM from 0.33 on, with a rank for each request.

The rank of a running request is drawn when it first uses a chunk. The list has a mark for it, with the
request's chunks behind the mark. Those that end further back in the text come first: they are evicted before the
beginning, which others may share. A chunk that a request uses leaves the place of an older rank at once. A request that
leaves moves its chunks to the end, as in `lru`. Source: the behaviour of vLLM 0.33.0,
vllm/v1/kv_offload/cpu/policies/lru.py.
"""
from libc.stdint cimport uint8_t
from libc.stdlib cimport free
cimport cython

from simulator.core.memory cimport resize


@cython.final
cdef class LruByRequest(Lru):
    """One list, by rank; see Lru."""

    def __dealloc__(self):
        free(self._ranks)

    cdef inline int _reserve(self) except -1 nogil:
        if self._room < self.table.num_records:
            resize(&self._ranks, self.table.num_records * sizeof(Rank))
            self._room = self.table.num_records
        return 0

    cdef int32_t open(self) except 0 nogil:
        cdef int32_t mark
        self.table.prepare(1)
        self._reserve()
        mark = self.table.add_mark(0)
        self._turn += 1
        self._ranks[mark].turn = self._turn
        return mark

    cdef void close(self, int32_t mark) noexcept nogil:
        self.table.drop_mark(mark)

    cdef void used(self, int32_t mark, int32_t element, int64_t order) noexcept nogil:
        if self._ranks[element].turn < self._ranks[mark].turn:
            self._place(mark, element, order)

    cdef int added(self, int32_t mark, int32_t element, int64_t order) except -1 nogil:
        self._reserve()
        self._place(mark, element, order)
        return 0

    cdef inline void _place(self, int32_t mark, int32_t element, int64_t order) noexcept nogil:
        cdef int64_t turn = self._ranks[mark].turn
        cdef int32_t following = self.table.chunks[mark].next
        self._ranks[element].turn = -1                  # it may follow the mark itself
        while following == element or (following != 0 and self._ranks[following].turn == turn and (
                self._ranks[following].order > order)):
            following = self.table.chunks[following].next
        self.table.move_before(element, following)
        self._ranks[element].turn, self._ranks[element].order = turn, order

    cdef int was_cut(self, int32_t element, int32_t other) except -1 nogil:
        self._reserve()
        self._ranks[other].turn = self._ranks[element].turn
        self._ranks[other].order = self.table.chunks[other].begin       # only chunks of one group are in runs
        return 0

    # ---- requests that leave: the turn of a chunk then lies behind those of all requests that are here

    cdef void closed(self, int32_t element, int use) noexcept nogil:
        self._turn += 1
        self._ranks[element].turn = self._turn
        Lru.closed(self, element, use)

    cdef void closed_all(self, const int32_t* elements, const uint8_t* uses, int32_t count) noexcept nogil:
        cdef int32_t i
        self._turn += 1
        for i in range(count):
            if elements[i] != 0 and uses[i]:
                self._ranks[elements[i]].turn = self._turn
        Lru.closed_all(self, elements, uses, count)
