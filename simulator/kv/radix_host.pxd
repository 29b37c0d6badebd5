"""A radix tree of texts with copies of its nodes in host memory, as SGLang's HiCache keeps them.

Each node has pages on the accelerator, in host memory, or both. Those with pages on the accelerator are the upper part
of the tree, and with write_through and write_through_selective so are those with a copy in host memory, among all. The
tree decides what is copied, and takes the copy for granted at once; whoever owns it says when a copy has ended.
"""
from libc.stdint cimport int8_t, int32_t, int64_t

from simulator.core.index_list cimport IndexLinks, IndexList
from simulator.core.row_list cimport RowList
from simulator.kv.radix_tree cimport Leaves, RadixTree


cdef struct Side:               # what a node has besides
    int64_t segment             # of locks in host memory, whose upper end it is; 0: of none
    int32_t host_locks
    int32_t device_children     # children with pages on the accelerator
    int32_t writing             # number of the copy to host memory that is under way; 0: none
    int32_t loading             # with write_back: number of the load that reads its copy; 0: none
    int8_t on_device
    int8_t on_host
    int8_t is_host_leaf         # its `place` is one among those of host memory


cdef struct Backup:             # a copy of a node to host memory
    int32_t node                # its lowest part, where it has been split since
    int32_t number
    int32_t row                 # whose text it is
    int32_t tokens


cdef struct Loading:            # a copy of a path to the accelerator
    int32_t node                # its end
    int32_t number
    int32_t row                 # for whom
    int32_t tokens
    int64_t lock                # of `node` in host memory


cdef struct Extent:             # part of a text that lies in host memory
    int32_t node
    int32_t row
    int32_t begin
    int32_t end
    int64_t lock


cdef class HostTree(RadixTree):
    cdef readonly int64_t capacity      # tokens of host memory
    cdef readonly int64_t host_free     # of these, those of pages that hold nothing
    cdef readonly int64_t host_lent     # of these, those of pages that are read into, and in no node yet
    cdef readonly int64_t host_evicted  # tokens that have gone from there for others
    cdef readonly int64_t num_refused   # copies for which there was no room
    cdef readonly int64_t num_copies    # to host memory so far; that is their number
    cdef readonly int64_t num_loads
    cdef bint _writes_back
    cdef int32_t _threshold             # hits with which a node is copied
    cdef bint keeps_extents             # `extents` are wanted: there is a store below
    cdef Side* _sides                   # [_side_room] by node
    cdef int32_t _side_room
    cdef Leaves _host_leaves            # nodes in host memory alone that may go
    cdef RowList _chain                 # nodes at hand
    cdef IndexLinks _links
    cdef IndexList _duplicates          # with write_back: nodes in both, in the order in which they became so
    cdef int64_t _segments
    cdef Backup* backups                # [num_backups] asked for since somebody emptied it
    cdef int32_t num_backups, _backup_room
    cdef Loading* loadings              # [num_loadings] likewise
    cdef int32_t num_loadings, _loading_room
    cdef Extent* extents                # [num_extents] copied to host memory, locked there, likewise
    cdef int32_t num_extents, _extent_room

    # A copy that was asked for has ended, or comes to nothing. A load has ended.
    cdef int finish_backup(self, const Backup* backup) except -1 nogil
    cdef int cancel_backup(self, const Backup* backup) except -1 nogil
    cdef int finish_load(self, const Loading* loading) except -1 nogil

    # Keep the copy of a node from going; the receipt for `unlock_host`, 0: it has none that could.
    cdef int64_t lock_host(self, int32_t node) noexcept nogil
    cdef void unlock_host(self, int32_t node, int64_t lock) noexcept nogil

    # What was read of a text, tokens begin .. end - 1, is in pages of host memory behind a node, which is locked there:
    # those of it become nodes that host memory lacks; return the tokens of the others, whose pages are free.
    cdef int64_t insert_host(self, int32_t node, int32_t row, int64_t begin, int64_t end) except -1 nogil

    # Let what may go do so in host memory, until that gained so many tokens. Find room there for so many: is there any?
    cdef int64_t evict_host(self, int64_t tokens) except -1 nogil
    cdef bint make_host_room(self, int64_t tokens) except -1 nogil

    cdef inline bint is_on_host(self, int32_t node) noexcept nogil:
        return node > 0 and self._sides[node].on_host

    cdef int _grow_sides(self) except -1 nogil
    cdef inline int32_t _tokens(self, int32_t node) noexcept nogil:
        return self._nodes[node].end - self._nodes[node].begin

    cdef void _use(self, int32_t node) noexcept nogil
    cdef void _come(self, int32_t node) noexcept nogil
    cdef void _go(self, int32_t node) noexcept nogil
    cdef int _hit(self, int32_t node) except -1 nogil
    cdef int _back_up(self, int32_t node) except -1 nogil
    cdef bint _write(self, int32_t node) except -1 nogil
    cdef int _add_extent(self, int32_t node) except -1 nogil
    cdef void _track(self, int32_t node) noexcept nogil
    cdef bint _is_duplicate(self, int32_t node) noexcept nogil
    cdef int64_t _give_up_duplicates(self, int64_t tokens) except -1 nogil
    cdef int64_t _drop_host(self, int32_t node) noexcept nogil
    cdef int32_t _demote(self, int32_t node) noexcept nogil
    cdef int32_t _delete(self, int32_t node) noexcept nogil
    cdef int32_t _drop_subtree(self, int32_t node) except -1 nogil
