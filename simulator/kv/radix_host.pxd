"""A radix tree of texts with copies of its nodes in host memory, as SGLang's HiCache keeps them.

Each node has pages on the accelerator, in host memory, or both. The nodes with pages on the accelerator are the upper
part of the tree. With write_through and write_through_selective so are the nodes with a copy in host memory. The tree
decides which nodes are copied, and counts a copy as present at once; its owner reports when the copy has ended.
"""
from libc.stdint cimport int8_t, int32_t, int64_t

from simulator.core.index_list cimport IndexLinks, IndexList
from simulator.core.row_list cimport RowList
from simulator.kv.radix_tree cimport Leaves, RadixTree


cdef struct Side:               # further state of a node
    int64_t segment             # the locks in host memory that have this node as upper end; 0: none
    int32_t host_locks
    int32_t device_children     # children with pages on the accelerator
    int32_t writing             # number of the copy to host memory that is under way; 0: none
    int32_t loading             # with write_back: number of the load that reads its copy; 0: none
    int8_t on_device
    int8_t on_host
    int8_t is_host_leaf         # `place` is an index into _host_leaves


cdef struct Backup:             # a copy of a node to host memory
    int32_t node                # its lowest part, if it has been split since
    int32_t number
    int32_t row                 # the request that has this text
    int32_t tokens


cdef struct Loading:            # a copy of a path to the accelerator
    int32_t node                # its lower end
    int32_t number
    int32_t row                 # the request that needs it
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
    cdef readonly int64_t host_free     # tokens of its pages that hold nothing
    cdef readonly int64_t host_lent     # tokens of its pages that are being read into, and belong to no node yet
    cdef readonly int64_t host_evicted  # tokens evicted from host memory
    cdef readonly int64_t num_refused   # copies for which there was no room
    cdef readonly int64_t num_copies    # copies to host memory so far; the last one's number
    cdef readonly int64_t num_loads
    cdef bint _writes_back
    cdef int32_t _threshold             # hits from which on a node is copied
    cdef bint keeps_extents             # a store below needs `extents`
    cdef Side* _sides                   # [_side_room] by node
    cdef int32_t _side_room
    cdef Leaves _host_leaves            # evictable nodes in host memory alone
    cdef RowList _chain                 # scratch
    cdef IndexLinks _links
    cdef IndexList _duplicates          # with write_back: nodes in both places, in the order in which they got there
    cdef int64_t _segments
    cdef Backup* backups                # [num_backups] requested since the owner emptied it
    cdef int32_t num_backups, _backup_room
    cdef Loading* loadings              # [num_loadings] requested since the owner emptied it
    cdef int32_t num_loadings, _loading_room
    cdef Extent* extents                # [num_extents] copied to host memory, locked there, since emptied by the owner
    cdef int32_t num_extents, _extent_room

    # A requested copy to host memory has ended, or is cancelled. A load has ended.
    cdef int finish_backup(self, const Backup* backup) except -1 nogil
    cdef int cancel_backup(self, const Backup* backup) except -1 nogil
    cdef int finish_load(self, const Loading* loading) except -1 nogil

    # Keep the copy of a node from eviction; returns the receipt for `unlock_host`, 0: the node has no copy.
    cdef int64_t lock_host(self, int32_t node) noexcept nogil
    cdef void unlock_host(self, int32_t node, int64_t lock) noexcept nogil

    # Tokens begin .. end - 1 of a text were read into pages of host memory behind `node`, which is locked there: make
    # nodes of the tokens that host memory lacks; return the number of the other tokens; their pages are free.
    cdef int64_t insert_host(self, int32_t node, int32_t row, int64_t begin, int64_t end) except -1 nogil

    # Evict from host memory until that gains `tokens` tokens. Make room there for `tokens`: is there any?
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
