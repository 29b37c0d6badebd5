"""The order in which SGLang's scheduler looks at those that wait."""
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
    ROUTING_KEY = 7             # the key that most of those who run have


cdef enum Key:                  # of a request, which its client or gateway gave it
    SESSION = 0
    TENANT = 1
    SLO_CLASS = 2


cdef struct Candidate:          # what is remembered of a request that waits
    int64_t entry               # number of its entry into the queue
    int64_t work_before         # tokens that had been processed by then
    uint32_t code               # what the tree looks for its first tokens by; 0: nobody asked yet
    int32_t text                # tokens of its text when it was last matched for admission; 0: it never was
    int32_t prefix              # of these, those found when it was last matched
    int32_t matched             # the same, with those in host memory, at most all but one of its text
    int32_t node                # where the match ended
    int32_t host                # tokens behind these that were found in host memory alone
    int32_t host_node           # where they end


cdef struct SortKey:
    double first                # smaller goes first, likewise below
    double second
    int32_t row


cdef class SglangQueue:
    cdef RadixKV _kv
    cdef WaitingQueue _waiting
    cdef const Request* _requests
    cdef const Demand* _demands
    cdef int _policy                    # QueuePolicy
    cdef bint _by_priority
    cdef bint _refreshes                # prefixes of those that wait are kept from being evicted
    cdef int64_t _refreshes_due         # passes so far in which they could be
    cdef int64_t _entries
    cdef int64_t pool                   # tokens of KV
    cdef int64_t longest                # text that a request may have, with a token to spare
    cdef int64_t longest_prompt         # one token stands for longer ones
    cdef int64_t processed              # tokens that batches have had
    cdef int32_t sign                   # 1: low priorities go first, -1: high ones
    cdef Candidate* _candidates         # [row]
    cdef SortKey* _keys                 # [_num_keys]
    cdef int32_t _num_keys
    cdef int32_t _room
    cdef const RowList* _leaving        # rows of `waiting` that nobody serves any more; the scheduler's
    cdef RowList _aside                 # those of them that were taken
    cdef RowList _remembered            # rows that others are compared with
    cdef uint64_t _seed                 # of random orders
    cdef uint64_t _shuffles             # so far
    cdef Key _key                       # with ROUTING_KEY
    cdef int32_t* _key_ranks            # [key] as texts are ordered
    cdef int32_t* _key_counts           # [key] of those who run
    cdef int32_t _num_routing_keys
    cdef int32_t _num_keyed             # of those who run, that have one
    cdef RowList _order                 # of the walk along the tree
    cdef int64_t* _weights              # [node]
    cdef object _owners

    cdef inline Candidate* candidate(self, int32_t row) noexcept nogil:
        return &self._candidates[row]

    # Tokens of a prompt as it is computed, and of its text.
    cdef inline int64_t prompt(self, int32_t row) noexcept nogil:
        cdef int64_t tokens = self._requests[row].prompt_tokens
        return tokens if tokens <= self.longest_prompt else 1

    cdef inline int64_t text(self, int32_t row) noexcept nogil:
        return self.prompt(row) + self._requests[row].output_tokens

    # From now on one token stands for longer prompts.
    cdef inline void cut_prompts(self, int64_t longest) noexcept nogil:
        self.longest_prompt, self._kv.tree.longest_prompt = longest, <int32_t>longest

    # Tokens that the answer of a request may have.
    cdef inline int64_t most(self, int32_t row) noexcept nogil:
        cdef int64_t prompt = self._requests[row].prompt_tokens, page = self._kv.block_size
        cdef int64_t most = min(<int64_t>self._demands[row].max_tokens, self.longest - prompt - 1)
        if prompt + most + 2 * page < self.pool:        # surely less than below, without a division
            return max(0, most)
        return max(0, min(max(0, most), self.pool - blocks_for(prompt, self._kv.block_size) * page - page - 1))

    # Who waits, and is not about to leave. `follow`: rows that are; they stay the scheduler's.
    cdef inline void follow(self, const RowList* leaving) noexcept nogil:
        self._leaving = leaving

    cdef inline bint is_leaving(self, int32_t row) noexcept nogil:
        return self._leaving.size > 0 and has_row(self._leaving, row)

    cdef inline int32_t size(self) noexcept nogil:
        cdef int32_t size = self._waiting.size, i
        for i in range(self._leaving.size):             # clients of some may have given up since
            size -= self._requests[self._leaving.rows[i]].status == WAITING
        return size

    # A request enters the queue. The queue is sorted in place, for a pass that may admit.
    cdef void enter(self, int32_t row) noexcept nogil
    cdef int sort(self) except -1 nogil

    # Who runs is told before, if it matters: nobody, then each.
    cdef void forget_keys(self) noexcept nogil
    cdef void count_key(self, int32_t row) noexcept nogil

    # The queue of a decode replica: who was retracted goes first, in that order, then by priority if that counts.
    cdef int sort_for_decoding(self) except -1 nogil

    # Find what the tree has of the first `num_tokens` tokens of the text of a request.
    cdef int adopt(self, int32_t row, int64_t num_tokens) except -1 nogil

    cdef inline int policy(self) noexcept nogil:
        return self._policy

    # Tokens that those compute that wait and come before the rest of a chunk, as far as they fit.
    cdef int64_t shorter_work(self, int64_t rest, int64_t most) except -1 nogil

    # The least preferred, newest one that waits, of those that are not about to leave.
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
