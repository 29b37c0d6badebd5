"""The methods of some structures of simulator/core as Python functions, with checked arguments."""
from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from simulator.core cimport hash_map, tied_counts, tied_minima
from simulator.core.heap cimport Keyed, RowHeap, first_ns, pop_row, push_row
from simulator.core.index_list cimport NONE, IndexLinks, IndexList, new_list

cdef enum:
    MOST_COUNT = 1 << 28


cdef class IndexLists:
    """Some lists over one universe."""

    cdef IndexLinks _links
    cdef IndexList* _lists
    cdef int32_t _num_lists

    def __cinit__(self, int32_t num_lists, int32_t universe):
        self._links = IndexLinks(universe)
        self._lists = <IndexList*>malloc(num_lists * sizeof(IndexList))
        if self._lists == NULL:
            raise MemoryError()
        self._num_lists = num_lists
        cdef int32_t k
        for k in range(num_lists):
            self._lists[k] = new_list()

    def __dealloc__(self):
        free(self._lists)

    cdef IndexList* _at(self, int32_t k) except NULL:
        if not 0 <= k < self._num_lists:
            raise IndexError(f"list {k} of {self._num_lists}")
        return &self._lists[k]

    cdef int32_t _unlinked(self, int32_t i) except -1:
        if not 0 <= i < self._links.universe or self._links.is_linked(i):
            raise ValueError(f"element {i} is in a list already, or not in the universe")
        return i

    def push_back(self, k, i):
        self._links.push_back(self._at(k), self._unlinked(i))

    def push_front(self, k, i):
        self._links.push_front(self._at(k), self._unlinked(i))

    def insert_after(self, k, where, i):
        self._links.insert_after(self._at(k), where, self._unlinked(i))

    def remove(self, k, i):
        self._links.remove(self._at(k), i)

    def move_back(self, k, first, last):
        self._links.move_back(self._at(k), first, last)

    def pop_front(self, k):
        return self._links.pop_front(self._at(k))

    def grow(self, universe):
        self._links.grow(universe)

    def is_linked(self, i):
        return self._links.is_linked(i)

    def forwards(self, k):
        cdef int32_t i = self._at(k).head
        found = []
        while i != NONE:
            found.append(i)
            i = self._links.next(i)
        return found

    def backwards(self, k):
        cdef int32_t i = self._at(k).tail
        found = []
        while i != NONE:
            found.append(i)
            i = self._links.prev(i)
        return found

    def size(self, k):
        return self._at(k).size

    def check(self):
        cdef int32_t k, i, linked = 0, listed = 0
        for k in range(self._num_lists):
            self._links.check_list(&self._lists[k])
            listed += self._lists[k].size
        for i in range(self._links.universe):
            linked += self._links.is_linked(i)
        if linked != listed:
            raise RuntimeError("IndexLinks: an element is marked as linked but is in no list")


cdef class HashMap:
    cdef hash_map.HashMap it

    def __init__(self):
        self.it = hash_map.HashMap()

    def check(self):
        self.it.check()

    def __len__(self):
        return self.it.size

    @property
    def num_slots(self):
        return self.it._mask + 1

    def values(self):
        return self.it.values()

    def get_value(self, key):
        return self.it.get(key)

    def put_value(self, key, value):
        if value < 0:
            raise ValueError(f"value must be >= 0, found {value}")
        self.it.put(key, value)

    def remove_key(self, key):
        return self.it.remove(key)

    def reserve_keys(self, num_keys):
        self.it.reserve(num_keys)

    def empty(self):
        self.it.clear()


cdef class TiedCounts:
    cdef tied_counts.TiedCounts it

    def __init__(self, *given):
        self.it = tied_counts.TiedCounts(*given)

    def check(self):
        self.it.check()

    def set_count(self, index, count):
        if not 0 <= index < self.it.size or not 0 <= (count or 0) < MOST_COUNT:
            raise ValueError(f"index {index} of {self.it.size}, count {count}")
        self.it.set(index, tied_counts.OUT if count is None else count)

    def add_one(self, index):
        self.it.increase(index)

    def take_one(self, index):
        self.it.decrease(index)

    def all_tied(self):
        tied = [self.it.tied(k) for k in range(self.it.ties())]
        return (self.it.get(tied[0]) if tied else None), tied


cdef class TiedMinima:
    cdef tied_minima.TiedMinima it

    def __init__(self, *given):
        self.it = tied_minima.TiedMinima(*given)

    def check(self):
        self.it.check()

    def set_key(self, index, key):
        if not 0 <= index < self.it.size or key != key:
            raise ValueError(f"index {index} of {self.it.size}, key {key}")
        self.it.set(index, key)

    def next_tied(self, index):
        return self.it.tied_from(index)

    def all_tied(self):
        return self.it.least(), [self.it.tied(k) for k in range(self.it.ties())]


cdef class TimedRows:
    """Rows in order of a time, then of their number."""

    cdef RowHeap heap

    def __cinit__(self):
        memset(&self.heap, 0, sizeof(RowHeap))

    def __dealloc__(self):
        free(self.heap.entries)

    def __len__(self):
        return self.heap.size

    def push(self, time_ns, row):
        push_row(&self.heap, time_ns, row)

    def pop(self):
        cdef Keyed first = pop_row(&self.heap)
        return first.key, first.number

    def first_ns(self):
        return first_ns(&self.heap)
