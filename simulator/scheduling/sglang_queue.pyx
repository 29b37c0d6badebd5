"""The order in which SGLang's scheduler considers waiting requests.

Source: sglang 0.5.23, managers/schedule_policy.py, SchedulePolicy. The order is kept for later passes.
"""
from libc.math cimport INFINITY
from libc.stdint cimport INT64_MAX
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from simulator.core.draws cimport mix
from simulator.core.memory cimport resize
from simulator.core.row_list cimport add_row

import numpy as np

from simulator.core.random_streams import RandomStreams

cdef enum:
    LONG_QUEUE = 128            # longer queues: lpm and hrrn act as fcfs; also the number of prefixes refreshed
    REFRESH_INTERVAL = 32       # passes
    SHORT_PREFIX = 32           # tokens: requests with no longer prefix are compared with each other, over this many

POLICIES = {"fcfs": FCFS, "lpm": LPM, "dfs-weight": DFS_WEIGHT, "lof": LOF, "hrrn": HRRN,
            "shortest-prefill-first": SHORTEST_PREFILL, "random": RANDOM, "routing-key": ROUTING_KEY}
KEYS = {"session": SESSION, "tenant": TENANT, "slo_class": SLO_CLASS}


cdef inline bint looks_at_tree(int policy) noexcept nogil:
    return policy == LPM or policy == DFS_WEIGHT or policy == HRRN or policy == SHORTEST_PREFILL


cdef class SglangQueue:
    """Waiting requests as SGLang's scheduler orders them.

    parameters : SglangParameters.
    waiting : the WaitingQueue to sort, in order FIRST_COME.
    """

    def __init__(self, parameters, context, waiting):
        cdef Request[::1] requests = context.requests
        cdef const Demand[::1] demands = context.demands
        self._owners = (context.requests, context.demands)
        self._requests = &requests[0] if len(requests) else NULL
        self._demands = &demands[0] if len(demands) else NULL
        self._kv, self._waiting = context.kv, waiting
        self._policy = POLICIES[parameters.schedule_policy]
        if looks_at_tree(self._policy) and not self._kv.caches:
            self._policy = FCFS
        self._by_priority = parameters.enable_priority_scheduling
        self._refreshes = parameters.radix_eviction_policy == "lru" and self._kv.caches
        self.pool = <int64_t>self._kv.num_blocks * self._kv.block_size
        self.longest = min(<int64_t>context.max_model_len, self.pool) - 1
        self.longest_prompt = INT64_MAX
        self.sign = 1 if parameters.schedule_low_priority_values_first else -1
        self._candidates = <Candidate*>calloc(len(requests) + 1, sizeof(Candidate))
        if self._candidates == NULL:
            raise MemoryError()
        if self._policy == RANDOM:
            self._seed = RandomStreams(context.seed).generator("waiting queue").integers(0, 2**64, dtype=np.uint64)
        if self._policy == ROUTING_KEY:
            self._key = <Key><int>KEYS[parameters.routing_key]
            self._take_keys(context.labels.get(parameters.routing_key, ()),
                            np.asarray(context.demands)[parameters.routing_key])

    cdef int _take_keys(self, names, codes) except -1:
        """Set the ranks of routing keys by name; keys without a name are ordered by their codes."""
        cdef int32_t rank = 0, code
        self._num_routing_keys = max(int(codes.max(initial=-1)) + 1, len(names))
        self._key_ranks = <int32_t*>calloc(self._num_routing_keys + 1, sizeof(int32_t))
        self._key_counts = <int32_t*>calloc(self._num_routing_keys + 1, sizeof(int32_t))
        if self._key_ranks == NULL or self._key_counts == NULL:
            raise MemoryError()
        for code in sorted(range(self._num_routing_keys), key=lambda code: (
                (0, str(names[code])) if code < len(names) else (1, ""), code)):
            self._key_ranks[code] = rank
            rank += 1
        return 0

    def __dealloc__(self):
        free(self._candidates)
        free(self._keys)
        free(self._remembered.rows)
        free(self._order.rows)
        free(self._aside.rows)
        free(self._weights)
        free(self._key_ranks)
        free(self._key_counts)

    cdef void forget_keys(self) noexcept nogil:
        self._num_keyed = 0
        if self._num_routing_keys > 0:
            memset(self._key_counts, 0, self._num_routing_keys * sizeof(int32_t))

    cdef void count_key(self, int32_t row) noexcept nogil:
        if self._key_of(row) >= 0:
            self._key_counts[self._key_of(row)] += 1
            self._num_keyed += 1

    cdef void enter(self, int32_t row) noexcept nogil:
        self._entries += 1
        self._candidates[row].entry = self._entries
        self._candidates[row].work_before = self.processed

    cdef int adopt(self, int32_t row, int64_t num_tokens) except -1 nogil:
        cdef Candidate* it = &self._candidates[row]
        cdef int64_t text = self.text(row)
        it.prefix = self._kv.find(row, num_tokens, &it.node)
        it.host, it.host_node = <int32_t>self._kv.tree.host_tokens, self._kv.tree.host_node
        it.matched = <int32_t>min(<int64_t>it.prefix + it.host, max(text - 1, 0))
        return 0

    cdef int64_t _work(self, int32_t row) noexcept nogil:
        """Return the tokens that a request still has to compute."""
        return max(1, self.text(row)
                   - self._candidates[row].matched)

    # ---- all at once

    cdef int _take_all(self) except -1 nogil:
        cdef int32_t row, _
        if self._waiting.size > self._room:
            resize(&self._keys, 2 * <size_t>self._waiting.size * sizeof(SortKey))
            self._room = 2 * self._waiting.size
        self._num_keys = self._aside.size = 0
        for _ in range(self._waiting.size):
            row = self._waiting.pop()
            if self.is_leaving(row):
                add_row(&self._aside, row)
            else:
                self._keys[self._num_keys].row = row
                self._num_keys += 1
        return 0

    cdef int _put_back(self) except -1 nogil:
        cdef int32_t i
        for i in range(self._num_keys):
            self._waiting.push(self._keys[i].row)
        for i in range(self._aside.size):
            self._waiting.push(self._aside.rows[i])
        return 0

    cdef int sort(self) except -1 nogil:
        cdef int policy = self._policy
        cdef bint refreshes
        cdef int32_t i
        if (policy == LPM or policy == HRRN) and self.size() > LONG_QUEUE:
            policy = FCFS
        refreshes = self._refreshes and not looks_at_tree(policy) and self.size() > 0
        self._refreshes_due += refreshes
        refreshes = refreshes and self._refreshes_due % REFRESH_INTERVAL == 1
        if policy == FCFS and not (self._policy == FCFS and self._by_priority):
            return self._refresh_head() if refreshes else 0
        self._take_all()
        if looks_at_tree(policy):
            self._match_all()
        if looks_at_tree(policy) and policy != DFS_WEIGHT:
            self._sort_keys()
        elif policy == DFS_WEIGHT:
            self._walk_tree()
        elif policy == LOF or policy == RANDOM or (policy == ROUTING_KEY and self._num_keyed > 0) or (
                self._policy == FCFS and self._by_priority):
            self._shuffles += 1
            for i in range(self._num_keys):
                self._rank(&self._keys[i], False)
            self._sort_keys()
        if refreshes:
            self._refresh()
        return self._put_back()

    cdef int _refresh_head(self) except -1 nogil:
        """Refresh the prefixes of the first requests where nothing is sorted."""
        cdef int32_t i = min(self._waiting.size, <int32_t>LONG_QUEUE + self._leaving.size)
        while i > 0:
            i -= 1
            if not self.is_leaving(self._waiting.at(i)):
                self._note_use(self._waiting.at(i))
        return 0

    cdef int sort_for_decoding(self) except -1 nogil:
        cdef int32_t i, row
        self._take_all()
        for i in range(self._num_keys):
            row = self._keys[i].row
            self._keys[i].first = <double>self.sign * self._demands[row].priority if self._by_priority else 0
            if self._requests[row].output_tokens > 0:
                self._keys[i].first = -INFINITY
            self._keys[i].second = <double>self._candidates[row].entry
        self._sort_keys()
        return self._put_back()

    cdef int _refresh(self) except -1 nogil:
        """Refresh the prefixes of the first requests."""
        cdef int32_t i = min(self._num_keys, <int32_t>LONG_QUEUE)
        while i > 0:
            i -= 1
            self._note_use(self._keys[i].row)
        return 0

    cdef int _note_use(self, int32_t row) except -1 nogil:
        cdef Candidate* it = &self._candidates[row]
        cdef int32_t node
        if it.code == 0:
            it.code = self._kv.tree.first_code(row)
        if self._kv.tree.may_begin(it.code):
            self._kv.find(row, self.text(row), &node)
        return 0

    cdef int _match_all(self) except -1 nogil:
        cdef int32_t i, row
        cdef bint is_late
        self._remembered.size = 0
        for i in range(self._num_keys):
            row = self._keys[i].row
            self.adopt(row, self.text(row))
            is_late = False
            if self._candidates[row].prefix <= SHORT_PREFIX:
                is_late = self._repeats_another(row)
                if not is_late:
                    add_row(&self._remembered, row)
            self._rank(&self._keys[i], is_late)
        return 0

    cdef bint _repeats_another(self, int32_t row) except -1 nogil:
        """Return whether a remembered request begins alike, so that its prefix will be found once computed."""
        cdef int64_t text = self.text(row)
        cdef int32_t i, other
        for i in range(self._remembered.size if text >= SHORT_PREFIX else 0):
            other = self._remembered.rows[i]
            if (self.text(other) >= SHORT_PREFIX and self._demands[other].adapter == self._demands[row].adapter
                    and self._kv.tree.common(row, 0, other, 0, SHORT_PREFIX) == SHORT_PREFIX):
                return True
        return False

    cdef void _rank(self, SortKey* key, bint is_late) noexcept nogil:
        cdef const Candidate* it = &self._candidates[key.row]
        cdef int64_t left
        key.second = 0
        if self._policy == FCFS:
            key.first, key.second = <double>self.sign * self._demands[key.row].priority, <double>it.entry
        elif self._policy == LOF:
            key.first = <double>self.sign * self._demands[key.row].priority if self._by_priority else 0
            key.second = -<double>self.most(key.row)
        elif self._policy == LPM:
            key.first = INFINITY if is_late else -<double>it.matched
        elif self._policy == HRRN:
            left = max(0, self.prompt(key.row) - it.matched)
            key.second = self._demands[key.row].tie_rank
            key.first = INFINITY if is_late else -INFINITY
            if not is_late and left > 0:
                key.first = -(<double>(self.processed - it.work_before)) / <double>left
        elif self._policy == RANDOM:
            key.first = <double>(mix(self._seed ^ mix((self._shuffles << 32) + <uint64_t>key.row)) >> 11)
        elif self._policy == ROUTING_KEY:
            self._rank_by_key(key)
        elif self._policy == SHORTEST_PREFILL:          # work and entries are far below 2**53
            key.first = <double>self._work(key.row) + (1e15 if is_late else 0)
            key.second = <double>it.entry

    cdef void _rank_by_key(self, SortKey* key) noexcept nogil:
        """Rank by the number of running requests with the key, then by name; without a key, before keys that none
        has."""
        cdef int32_t code = self._key_of(key.row)
        key.first = -<double>self._key_counts[code] if code >= 0 and self._key_counts[code] > 0 else 1
        key.second = <double>self._key_ranks[code] if code >= 0 else -1

    cdef void _sort_keys(self) noexcept nogil:
        """Sort stably; the queue is nearly sorted since the last pass."""
        cdef int32_t i, j
        cdef SortKey key
        for i in range(1, self._num_keys):
            key = self._keys[i]
            j = i
            while j > 0 and (self._keys[j - 1].first > key.first or (
                    self._keys[j - 1].first == key.first and self._keys[j - 1].second > key.second)):
                self._keys[j] = self._keys[j - 1]
                j -= 1
            self._keys[j] = key

    # ---- along the tree

    cdef int _walk_tree(self) except -1 nogil:
        """Sort depth first: heavier children first, requests of a node after those of its children."""
        cdef int32_t i, num_nodes = self._kv.tree.num_nodes()
        resize(&self._weights, <size_t>num_nodes * sizeof(int64_t))
        for i in range(num_nodes):
            self._weights[i] = 0
        for i in range(self._num_keys):
            self._weights[self._candidates[self._keys[i].row].node] += 1
        self._weigh(0)
        self._order.size = 0
        self._walk(0)
        for i in range(self._num_keys):
            self._keys[i].row = self._order.rows[i]
        return 0

    cdef int64_t _weigh(self, int32_t node) noexcept nogil:
        cdef int32_t child = self._kv.tree.first_child(node)
        while child >= 0:
            self._weights[node] += self._weigh(child)
            child = self._kv.tree.next_sibling(child)
        return self._weights[node]

    cdef int _walk(self, int32_t node) except -1 nogil:
        cdef int64_t weight = 1 << 62, made = -1, best_weight, best_made
        cdef int32_t child, best = 0, i
        while best >= 0:                        # next child in order: lighter, or as heavy and created later
            best, best_weight, best_made = -1, 0, 0
            child = self._kv.tree.first_child(node)
            while child >= 0:
                if self._weights[child] > 0 and (
                        self._weights[child] < weight
                        or (self._weights[child] == weight and self._kv.tree.made(child) > made)) and (
                        self._weights[child] > best_weight
                        or (self._weights[child] == best_weight and self._kv.tree.made(child) < best_made)):
                    best, best_weight, best_made = child, self._weights[child], self._kv.tree.made(child)
                child = self._kv.tree.next_sibling(child)
            if best >= 0:
                self._walk(best)
                weight, made = best_weight, best_made
        for i in range(self._num_keys):
            if self._candidates[self._keys[i].row].node == node:
                add_row(&self._order, self._keys[i].row)
        return 0

    # ---- questions

    cdef int64_t shorter_work(self, int64_t rest, int64_t most) except -1 nogil:
        cdef int64_t reserved = 0, work
        cdef int32_t i
        self._take_all()
        for i in range(self._num_keys):
            work = self._work(self._keys[i].row)
            if work >= rest or reserved + <int64_t>blocks_for(work, self._kv.block_size) * self._kv.block_size > most:
                break
            reserved += <int64_t>blocks_for(work, self._kv.block_size) * self._kv.block_size
        self._put_back()
        return reserved

    cdef int32_t least(self) except -1 nogil:
        cdef int32_t i, worst = -1, row
        self._take_all()
        for i in range(self._num_keys):
            row = self._keys[i].row
            if worst < 0 or self.sign * <int64_t>self._demands[row].priority > self.sign * <int64_t>(
                    self._demands[worst].priority) or (
                    self._demands[row].priority == self._demands[worst].priority
                    and self._candidates[row].entry > self._candidates[worst].entry):
                worst = row
        self._put_back()
        return worst
