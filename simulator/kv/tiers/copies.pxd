"""Copies between the blocks of a replica and a tier: planned, in flight, and done but not yet reported.

A copy goes through the steps of vLLM's worker as follows. Stores are planned when a batch is formed and begin when the
next one is, so that their tokens are computed by then; loads begin behind the batch in which they were planned. A step
that reuses blocks which a store still reads *flushes* it: the store begins at once, and the batch waits for its end. A
copy that has ended when a batch is launched is reported when that batch ends. Source: the behaviour of vLLM 0.32.0,
vllm/distributed/kv_transfer/kv_connector/v1/offloading/worker.py.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.row_list cimport RowList
from simulator.kv.tiers.lane cimport Lane


cdef enum Direction:
    STORE = 0
    LOAD = 1


cdef struct Copy:
    int64_t number              # copies are numbered as they are planned, from 0
    int64_t num_blocks
    int32_t* chunks             # [num_chunks] elements of the tier's table that are written or read
    int32_t num_chunks
    int32_t room                # chunks that fit before it must grow
    int32_t user                # the tier's index of the request that it is for
    int32_t slot                # of a load: the sequence that waits for it; else -1
    int32_t following           # next in its queue; of a copy not in use: the next one; -1: none
    int32_t sibling             # next of the same user, -1: none
    int8_t direction
    int8_t is_planned           # it has not begun yet
    int8_t is_flushed           # by the step being formed


# A name that no other copy has, not even an earlier or later one with the same index; the index from a name.
cdef inline int64_t name_of(const Copy* it, int32_t copy) noexcept nogil:
    return it.number << 32 | copy

cdef inline int32_t copy_named(int64_t name) noexcept nogil:
    return <int32_t>(name & 0x7FFFFFFF)


cdef struct Queue:
    int32_t first, last         # copies; -1: none


@cython.final
cdef class Copies:
    cdef Copy* copies           # [_room]
    cdef Lane _store_lane, _load_lane
    cdef Lane _step_lane        # of loads that their step waits for, on a stream of their own; None: there are none
    cdef readonly int64_t num_planned           # so far
    cdef readonly int64_t num_done              # so far; they may be reported
    cdef readonly int64_t num_reported          # so far; at most num_done
    cdef readonly int64_t num_cancelled
    cdef readonly int64_t num_loading           # loads that are planned and not reported
    cdef readonly int64_t num_flushed
    cdef readonly int64_t waited_ns             # time that batches waited for stores
    cdef bint has_acted         # the step launched last planned, flushed or reported something
    cdef RowList flushed        # copies, by the step being formed
    cdef bint loads_at_once     # loads begin with their own batch, and not behind it
    cdef bint waits_in_step     # so do loads that no slot waits for, and the batch is launched when they have ended
    cdef int64_t loaded_ns      # when the loads of the step launched last end; 0: it has none
    cdef RowList _begun         # the loads of that step
    cdef bint _is_taken         # copies that had ended at the launch of that step are in `_done`
    cdef Queue _new_stores      # planned by the step being formed
    cdef Queue _new_loads
    cdef Queue _step_loads      # the same for loads that the step waits for
    cdef Queue _waiting         # planned by the step before
    cdef Queue _done            # to be reported
    cdef int32_t _room
    cdef int32_t _free          # first not in use; -1: none

    # Plan a copy of `num_blocks` blocks for a user; add_chunk() adds an element to write or read. -1 without memory.
    cdef int32_t plan(self, Direction direction, int32_t user, int32_t slot, int64_t num_blocks) except -1 nogil
    cdef int add_chunk(self, int32_t copy, int32_t chunk) except -1 nogil

    # The step being formed waits for a store.
    cdef int flush(self, int32_t copy) except -1 nogil

    # A step was formed at `now_ns`, and the batch in execution ends at `free_ns`: returns when the step is launched.
    # begin_loads(): its batch was timed; loads begin when it ends; returns the number of copies done at its launch.
    cdef int64_t launch(self, int64_t now_ns, int64_t free_ns) except -1 nogil
    cdef inline int64_t begin_loads(self, int64_t launch_ns, int64_t end_ns) except -1 nogil:
        return self.num_done if self._is_taken else self._begin_loads(launch_ns, end_ns)

    cdef int64_t _begin_loads(self, int64_t launch_ns, int64_t end_ns) except -1 nogil
    cdef int _take_all_ended(self, int64_t launch_ns) except -1 nogil
    cdef int32_t _take_done(self) noexcept nogil
    cdef int64_t _launch_loading(self, int64_t now_ns, int64_t free_ns) except -1 nogil
    cdef int64_t _launch_flushing(self, Queue* planned, int64_t now_ns, int64_t free_ns) except -1 nogil

    # Return the next copy to report, among the first `num_done` that were done; -1: there is none. The caller gives it
    # back.
    cdef inline int32_t take_done(self, int64_t num_done) noexcept nogil:
        return self._take_done() if self.num_reported < num_done else -1

    cdef void give_back(self, int32_t copy) noexcept nogil

    # How long the link is busy with copies done in a direction: `num_copies`, of `num_blocks` in total.
    cdef double busy_ns(self, Direction direction, int64_t num_copies, int64_t num_blocks) noexcept nogil

    # When the next copy ends; NEVER_NS: none is under way.
    cdef inline int64_t next_end_ns(self) noexcept nogil:
        return min(self._store_lane.next_end_ns(), self._load_lane.next_end_ns())

    # is_idle(): no copy is planned, in flight or to be reported. is_quiet(): but copies may be in flight.
    cdef inline bint is_idle(self) noexcept nogil:
        return self.num_planned == self.num_reported + self.num_cancelled

    cdef inline bint is_quiet(self) noexcept nogil:
        return self._waiting.first < 0 and self.num_reported == self.num_done

    # Copies that were planned and are not reported, counted one by one.
    cdef int64_t num_underway(self) noexcept nogil

    # Cancel all copies.
    cdef int cancel(self) except -1 nogil

    cdef object _log            # numbers of copies for the debug face: (flushed, done); None: not kept

    cdef int _grow(self) except -1 nogil
    cdef int _note(self, bint is_done, int32_t copy) except -1 nogil
    cdef void _push(self, Queue* queue, int32_t copy) noexcept nogil
    cdef int32_t _pop(self, Queue* queue) noexcept nogil
    cdef int _take_ended(self, Lane lane, int64_t until_ns) except -1 nogil
    cdef int _begin(self, int32_t copy, int64_t now_ns) except -1 nogil
    cdef int _begin_at_once(self, int64_t now_ns) except -1 nogil
