"""Embeddings of images and other items: the encoder budget of a batch, and the embeddings that are kept.

Source: vLLM 0.32.0, vllm/v1/core/encoder_cache_manager.py; vllm/v1/core/sched/scheduler.py,
_try_schedule_encoder_inputs and _free_encoder_inputs. Where another replica encodes: its path for an ECConnector that
has all items, external_load_encoder_input.
"""
from libc.stdlib cimport calloc, free
from libc.string cimport memset
cimport cython

from simulator.core.index_list cimport new_list
from simulator.core.row_list cimport add_row

import numpy as np


@cython.final
cdef class EncoderCache:
    """Encoder cache of one replica.

    items : simulator.domain.items.Items, of all requests.
    limit, size : embeddings that a batch may encode, and that are kept; each is raised to the largest item.
    keeps_whole : vLLM's disable_chunked_mm_input.
    encoded_tokens : int64 (requests,), counts the embeddings encoded for each request; None: not counted.
    fetches : another replica encodes, see encoder_cache.pxd.
    waits_at_items : with keeps_whole, a chunk that begins at an item waits until it holds all of it.
    """

    def __init__(self, items, int64_t limit, int64_t size, bint keeps_whole=False, encoded_tokens=None,
                 bint fetches=False, bint waits_at_items=False):
        cdef int64_t[::1] counts
        cdef const int64_t[::1] begins = items.begins
        cdef const Item[::1] table = items.table
        cdef int64_t largest = items.largest
        cdef const double[::1] item_ns
        self._owner = (items.begins, items.table, encoded_tokens, items.ns)
        if items.ns is not None and len(items.ns):
            item_ns = items.ns
            self._prices = &item_ns[0]
        if encoded_tokens is not None and len(encoded_tokens):
            counts = encoded_tokens
            self._encoded_of = &counts[0]
        self._begins = &begins[0]
        self._items = &table[0] if len(items.table) else NULL
        self.limit, self.size = max(limit, largest), max(size, largest)
        self.free = self.reclaimable = self.size
        self._keeps_whole, self._fetches, self._waits_at_items = keeps_whole, fetches, waits_at_items
        self._links, self._unused = IndexLinks(), new_list()
        self._links.grow(items.num_contents)
        self._num_contents, self._num_items = items.num_contents, len(items.table)
        self._contents = <Content*>calloc(self._num_contents + 1, sizeof(Content))
        self._is_held = <int8_t*>calloc(self._num_items + 1, sizeof(int8_t))
        if self._contents == NULL or self._is_held == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self._contents)
        free(self._is_held)
        free(self._planned.rows)
        free(self._duplicates.rows)
        free(self._encoded.rows)

    cdef int64_t plan(self, int32_t row, int64_t computed, int64_t tokens) except -1 nogil:
        cdef const Item* item
        cdef int32_t i
        self._planned.size = self._duplicates.size = 0
        self._planned_tokens, self._budget_behind = 0, self.budget
        for i in range(<int32_t>self._begins[row], <int32_t>self._begins[row + 1]):
            item = &self._items[i]
            if <int64_t>item.offset + item.tokens <= computed:
                continue
            if item.offset >= computed + tokens:
                break
            if self._keeps_whole and computed < item.offset + self._waits_at_items and (
                    computed + tokens < <int64_t>item.offset + item.tokens):
                return item.offset - computed
            if self._is_planned(item.content):
                add_row(&self._duplicates, i)
            elif not self._find(row, i):
                if item.tokens > self._budget_behind or not self._make_room(self._planned_tokens + item.tokens):
                    return max(item.offset - computed, <int64_t>0)
                self._planned_tokens += item.tokens
                self._budget_behind -= 0 if self._fetches else item.tokens
                add_row(&self._planned, i)
        return tokens

    cdef int encode(self, int32_t row) except -1 nogil:
        cdef int32_t i, item
        cdef int64_t tokens
        if self._planned.size == 0:
            return 0
        for i in range(self._planned.size):
            item = self._planned.rows[i]
            tokens = self._items[item].tokens
            self._contents[self._items[item].content].tokens = tokens
            self.free -= tokens
            self.reclaimable -= tokens
            self._hold(row, item)
            if not self._fetches:
                add_row(&self._encoded, item)
        for i in range(self._duplicates.size):
            self._find(row, self._duplicates.rows[i])
        if not self._fetches:
            self._count(row, self._planned_tokens)
        self.budget = self._budget_behind           # ignores budget given back since the plan
        self._planned.size = self._duplicates.size = 0
        return 0

    cdef double encoding_ns(self) noexcept nogil:
        cdef double ns = 0.0
        cdef int32_t i
        for i in range(self._encoded.size if self._prices != NULL else 0):
            ns += self._prices[self._encoded.rows[i]]
        return ns

    cdef void give_back(self, int32_t row) noexcept nogil:
        cdef int32_t i, item, kept = 0
        cdef int64_t tokens
        for i in range(self._encoded.size):
            item = self._encoded.rows[i]
            if self._begins[row] <= item < self._begins[row + 1]:
                tokens = self._items[item].tokens
                self.budget += tokens
                self._count(row, -tokens)
            else:
                self._encoded.rows[kept] = item
                kept += 1
        self._encoded.size = kept

    cdef void pass_by(self, int32_t row, int64_t computed) noexcept nogil:
        cdef int32_t i
        for i in range(<int32_t>self._begins[row], <int32_t>self._begins[row + 1]):
            if <int64_t>self._items[i].offset + self._items[i].tokens <= computed:
                self._drop(row, i)

    cdef void let_go(self, int32_t row) noexcept nogil:
        cdef int32_t i
        for i in range(<int32_t>self._begins[row], <int32_t>self._begins[row + 1]):
            self._drop(row, i)

    cdef void forget(self) noexcept nogil:
        while self._unused.size > 0:
            self._links.pop_front(&self._unused)
        memset(self._contents, 0, self._num_contents * sizeof(Content))
        memset(self._is_held, 0, self._num_items)
        self.free = self.reclaimable = self.size

    cdef bint holds(self, int32_t row) noexcept nogil:
        cdef int32_t i
        for i in range(<int32_t>self._begins[row], <int32_t>self._begins[row + 1]):
            if self._is_held[i]:
                return True
        return False

    cdef bint _find(self, int32_t row, int32_t item) noexcept nogil:
        """Let a request refer to an item if it is in the cache."""
        if self._contents[self._items[item].content].tokens == 0:
            return False
        self._hold(row, item)
        return True

    cdef bint _refers_to(self, int32_t row, int32_t content) noexcept nogil:
        cdef int32_t i
        for i in range(<int32_t>self._begins[row], <int32_t>self._begins[row + 1]):
            if self._is_held[i] and self._items[i].content == content:
                return True
        return False

    cdef void _hold(self, int32_t row, int32_t item) noexcept nogil:
        cdef int32_t number = self._items[item].content
        cdef Content* content = &self._contents[number]
        if not self._refers_to(row, number):
            if self._links.is_linked(number):
                self._links.remove(&self._unused, number)
                self.reclaimable -= content.tokens
            content.users += 1
        self._is_held[item] = True

    cdef void _drop(self, int32_t row, int32_t item) noexcept nogil:
        cdef int32_t number = self._items[item].content
        cdef Content* content = &self._contents[number]
        if not self._is_held[item]:
            return
        self._is_held[item] = False
        if self._refers_to(row, number):
            return
        content.users -= 1
        if content.users == 0:
            self._links.push_back(&self._unused, number)
            self.reclaimable += content.tokens

    cdef bint _is_planned(self, int32_t content) noexcept nogil:
        cdef int32_t i
        for i in range(self._planned.size):
            if self._items[self._planned.rows[i]].content == content:
                return True
        return False

    cdef bint _make_room(self, int64_t tokens) except -1 nogil:
        """Evict the oldest contents without references, if that makes room for `tokens` embeddings."""
        cdef int32_t content
        if tokens > self.free and tokens > self.reclaimable:
            return False
        while tokens > self.free:
            content = self._links.pop_front(&self._unused)
            self.free += self._contents[content].tokens
            self._contents[content].tokens = 0
            if self._evicted is not None:
                self._note_eviction(content)
        return True

    cdef int _note_eviction(self, int32_t content) except -1 nogil:
        with gil:
            self._evicted.append(content)
        return 0

    # ---- the debug face

    def keep_log(self):
        """Keep the contents that are evicted from now on."""
        self._evicted = []

    def take_evictions(self):
        """Return the contents evicted since the last call that are still absent, in order."""
        gone, self._evicted = self._evicted, []
        return [content for content in gone if self._contents[content].tokens == 0]

    def encoded(self):
        """Return {row: numbers of its items} that the batch formed last encodes."""
        cdef int32_t i
        found = {}
        for i in range(self._encoded.size):
            row = int(np.searchsorted(self._owner[0], self._encoded.rows[i], side="right")) - 1
            found.setdefault(row, []).append(self._encoded.rows[i] - int(self._owner[0][row]))
        return found

    def check(self, rows):
        """Raise RuntimeError unless the counts agree, and only requests in `rows` refer to items."""
        cdef int32_t i
        begins, held, kept, unused = self._owner[0], {}, 0, 0
        for row in rows:
            for i in range(begins[row], begins[row + 1]):
                if self._is_held[i]:
                    held.setdefault(self._items[i].content, set()).add(row)
        self._links.check_list(&self._unused)
        for i in range(self._links.universe):
            kept += self._contents[i].tokens
            unused += self._contents[i].tokens if self._contents[i].users == 0 else 0
            if self._contents[i].users != len(held.get(i, ())):
                raise RuntimeError(f"content {i} has {self._contents[i].users} users, not {held.get(i, ())}")
        if (self.size - kept, self.size - kept + unused) != (self.free, self.reclaimable):
            raise RuntimeError(f"{self.free} and {self.reclaimable} places counted; {kept} taken, {unused} unused")
