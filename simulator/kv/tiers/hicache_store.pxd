"""The store below the host memory of SGLang's HiCache: pages written to it, and prefetched from it.

A prefetch is requested when its request enters the queue, and checked each time that a batch is formed: it gets room in
host memory, is read there, and enters the tree. A waiting request is passed over until then, or stops its prefetch.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
cimport cython

from simulator.kv.content cimport Content
from simulator.kv.radix_host cimport Extent, HostTree
from simulator.kv.tiers.level cimport Level


cdef enum Stage:                # of a prefetch
    ASKED                       # pages of the store were looked up; no pass has run since
    QUEUED                      # it has room, and waits to be read
    READING
    COMPLETE                    # all its pages were read; no pass has run since
    STOPPED                     # its request does not wait any more; a read in flight still has its room


cdef struct Fetch:
    int64_t lock                # of `node` in host memory
    int64_t begin               # of the text, in tokens
    int64_t asked               # tokens requested
    int64_t room                # tokens of its pages of host memory
    int64_t completed           # tokens read so far
    int64_t deadline_ns         # when its request stops waiting; -1: it has not waited yet
    uint64_t* hashes            # [num_pages] of pages that the store had
    int32_t num_pages
    int32_t row
    int32_t node                # the node that it continues
    int32_t job                 # of the level; -1: none
    int32_t underway            # pages of that job
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
    cdef bint _is_shared                # other replicas use the store, too
    cdef int _policy                    # rule for requests that wait, an index of POLICIES
    cdef int64_t _threshold             # tokens
    cdef double _base_ns, _page_ns      # of the longest wait, a constant and a part per page
    cdef Fetch* _fetches                # [_num_fetches] in order of request
    cdef int32_t _num_fetches, _room
    cdef Held* _held                    # [_num_held]
    cdef int32_t _num_held
    cdef int64_t _occupied              # tokens of all prefetches
    cdef bint _is_asked                 # a prefetch was requested since the last pass
    cdef uint64_t* _hashes              # [_hash_room]
    cdef int32_t* _there                # [_hash_room]
    cdef int32_t _hash_room
    cdef readonly int64_t refusals      # prefetches for which there was no room

    # Prefetch tokens of a text that the store has, behind its first `begin`, which end with `node`, up to `end`.
    cdef int ask(self, int32_t row, int32_t node, int64_t begin, int64_t end) except -1 nogil

    # May a request be admitted at `now_ns`? Else it waits for its prefetch.
    cdef bint may_go(self, int32_t row, int64_t now_ns) except -1 nogil

    # A request has ended: drop its prefetch.
    cdef int forget(self, int32_t row) except -1 nogil

    # Notice reads and writes that ended by `now_ns`, and begin the next. Write the nodes that the tree has copied.
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
