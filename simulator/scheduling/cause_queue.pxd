"""Waiting rows in order, each under the cause that may let it be passed over."""
from libc.stdint cimport int32_t, int64_t, uint8_t
cimport cython

from simulator.core.hash_map cimport HashMap
from simulator.core.heap cimport RowHeap, entry_before
from simulator.core.index_heap cimport IndexHeap
from simulator.core.pairing_heap cimport HeapNode


cdef enum WaiterState:
    FREE = 0                    # no row
    QUEUED = 1                  # in the heap of its cause
    ASIDE = 2                   # out of order for the rest of a pass
    PARKED = 3                  # out of order until an instant


cdef struct Waiter:             # a row that waits; its node, of the same index, is in the heap of its cause
    int32_t row
    int32_t cause
    int32_t state               # WaiterState
    int32_t next_free           # of a node that is FREE; -1: none


@cython.final
cdef class CauseQueue:
    cdef readonly int32_t size          # rows in it, in whatever state
    cdef readonly int32_t num_causes
    cdef Waiter* _waiters               # [_room]
    cdef HeapNode* _nodes               # [_room] key, tie and rank: the place in the order of all rows
    cdef int32_t _room, _free           # nodes; the first free one, -1: none
    cdef HashMap _node_of_row
    cdef int32_t* _roots                # [cause] node of the first QUEUED row; -1: none
    cdef uint8_t* _is_open              # [cause]
    cdef IndexHeap _open, _closed       # causes with QUEUED rows, by their first row
    cdef int32_t _num_parked
    cdef RowHeap _instants              # (instant, row) of PARKED rows; also of rows that have left or returned since

    # Add a row under a cause, with its place in the order. -1 without memory, and nothing changed.
    cdef int push(self, int32_t row, int32_t cause, int64_t key, int64_t tie, int32_t rank) except -1 nogil

    # Remove a row in whatever state; -1 if it is absent.
    cdef int remove(self, int32_t row) noexcept nogil

    # The first QUEUED row of open causes, or of all causes; -1: none.
    cdef inline int32_t first(self, bint of_all) noexcept nogil:
        cdef int32_t cause = self._open.top()
        if of_all and self._closed.size > 0 and (
                cause < 0 or entry_before(self._closed.at(0), self._open.at(0))):
            cause = self._closed.top()
        return self._waiters[self._roots[cause]].row if cause >= 0 else -1

    # Open a cause: its rows can be admitted now; or close it. At first only the first cause is open.
    cdef void set_open(self, int32_t cause, bint is_open) noexcept nogil

    # Put a row under another cause.
    cdef void move(self, int32_t row, int32_t cause) noexcept nogil

    # Let a row be passed over until `put_back`, or until an instant, when `wake` returns it; NEVER_NS: only `wake_all`.
    cdef void set_aside(self, int32_t row) noexcept nogil
    cdef void put_back(self, int32_t row) noexcept nogil
    cdef int park_until(self, int32_t row, int64_t instant_ns) except -1 nogil
    cdef void wake(self, int64_t now_ns) noexcept nogil
    cdef void wake_all(self) noexcept nogil

    cdef int32_t _node_of(self, int32_t row) noexcept nogil
    cdef void _link(self, int32_t node) noexcept nogil
    cdef void _unlink(self, int32_t node) noexcept nogil
    cdef void _set_root(self, int32_t cause, int32_t node) noexcept nogil
    cdef int _grow(self) except -1 nogil
