"""Copies between the blocks of a replica and a tier."""
from libc.stdlib cimport free
from libc.string cimport memset
cimport cython

from simulator.core.memory cimport resize
from simulator.core.row_list cimport add_row


@cython.final
cdef class Copies:
    """All copies of one replica.

    store, load : Lane of each direction.
    step : Lane of loads that their step waits for; None: there are none.
    """

    def __cinit__(self, Lane store, Lane load, Lane step=None):
        self._store_lane, self._load_lane, self._step_lane = store, load, step
        self.waits_in_step = step is not None
        self._step_loads = Queue(-1, -1)
        self._free = -1
        self._new_stores = self._new_loads = self._waiting = self._done = Queue(-1, -1)

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self._room):
            free(self.copies[i].chunks)
        free(self.copies)
        free(self.flushed.rows)
        free(self._begun.rows)

    # ---- queues

    cdef int _grow(self) except -1 nogil:
        cdef int32_t before = self._room, after = 2 * self._room + 8, i
        resize(&self.copies, after * sizeof(Copy))
        memset(self.copies + before, 0, (after - before) * sizeof(Copy))
        self._room = after
        for i in range(after - 1, before - 1, -1):
            self.give_back(i)
        return 0

    cdef void give_back(self, int32_t copy) noexcept nogil:
        self.copies[copy].num_chunks = 0
        self.copies[copy].following = self._free
        self._free = copy

    cdef void _push(self, Queue* queue, int32_t copy) noexcept nogil:
        self.copies[copy].following = -1
        if queue.last >= 0:
            self.copies[queue.last].following = copy
        else:
            queue.first = copy
        queue.last = copy

    cdef int32_t _pop(self, Queue* queue) noexcept nogil:
        cdef int32_t copy = queue.first
        if copy >= 0:
            queue.first = self.copies[copy].following
            if queue.first < 0:
                queue.last = -1
        return copy

    # ---- a step

    cdef int32_t plan(self, Direction direction, int32_t user, int32_t slot, int64_t num_blocks) except -1 nogil:
        cdef int32_t copy
        cdef Copy* it
        if self._free < 0:
            self._grow()
        copy = self._free
        it = &self.copies[copy]
        self._free = it.following
        it.number, it.num_blocks, it.user, it.slot = self.num_planned, num_blocks, user, slot
        it.direction, it.is_planned, it.is_flushed, it.sibling = direction, True, False, -1
        self.num_planned += 1
        self.num_loading += direction == LOAD
        if direction == STORE:
            self._push(&self._new_stores, copy)
        else:
            self._push(&self._step_loads if self.waits_in_step and slot < 0 else &self._new_loads, copy)
        return copy

    cdef int add_chunk(self, int32_t copy, int32_t chunk) except -1 nogil:
        cdef Copy* it = &self.copies[copy]
        if it.num_chunks == it.room:
            resize(&it.chunks, (2 * it.room + 4) * sizeof(int32_t))
            it.room = 2 * it.room + 4
        it.chunks[it.num_chunks] = chunk
        it.num_chunks += 1
        return 0

    cdef int flush(self, int32_t copy) except -1 nogil:
        if not self.copies[copy].is_flushed and self.copies[copy].direction == STORE:
            self.copies[copy].is_flushed = True
            add_row(&self.flushed, copy)
        return 0

    cdef int _begin(self, int32_t copy, int64_t now_ns) except -1 nogil:
        cdef Copy* it = &self.copies[copy]
        it.is_planned = False
        if it.direction == STORE:
            return self._store_lane.begin(copy, it.num_blocks, now_ns)
        return self._load_lane.begin(copy, it.num_blocks, now_ns)

    cdef int64_t launch(self, int64_t now_ns, int64_t free_ns) except -1 nogil:
        cdef int32_t copy = self._waiting.first, following
        cdef Queue planned = self._new_stores
        self.has_acted = planned.first >= 0 or self._new_loads.first >= 0 or self.flushed.size > 0
        if self.loads_at_once:
            self._begin_at_once(max(now_ns, free_ns))
        while copy >= 0:
            following = self.copies[copy].following
            self._begin(copy, max(now_ns, free_ns))
            copy = following
        self._waiting, self._new_stores = planned, Queue(-1, -1)
        self._is_taken = self.flushed.size == 0 and self._new_loads.first < 0 and self._step_loads.first < 0
        if self._is_taken:
            self._take_all_ended(now_ns)
            return now_ns
        if self.flushed.size > 0:
            now_ns = self._launch_flushing(&planned, now_ns, free_ns)
        return now_ns if self._step_loads.first < 0 else self._launch_loading(now_ns, free_ns)

    cdef int64_t _launch_loading(self, int64_t now_ns, int64_t free_ns) except -1 nogil:
        cdef int32_t copy = self._pop(&self._step_loads), i
        cdef int64_t launch_ns = now_ns
        self.has_acted, self._begun.size = True, 0
        while copy >= 0:
            self.copies[copy].is_planned = False
            self._step_lane.begin(copy, self.copies[copy].num_blocks, max(now_ns, free_ns))
            add_row(&self._begun, copy)
            copy = self._pop(&self._step_loads)
        for i in range(self._begun.size):
            launch_ns = max(launch_ns, self._step_lane.end_ns(self._begun.rows[i]))
        return launch_ns

    cdef int64_t _launch_flushing(self, Queue* planned, int64_t now_ns, int64_t free_ns) except -1 nogil:
        cdef int64_t launch_ns = now_ns
        cdef int32_t copy = self._pop(planned), i
        self._waiting = Queue(-1, -1)
        while copy >= 0:
            if self.copies[copy].is_flushed:
                self._begin(copy, max(now_ns, free_ns))
            else:
                self._push(&self._waiting, copy)
            copy = self._pop(planned)
        for i in range(self.flushed.size):
            copy = self.flushed.rows[i]
            launch_ns = max(launch_ns, self._store_lane.end_ns(copy))
            self.copies[copy].is_flushed = False
            if self._log is not None:
                self._note(False, copy)
        self.num_flushed += self.flushed.size
        self.waited_ns += max(launch_ns - max(now_ns, free_ns), <int64_t>0)
        self.flushed.size = 0
        return launch_ns

    cdef int _begin_at_once(self, int64_t now_ns) except -1 nogil:
        cdef int32_t copy = self._pop(&self._new_loads), i
        self.loaded_ns = self._begun.size = 0
        while copy >= 0:
            self._begin(copy, now_ns)
            add_row(&self._begun, copy)
            copy = self._pop(&self._new_loads)
        for i in range(self._begun.size):
            self.loaded_ns = max(self.loaded_ns, self._load_lane.end_ns(self._begun.rows[i]))
        return 0

    cdef int64_t _begin_loads(self, int64_t launch_ns, int64_t end_ns) except -1 nogil:
        cdef int32_t copy = self._pop(&self._new_loads)
        while copy >= 0:
            self._begin(copy, end_ns)
            copy = self._pop(&self._new_loads)
        self._take_all_ended(launch_ns)
        return self.num_done

    cdef int _take_all_ended(self, int64_t launch_ns) except -1 nogil:
        cdef int64_t done_before = self.num_done
        if self._store_lane.next_end_ns() <= launch_ns:
            self._take_ended(self._store_lane, launch_ns)
        if self._load_lane.next_end_ns() <= launch_ns:
            self._take_ended(self._load_lane, launch_ns)
        if self.waits_in_step and self._step_lane.next_end_ns() <= launch_ns:
            self._take_ended(self._step_lane, launch_ns)
        self.has_acted = self.has_acted or self.num_done > done_before
        return 0

    cdef int _take_ended(self, Lane lane, int64_t until_ns) except -1 nogil:
        cdef int32_t copy = lane.take(until_ns)
        while copy >= 0:
            self._push(&self._done, copy)
            self.num_done += 1
            if self._log is not None:
                self._note(True, copy)
            copy = lane.take(until_ns)
        return 0

    cdef int32_t _take_done(self) noexcept nogil:
        cdef int32_t copy = self._pop(&self._done)
        self.num_reported += 1
        self.num_loading -= self.copies[copy].direction == LOAD
        return copy

    # ---- questions

    cdef double busy_ns(self, Direction direction, int64_t num_copies, int64_t num_blocks) noexcept nogil:
        if direction == STORE:
            return self._store_lane.busy_ns(num_copies, num_blocks)
        return self._load_lane.busy_ns(num_copies, num_blocks)

    cdef int64_t num_underway(self) noexcept nogil:
        cdef int64_t count = self._room
        cdef int32_t copy = self._free
        while copy >= 0:
            count -= 1
            copy = self.copies[copy].following
        return count

    cdef int cancel(self) except -1 nogil:
        cdef int32_t i
        self.num_cancelled = self.num_planned - self.num_reported
        self.num_done = self.num_reported
        self.num_loading = 0
        self._store_lane.clear()
        self._load_lane.clear()
        if self.waits_in_step:
            self._step_lane.clear()
        self._new_stores = self._new_loads = self._step_loads = self._waiting = self._done = Queue(-1, -1)
        self.flushed.size = 0
        self._free = -1
        for i in range(self._room - 1, -1, -1):
            self.give_back(i)
        return 0

    # ---- the debug face

    def keep_log(self):
        """Note from now on the copies that are flushed and done."""
        self._log = ([], [])

    def take_log(self):
        """Return the numbers of the copies `flushed`, sorted, and `done` since the last call."""
        flushed, done = self._log
        self._log = ([], [])
        return {"flushed": sorted(flushed), "done": done}

    cdef int _note(self, bint is_done, int32_t copy) except -1 nogil:
        with gil:
            self._log[<int>is_done].append(self.copies[copy].number)
        return 0
