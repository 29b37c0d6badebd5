"""`mm-cache-affinity`: the items of a prompt, images say, that were sent to the replica before."""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
cimport cython

from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.core.draws cimport mix
from simulator.core.hash_map cimport HashMap
from simulator.core.index_list cimport IndexLinks, IndexList, new_list
from simulator.core.memory cimport resize
from simulator.domain.request cimport Item
from simulator.routing.scoring.base cimport Scorer


class MmCacheAffinityParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Score the share of a prompt's items that was sent to the replica before.

    Each distinct item of a prompt counts 1; a prompt without items scores 0 everywhere. A replica that closed has
    none. Source: mm-cache-affinity-scorer of llm-d-router ebab6879, which remembers hashes of items within 2048 MB for
    each pod; here the number of items is limited, as an item has no size in memory there.
    """

    capacity_items: Annotated[int, Meta(ge=1, le=2**30, extra={"unit": "items"}, description=(
        "items that the gateway remembers of each replica, the latest sent there"))] = 2048


@cython.final
cdef class MmCacheAffinity(Scorer):
    """A replica that was sent these items is better."""

    Parameters = MmCacheAffinityParameters

    cdef const int64_t* _begins         # [rows + 1] first item of each request; NULL: no request has items
    cdef const Item* _items
    cdef int32_t _capacity
    cdef HashMap _entry_of              # item at a replica -> entry
    cdef uint64_t* _codes               # [entry] its key in _entry_of
    cdef IndexLinks _links              # of the lists, the oldest item first
    cdef IndexList* _remembered         # [replica]
    cdef IndexList _free

    def __cinit__(self, parameters, context):
        cdef const int64_t[::1] begins
        cdef const Item[::1] items
        cdef int32_t i
        given = context.workload.items
        if given is not None and len(given.table):
            begins, items = given.begins, given.table
            self._begins, self._items = &begins[0], &items[0]
        self._remembered = <IndexList*>calloc(self.num_replicas, sizeof(IndexList))
        if self._remembered == NULL:
            raise MemoryError()
        for i in range(self.num_replicas):
            self._remembered[i] = new_list()
        self._free = new_list()

    def __init__(self, parameters, context):
        self._capacity, self._entry_of, self._links = parameters.capacity_items, HashMap(), IndexLinks()
        self.is_per_request = True

    def __dealloc__(self):
        free(self._remembered)
        free(self._codes)

    cdef int rate(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int32_t num_items = 0, replica
        cdef int64_t i
        memset(self.values, 0, self.num_replicas * sizeof(double))
        if self._begins == NULL:
            return 0
        for i in range(self._begins[row], self._begins[row + 1]):
            if self._is_repeated(row, i):
                continue
            num_items += 1
            for replica in range(self.num_replicas):
                self.values[replica] += self._entry_of.get(self._code(i, replica)) >= 0
        if num_items == 0:
            return 0
        for replica in range(self.num_replicas):
            self.values[replica] /= num_items
        return 1

    cdef bint _is_repeated(self, int32_t row, int64_t item) noexcept nogil:
        """Return whether an item occurs earlier in the prompt."""
        cdef int64_t i
        for i in range(self._begins[row], item):
            if self._items[i].content == self._items[item].content:
                return True
        return False

    cdef inline uint64_t _code(self, int64_t item, int32_t replica) noexcept nogil:
        return mix((<uint64_t>self._items[item].content << 32 | <uint64_t>replica) + 1)

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef IndexList* remembered = &self._remembered[replica]
        cdef int64_t i
        cdef int32_t entry
        cdef uint64_t code
        if self._begins == NULL:
            return 0
        for i in range(self._begins[row], self._begins[row + 1]):
            code = self._code(i, replica)
            entry = self._entry_of.get(code)
            if entry >= 0:
                self._links.remove(remembered, entry)
            else:
                if remembered.size == self._capacity:
                    self._forget_oldest(replica)
                entry = self._new_entry()
                self._entry_of.put(code, entry)
                self._codes[entry] = code
            self._links.push_back(remembered, entry)
        return 0

    cdef int32_t _new_entry(self) except -1 nogil:
        cdef int32_t before = self._links.universe, after = max(2 * before, 64), i
        if self._free.size == 0:
            resize(&self._codes, after * sizeof(uint64_t))
            self._links.grow(after)
            for i in range(before, after):
                self._links.push_back(&self._free, i)
        return self._links.pop_front(&self._free)

    cdef void _forget_oldest(self, int32_t replica) noexcept nogil:
        cdef int32_t entry = self._links.pop_front(&self._remembered[replica])
        self._entry_of.remove(self._codes[entry])
        self._links.push_back(&self._free, entry)

    cdef int closed(self, int32_t replica, int64_t now_ns) except -1 nogil:
        while self._remembered[replica].size > 0:
            self._forget_oldest(replica)
        return 0
