"""`arc`: adaptive replacement, between chunks used once and chunks used again.

Two lists hold chunks: T1 those that a single request has used, T2 those that a second one used, too; there is a target
for the size of T1. B1 and B2 remember the names of chunks evicted from T1 and T2, each as many as chunks fit. An
offered chunk that is named in B1 raises the target, one that is named in B2 lowers it. Source: the behaviour of vLLM
0.32.0, vllm/v1/kv_offload/cpu/policies/arc.py; the idea: Megiddo and Modha, FAST 2003.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.kv.tiers.eviction cimport INSERTED, REUSED, EvictionPolicy

cdef enum:
    T1 = 0
    T2 = 1
    B1 = 2
    B2 = 3


@cython.final
cdef class Arc(EvictionPolicy):
    """Adaptive replacement with lists T1 and T2, and names in B1 and B2."""

    cdef double _target         # chunks of T1

    cdef void missed(self, int32_t remembered) noexcept nogil:
        cdef int64_t* sizes = self.table.sizes
        if remembered == 0:
            return
        if self.table.chunks[remembered].listed == B1:
            self._target = min(self._target + max(1.0, <double>sizes[B2] / <double>sizes[B1]),
                               <double>self.table.capacity)
        else:
            self._target = max(self._target - max(1.0, <double>sizes[B1] / <double>sizes[B2]), 0.0)
        self.table.move_back(remembered, self.table.chunks[remembered].listed)

    cdef int evict(self, int64_t count, int64_t guard) except -1 nogil:
        cdef int32_t first = self.table.chunks[T1].next, second = self.table.chunks[T2].next, element, listed
        if self._log is not None:
            self.begin_note()
        while count > 0:
            first, second = self._idle(T1, first, guard), self._idle(T2, second, guard)
            if first != T1 and (self.table.sizes[T1] >= <int64_t>self._target or second == T2):
                element, listed = first, B1
                first = self.table.chunks[first].next
            else:
                element, listed = second, B2
                second = self.table.chunks[second].next
            if self._log is not None:
                self.note(element)
            self.table.remember(element, listed)
            count -= 1
        for listed in range(B1, B2 + 1):
            while self.table.sizes[listed] > self.table.capacity:
                self.table.drop(self.table.chunks[listed].next, 1)
        return 0

    cdef int32_t _idle(self, int32_t listed, int32_t element, int64_t guard) noexcept nogil:
        """Return the first chunk from `element` on in a list that may be evicted; the head of the list: none."""
        while element != listed and (
                self.table.chunks[element].references != 0 or self.table.chunks[element].guard == guard):
            element = self.table.chunks[element].next
        return element

    cdef void closed(self, int32_t element, int use) noexcept nogil:
        if use & REUSED:
            self.table.move_back(element, T2)
        elif use & INSERTED:
            self.table.move_back(element, self.table.chunks[element].listed)

    def order(self):
        """Return the slots of both lists, how many names are remembered, and the target."""
        return {"t1": self.table.slots(T1), "t2": self.table.slots(T2), "b1": self.table.sizes[B1],
                "b2": self.table.sizes[B2], "target": self._target}
