"""The store below the host memory of SGLang's HiCache: pages written to it, and prefetched from it for who waits.

A prefetch is asked for when its request enters the queue, and looked at each time that a batch is formed: it is given
room in host memory, read there, and what was read enters the tree. Who waits is passed over until then, or stops it.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
cimport cython

from simulator.core.row_list cimport RowList
from simulator.kv.content cimport Content
from simulator.kv.radix_host cimport Extent, HostTree
from simulator.kv.tiers.level cimport Level


cdef enum Stage:                # of a prefetch
    ASKED                       # what the store has was looked up, and nobody has looked at the answer
    QUEUED                      # it has room, and waits for its turn
    READING
    COMPLETE                    # all that there was, and nobody has looked
    STOPPED                     # nobody wants it any more; what is under way still has its room


cdef struct Fetch:
    int64_t lock                # of `node` in host memory
    int64_t begin               # of the text, in tokens
    int64_t asked               # tokens
    int64_t room                # tokens of pages that it has
    int64_t completed           # tokens that have come
    int64_t deadline_ns         # when it is waited for no longer; -1: nobody has waited for it
    uint64_t* hashes            # [num_pages] that the store had
    int32_t num_pages
    int32_t row
    int32_t node                # behind which it belongs
    int32_t job                 # of the level; -1: none
    int32_t underway            # pages of it
    Stage stage


cdef struct Held:               # an extent that is being written
    int32_t node
    int32_t num_jobs            # 0: it is free
    int64_t lock


@cython.final
cdef class HicacheStore:
    cdef readonly Level level
    cdef HostTree _tree
    cdef Content _content
    cdef int32_t _client
    cdef int64_t _page
    cdef bint _is_shared                # by other replicas
    cdef int _policy                    # what who waits does, an index of POLICIES
    cdef int64_t _threshold             # tokens
    cdef double _base_ns, _page_ns      # of the time that is waited
    cdef Fetch* _fetches                # [_num_fetches] in the order in which they were asked for
    cdef int32_t _num_fetches, _room
    cdef Held* _held                    # [_num_held]
    cdef int32_t _num_held
    cdef int64_t _occupied              # tokens of those asked for
    cdef bint _is_asked                 # somebody has, since somebody looked
    cdef uint64_t* _hashes              # [_hash_room]
    cdef int32_t* _there                # [_hash_room]
    cdef int32_t _hash_room
    cdef readonly int64_t refusals      # prefetches for which there was no room

    # Ask for what it has of a text behind its first `begin` tokens, of which `node` has the last, up to `end`.
    cdef int ask(self, int32_t row, int32_t node, int64_t begin, int64_t end) except -1 nogil

    # May a request be admitted at `now_ns`? Else it waits for what is read.
    cdef bint may_go(self, int32_t row, int64_t now_ns) except -1 nogil

    # A request is gone.
    cdef int forget(self, int32_t row) except -1 nogil

    # Take notice of what was done by `now_ns`, and begin what is next. Write what the tree has copied.
    cdef int notice(self, int64_t now_ns) except -1 nogil
    cdef int write(self, int64_t now_ns) except -1 nogil

    cdef int64_t next_ns(self) noexcept nogil

    # The replica has failed.
    cdef int fail(self) except -1 nogil

    cdef int32_t _fetch_of(self, int32_t row) noexcept nogil
    cdef int32_t _hash(self, int32_t row, int64_t begin, int64_t end) except -1 nogil
    cdef void _end(self, int32_t fetch) noexcept nogil
    cdef int _insert(self, int32_t fetch) except -1 nogil
    cdef bint _give_room(self, int32_t fetch) except -1 nogil
    cdef int _begin_next(self, int64_t now_ns) except -1 nogil
    cdef int _begin(self, Fetch* it, int64_t now_ns) except -1 nogil
    cdef int _take_done(self) except -1 nogil
    cdef void _take_read(self, int32_t job, int32_t num_pages) noexcept nogil
    cdef int _write_extent(self, const Extent* extent, int64_t now_ns) except -1 nogil
    cdef int32_t _hold(self, const Extent* extent) except -1 nogil
