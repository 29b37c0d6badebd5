"""A radix tree of texts: the texts that `RadixKV` keeps, and their eviction order.

An edge holds whole pages of tokens. Nodes are numbers; 0 is the root, which holds nothing.
"""
from libc.stdint cimport int32_t, int64_t, uint32_t

from simulator.core.heap cimport Placed
from simulator.core.row_list cimport RowList
from simulator.domain.request cimport Demand, Request, Segment
from simulator.kv.cache_log cimport CacheLog
from simulator.kv.content cimport Content


cdef enum Eviction:             # the leaf evicted first: the one with the least ...
    LRU = 0                     # time of use
    LFU = 1                     # hits, time of use
    FIFO = 2                    # time when it was made
    MRU = 3                     # time of use, reversed
    FILO = 4                    # time when it was made, reversed
    BY_PRIORITY = 5             # priority, time of use
    SLRU = 6                    # one hit before several, time of use


cdef struct Node:
    int64_t used                # time of use, see radix_tree.pyx
    int64_t made                # when it, or the node that it was split from, was made
    int64_t priority
    int32_t row                 # its tokens are begin .. end - 1 of the text of this request
    int32_t begin
    int32_t end
    int32_t parent              # -1: of the root; of a free node the next free one
    int32_t first_child         # the one made last; -1: it is a leaf
    int32_t next                # sibling
    int32_t before              # sibling; -1: it is the first
    int32_t in_bucket           # the next one in the same bucket of the table of children
    uint32_t code               # of its parent and first token: its last bits are the bucket
    int32_t locks
    int32_t hits


cdef struct Leaves:             # a heap: the first to go is its top
    Placed* entries             # [size] there is room for all nodes
    int32_t size


cdef struct Piece:              # part of a text, from some token on
    int64_t stream
    int64_t offset              # in the stream
    int64_t left                # tokens up to the end of the piece


cdef class RadixTree:
    cdef readonly int32_t page_size
    cdef int32_t ahead                  # tokens behind a token that its key covers, see radix_tree.pyx
    cdef readonly int64_t evictable     # tokens of nodes without locks
    cdef readonly int64_t protected     # tokens of nodes with locks
    cdef readonly int64_t evicted       # tokens evicted so far
    cdef Node* _nodes                   # [_num_nodes] free ones included
    cdef int32_t _num_nodes
    cdef int32_t _room
    cdef int32_t _first_free
    cdef int32_t* _buckets              # [_num_buckets] children by parent and first token; -1: empty
    cdef int32_t _num_buckets           # a power of two
    cdef Leaves _leaves                 # all evictable ones, and others that have not come to the top since they were
    cdef int32_t* _places               # [_room] place of a node among leaves; -1: it is in no list of leaves
    cdef RowList _path                  # of the insert under way: nodes known to agree, from the last one to the first
    cdef int _policy                    # Eviction
    cdef CacheLog log                   # hashes of pages that enter and leave; None: there is no follower
    cdef readonly int64_t host_tokens   # tokens in host memory alone that the last match found behind those returned
    cdef int32_t host_node              # the node where they end
    cdef readonly int64_t revived       # tokens that the last insert found in host memory alone, and made present again
    cdef int64_t _now                   # logical clock: a tick per event
    cdef int32_t longest_prompt         # a longer prompt is one token, the same for all longer ones, before the output
    cdef Content _content
    cdef const Request* _requests
    cdef const Demand* _demands
    cdef const Segment* _segments

    # Tokens that two texts have in common from these places on, at most `most`.
    cdef int64_t common(self, int32_t row, int64_t begin, int32_t other, int64_t other_begin,
                        int64_t most) noexcept nogil

    # The same for keys of tokens: tokens that agree together with the `ahead` tokens behind them.
    cdef inline int64_t common_keys(self, int32_t row, int64_t begin, int32_t other, int64_t other_begin,
                                    int64_t most) noexcept nogil:
        return max(self.common(row, begin, other, other_begin, most + self.ahead) - self.ahead, <int64_t>0)

    # Hash key of the beginning of a text. False: a match would find no token of such a text, and change nothing.
    cdef inline uint32_t first_code(self, int32_t row) noexcept nogil:
        return self._code_of(0, row, 0)

    cdef inline bint may_begin(self, uint32_t code) noexcept nogil:
        cdef int32_t child = self._buckets[code & <uint32_t>(self._num_buckets - 1)]
        while child >= 0 and self._nodes[child].code != code:
            child = self._nodes[child].in_bucket
        return child >= 0

    # Walk down as far as whole pages of the first `num_tokens` of a text agree, and mark them used: tokens, end node.
    cdef int32_t match(self, int32_t row, int64_t num_tokens, int32_t* node) except -1 nogil

    # Add the first `num_tokens` tokens of a text, whole pages; tokens beyond the first `counted` count as hits. Return
    # the number of tokens that were there already. `known`: a locked node with a path of this text; 0: none is known.
    cdef int32_t insert(self, int32_t row, int64_t num_tokens, int64_t priority, int64_t counted, int32_t known,
                        int32_t* node) except -1 nogil

    # Lock (1) or unlock (-1) the path from a node up to `above`, which is left alone. Unlock one path, lock another.
    cdef void lock(self, int32_t node, int32_t above, int32_t change) noexcept nogil
    cdef void move_lock(self, int32_t before, int32_t after) noexcept nogil

    # Drop a leaf in the order of the policy; return its tokens, 0: there is none without locks.
    cdef int32_t evict(self) except -1 nogil

    # Drop all text in host memory and all evictable text on the accelerator: tokens of the latter. Here: nothing.
    cdef int64_t forget_host(self) except -1 nogil

    # Lock the part of a path that is in host memory, for a request that begins with the whole path; then bring it to
    # pages that hold nothing, if `has_room`; else it is too short, or there is no room. Here: nothing.
    cdef int64_t begin_load(self, int32_t node) except -1 nogil
    cdef int end_load(self, int32_t node, int64_t lock, bint has_room, int32_t row) except -1 nogil

    # Number of nodes, free ones included; the first child of a node; its next sibling.
    cdef inline int32_t num_nodes(self) noexcept nogil:
        return self._num_nodes

    cdef inline int32_t first_child(self, int32_t node) noexcept nogil:
        return self._nodes[node].first_child

    cdef inline int32_t next_sibling(self, int32_t node) noexcept nogil:
        return self._nodes[node].next

    cdef inline int64_t made(self, int32_t node) noexcept nogil:
        return self._nodes[node].made

    cdef Piece _piece_at(self, int32_t row, int64_t place) noexcept nogil
    cdef Piece _piece_of_cut(self, int32_t row, int64_t place) noexcept nogil
    cdef int32_t _add_leaf(self, int32_t parent, int32_t row, int64_t begin, int64_t end, int64_t priority,
                           bint is_hit) except -1 nogil
    cdef void _note(self, int32_t node, bint is_there) noexcept nogil
    cdef int32_t _new(self, int32_t parent, int32_t row, int64_t begin, int64_t end) except -1 nogil
    cdef void _drop(self, int32_t node) noexcept nogil
    cdef void _touch_path(self, int32_t node) noexcept nogil
    cdef int32_t _step(self, int32_t node, int32_t row, int64_t begin, int64_t end, int32_t* tokens) noexcept nogil
    cdef int _climb(self, int32_t node) except -1 nogil
    cdef int32_t _descend(self, int32_t node, int32_t row, int64_t begin, int64_t end, int32_t* tokens) noexcept nogil
    cdef int32_t _split(self, int32_t node, int32_t tokens) except -1 nogil
    cdef uint32_t _code_of(self, int32_t parent, int32_t row, int64_t begin) noexcept nogil
    cdef void _link(self, int32_t node) noexcept nogil
    cdef void _unlink(self, int32_t node) noexcept nogil
    cdef int _rehash(self) except -1 nogil
    cdef Placed _entry(self, int32_t node) noexcept nogil
    cdef int32_t _first_leaf(self) noexcept nogil
    cdef void _settle(self, int32_t node) noexcept nogil
    cdef void _put_in(self, Leaves* leaves, int32_t node) noexcept nogil
    cdef void _take_out(self, Leaves* leaves, int32_t node) noexcept nogil
