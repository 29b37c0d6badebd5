"""The order in which SGLang's scheduler considers waiting requests."""
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from simulator.core.row_list cimport RowList, has_row
from simulator.domain.request cimport WAITING, Demand, Request
from simulator.kv.base cimport blocks_for
from simulator.kv.radix cimport RadixKV
from simulator.scheduling.waiting_queue cimport WaitingQueue


cdef enum QueuePolicy:
    FCFS = 0
    LPM = 1                     # longest prefix match
    DFS_WEIGHT = 2
    LOF = 3                     # longest output first
    HRRN = 4                    # highest response ratio next
    SHORTEST_PREFILL = 5
    RANDOM = 6
    ROUTING_KEY = 7             # the most frequent key among running requests


cdef enum Key:                  # label of a request that its client or gateway sends as its routing key
    SESSION = 0
    TENANT = 1
    SLO_CLASS = 2


cdef struct Candidate:          # cached facts of a waiting request
    int64_t entry               # number of its entry into the queue
    int64_t work_before         # tokens processed before that entry
    uint32_t code               # tree code of its first tokens; 0: not looked up yet
    int32_t text                # tokens of its text when it was last matched for admission; 0: never
    int32_t prefix              # tokens of the text found on the accelerator at the last match
    int32_t matched             # prefix and tokens found in host memory, at most all but one of its text
    int32_t node                # node where the match ended
    int32_t host                # tokens behind the prefix that were found only in host memory
    int32_t host_node           # node where they end


cdef struct SortKey:
    double first                # smaller goes first, then smaller `second`
    double second
    int32_t row


cdef class SglangQueue:
    cdef RadixKV _kv
    cdef WaitingQueue _waiting
    cdef const Request* _requests
    cdef const Demand* _demands
    cdef int _policy                    # QueuePolicy
    cdef bint _by_priority
    cdef bint _refreshes                # using prefixes of waiting requests keeps them from being evicted
    cdef int64_t _refreshes_due         # passes so far in which a refresh was possible
    cdef int64_t _entries
    cdef int64_t pool                   # tokens of KV
    cdef int64_t longest                # longest text of a request, with a token to spare
    cdef int64_t longest_prompt         # longer prompts are replaced by one token
    cdef int64_t processed              # tokens processed by batches
    cdef int32_t sign                   # 1: low priorities go first, -1: high ones
    cdef Candidate* _candidates         # [row]
    cdef SortKey* _keys                 # [_num_keys]
    cdef int32_t _num_keys
    cdef int32_t _room
    cdef const RowList* _leaving        # rows of `waiting` that are about to leave; owned by the scheduler
    cdef RowList _aside                 # rows about to leave that were taken out for sorting
    cdef RowList _remembered            # rows that others are compared with
    cdef uint64_t _seed                 # seed of random orders
    cdef uint64_t _shuffles             # shuffles so far
    cdef Key _key                       # with ROUTING_KEY
    cdef int32_t* _key_ranks            # [key] rank by name
    cdef int32_t* _key_counts           # [key] running requests with it
    cdef int32_t _num_routing_keys
    cdef int32_t _num_keyed             # running requests that have a key
    cdef RowList _order                 # rows in the order of the walk along the tree
    cdef int64_t* _weights              # [node]
    cdef object _owners

    cdef inline Candidate* candidate(self, int32_t row) noexcept nogil:
        return &self._candidates[row]

    # Tokens of a prompt as computed, and of its text.
    cdef inline int64_t prompt(self, int32_t row) noexcept nogil:
        cdef int64_t tokens = self._requests[row].prompt_tokens
        return tokens if tokens <= self.longest_prompt else 1

    cdef inline int64_t text(self, int32_t row) noexcept nogil:
        return self.prompt(row) + self._requests[row].output_tokens

    # Replace longer prompts by one token from now on.
    cdef inline void cut_prompts(self, int64_t longest) noexcept nogil:
        self.longest_prompt, self._kv.tree.longest_prompt = longest, <int32_t>longest

    # Most tokens of the answer of a request.
    cdef inline int64_t most(self, int32_t row) noexcept nogil:
        cdef int64_t prompt = self._requests[row].prompt_tokens, page = self._kv.block_size
        cdef int64_t most = min(<int64_t>self._demands[row].max_tokens, self.longest - prompt - 1)
        if prompt + most + 2 * page < self.pool:        # surely less than below, without a division
            return max(0, most)
        return max(0, min(max(0, most), self.pool - blocks_for(prompt, self._kv.block_size) * page - page - 1))

    # Waiting requests without those about to leave. `follow`: borrows the list of rows about to leave.
    cdef inline void follow(self, const RowList* leaving) noexcept nogil:
        self._leaving = leaving

    cdef inline bint is_leaving(self, int32_t row) noexcept nogil:
        return self._leaving.size > 0 and has_row(self._leaving, row)

    cdef inline int32_t size(self) noexcept nogil:
        cdef int32_t size = self._waiting.size, i
        for i in range(self._leaving.size):             # clients of some may have given up
            size -= self._requests[self._leaving.rows[i]].status == WAITING
        return size

    # `enter` adds a request to the queue. `sort` sorts the queue in place, for a pass that may admit.
    cdef void enter(self, int32_t row) noexcept nogil
    cdef int sort(self) except -1 nogil

    # Before a sort by routing key: forget the keys of running requests, then count each.
    cdef void forget_keys(self) noexcept nogil
    cdef void count_key(self, int32_t row) noexcept nogil

    # Sort the queue of a decode replica: retracted requests first, in their order, then by priority if enabled.
    cdef int sort_for_decoding(self) except -1 nogil

    # Match the first `num_tokens` tokens of a request's text with the tree.
    cdef int adopt(self, int32_t row, int64_t num_tokens) except -1 nogil

    cdef inline int policy(self) noexcept nogil:
        return self._policy

    # Tokens to compute of waiting requests that come before the rest of a chunk, as far as they fit in `most`.
    cdef int64_t shorter_work(self, int64_t rest, int64_t most) except -1 nogil

    # The least preferred, newest waiting request, without those about to leave.
    cdef int32_t least(self) except -1 nogil

    cdef int64_t _work(self, int32_t row) noexcept nogil
    cdef int _take_all(self) except -1 nogil
    cdef int _refresh_head(self) except -1 nogil
    cdef int _note_use(self, int32_t row) except -1 nogil
    cdef int _put_back(self) except -1 nogil
    cdef int _refresh(self) except -1 nogil
    cdef int _match_all(self) except -1 nogil
    cdef bint _repeats_another(self, int32_t row) except -1 nogil
    cdef inline int32_t _key_of(self, int32_t row) noexcept nogil:
        if self._key == SESSION:
            return self._demands[row].session
        return self._demands[row].tenant if self._key == TENANT else self._demands[row].slo_class

    cdef int _take_keys(self, names, codes) except -1
    cdef void _rank_by_key(self, SortKey* key) noexcept nogil
    cdef void _rank(self, SortKey* key, bint is_late) noexcept nogil
    cdef void _sort_keys(self) noexcept nogil
    cdef int _walk_tree(self) except -1 nogil
    cdef int _walk(self, int32_t node) except -1 nogil
    cdef int64_t _weigh(self, int32_t node) noexcept nogil
