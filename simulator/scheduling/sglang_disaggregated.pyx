"""SGLang's scheduler with disaggregation: prefill replicas compute prompts, decode replicas generate.

Source: sgl-project/sglang at 0035ca42, python/sglang/srt/disaggregation/decode.py (DecodePreallocQueue,
DecodeTransferQueue, SchedulerDisaggregationDecodeMixin), and at 000c2b94, disaggregation/prefill.py; the sizes of the
request pool are those of managers/scheduler.py (init_disaggregation), model_executor/model_runner_kv_cache_mixin.py.

A decode replica checks for arrived KV each time that it chooses a batch. Retracted requests come first: one resumes as
soon as pages are free for its former KV and num_reserved_decode_tokens; copies to and from host memory take no time
here. While one waits for pages, no other request is given any, and upstream no request with arrived KV joins, even if
nothing runs: that may last for ever, and is followed only with `upstream_compat`.
"""
from libc.stdlib cimport free

from simulator.core.clock cimport NEVER_NS
from simulator.core.row_list cimport add_row, has_row
from simulator.kv.tier cimport External
from simulator.scheduling.base cimport LOADED, Scheduler, Sequence
from simulator.scheduling.sglang_owed cimport MOST_RESERVED
from simulator.scheduling.sglang_running cimport drop_row

cdef enum:
    FEW_PLACES = 32             # max_running_requests up to which the pool holds three times as many requests
    BUFFERS = 2                 # requests with KV on the way, for each of max_running_requests


cdef class SglangDisaggregated(SglangRunning):
    """Base of `Sglang`; see sglang_apart.pxd."""

    def __dealloc__(self):
        free(self._loaded.rows)
        free(self._merging.rows)
        free(self._gone.rows)

    cdef void _take_role(self) noexcept:
        if self.tier is not None and not self.tier.copies:
            self._role = DECODE if self.tier.reserved_tokens >= 0 else PREFILL
        self._is_whole = self._role == WHOLE
        self.notes_always = self._role == DECODE

    # ---- a prefill replica

    cdef bint _keep(self, int32_t slot, int64_t now_ns) except -1 nogil:
        if not Scheduler._keep(self, slot, now_ns):
            return False
        self._forget_slot(slot)
        return True

    # ---- a decode replica: requests that arrive and leave

    cdef int _forget_slot(self, int32_t slot) except -1 nogil:
        if self._role == DECODE and has_row(&self._decoding, slot):
            add_row(&self._gone, self._row(slot))
        return SglangRunning._forget_slot(self, slot)

    cdef int _end_load(self, int32_t slot) except -1 nogil:
        self._sequences[slot].hold = LOADED             # its token is read once it has a place, see _look
        return 0

    cdef bint drop_held(self, int32_t row) except -1 nogil:
        cdef int32_t slot = self._held.head
        while slot >= 0 and self._row(slot) != row:
            slot = self._links.next(slot)
        if slot >= 0:
            drop_row(&self._loaded, slot)
            drop_row(&self._merging, slot)
        return Scheduler.drop_held(self, row)

    cdef int note_transfers(self, int64_t now_ns) except -1 nogil:
        Scheduler.note_transfers(self, now_ns)
        return self._look() if self._role == DECODE else 0

    cdef int _look(self) except -1 nogil:
        """Choose requests that join the running batch, and publish the first tokens that arrived with their KV."""
        cdef int64_t places
        cdef int32_t slot
        self._resume()
        self._has_resumed = True
        if not self._has_retracted() or (self._decoding.size == 0 and not self._is_upstream):
            self._list_loaded()
        places = self.max_running - <int64_t>self._decoding.size - self._gone.size - self._merging.size
        while places > 0 and self._loaded.size > 0:
            slot = self._first_loaded()
            drop_row(&self._loaded, slot)
            add_row(&self._merging, slot)
            self._publish(slot, self._sequences[slot].num_computed)
            if not self._sequences[slot].is_decoding:
                add_row(&self.seeded, slot)
            places -= 1
        return 0

    cdef int _list_loaded(self) except -1 nogil:
        cdef int32_t slot = self._held.head
        while slot >= 0:
            if self._sequences[slot].hold == LOADED and not self._progress[slot].has_come:
                self._progress[slot].has_come = True
                add_row(&self._loaded, slot)
            slot = self._links.next(slot)
        return 0

    cdef int32_t _first_loaded(self) noexcept nogil:
        """Return the first slot in `_loaded`, or with priorities the first of the best priority."""
        cdef int32_t best = self._loaded.rows[0], i
        for i in range(1, self._loaded.size if self._by_priority else 0):
            if self._preference(self._row(self._loaded.rows[i])) > self._preference(self._row(best)):
                best = self._loaded.rows[i]
        return best

    # ---- pages

    cdef bint _has_retracted(self) noexcept nogil:
        """Return whether the head of the queue is a retracted request."""
        cdef int32_t row
        if self.waiting.size == 0:
            return False
        row = self.waiting.top()
        return self._requests[row].output_tokens > 0 and not has_row(&self.failed, row)

    cdef bint _has_place(self) noexcept nogil:
        """Return whether the request pool has room for another request, running or not."""
        cdef int64_t rows = self.max_running
        if self.max_running <= FEW_PLACES:
            rows *= 3
        return self._running.size + self._held.size + self._parked.size < rows

    cdef int64_t _retractable(self) noexcept nogil:
        """Return the tokens of requests that were running when the last pass ended."""
        cdef int64_t tokens = 0
        cdef int32_t i
        for i in range(self._decoding.size):
            tokens += self._sequences[self._decoding.rows[i]].prompt_tokens + self._written(self._decoding.rows[i])
        for i in range(self._gone.size):
            tokens += <int64_t>self._requests[self._gone.rows[i]].prompt_tokens + self._outputs(self._gone.rows[i])
        return tokens

    cdef int64_t _longest(self, int32_t row) noexcept nogil:
        return self._requests[row].prompt_tokens + min(self._queue.most(row), <int64_t>MOST_RESERVED)

    cdef int64_t _allocatable(self, int64_t retractable) noexcept nogil:
        """Return the tokens that may be given away, beside tokens reserved for requests that have pages.

        retractable : tokens in KV of running requests, with which each alone must reach its end; -1: not checked.
        """
        cdef int64_t most = self.tier.reserved_tokens * (
            <int64_t>self._decoding.size + self._gone.size + self._held.size)
        cdef int32_t i
        for i in range(self._decoding.size if retractable >= 0 else 0):
            most = max(most, self._longest(self._row(self._decoding.rows[i])) - retractable)
        for i in range(self._gone.size if retractable >= 0 else 0):
            most = max(most, self._longest(self._gone.rows[i]) - retractable)
        return self._pages.available() - most

    cdef int _resume(self) except -1 nogil:
        """Resume retracted requests, with their KV from host memory."""
        cdef int64_t left, fill
        cdef int32_t row, slot
        cdef Sequence* sequence
        if self._is_disordered or self._by_priority:
            self._queue.sort_for_decoding()
            self._is_disordered = False
        if not self._has_retracted():
            return 0
        left = self._allocatable(-1)
        while self._has_retracted() and self._has_place():
            row, slot = self.waiting.top(), self.top_slot()
            fill = <int64_t>self._requests[row].prompt_tokens + self._outputs(row) - 1
            if fill + self.tier.reserved_tokens > left or self._paged(fill) > self._pages.available():
                break
            left -= fill + self.tier.reserved_tokens
            if self._room < self.num_slots:
                self._grow_own()
            self._pages.make_room(self._paged(fill))
            self._pages.take(slot, fill)
            self.waiting.pop()
            sequence = &self._sequences[self._occupy(row)]
            sequence.num_computed, sequence.hold, sequence.is_decoding = <int32_t>fill, LOADED, True
            self._queue_held(slot)
            self.loading += 1
            self.loading_tokens += sequence.num_tokens
            self._progress[slot].published, self._progress[slot].pending = 0, 0
            self._progress[slot].has_come = True
            add_row(&self._loaded, slot)
        return 0

    cdef int _preallocate(self, int64_t now_ns) except -1 nogil:
        """Reserve pages for requests, in order, before other replicas compute their prompts."""
        cdef int32_t row
        while self.waiting.size > 0 and self._has_place() and (
                self._held.size - self._loaded.size - self._merging.size < BUFFERS * self.max_running):
            row = self.waiting.top()
            if has_row(&self.failed, row) or not self._reserve_for(row, now_ns):
                break
        return 0

    cdef bint _reserve_for(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int32_t slot = self.top_slot(), node = 0
        cdef int64_t prompt = self._requests[row].prompt_tokens, retractable = self._retractable(), found, need, pages
        cdef External external
        found = self._pages.find(row, prompt, &node)
        self._pages.keep(slot, node, found)
        pages = self._paged(prompt) - found
        need = max((pages if self.kv.caches else prompt) + self.tier.reserved_tokens,
                   self._longest(row) - found - retractable)
        if need > self._allocatable(retractable) or pages > self._pages.available():
            self._pages.release(slot, False)
            return False
        if self._room < self.num_slots:
            self._grow_own()
        self._pages.make_room(pages)
        self._pages.take(slot, prompt)
        self._progress[slot].published, self._progress[slot].pending = found, 0
        self._progress[slot].has_come = False
        external.tokens, external.comes_later, external.has_first_token = 0, False, False
        self.tier.match(row, found, &external)
        self.waiting.pop()
        self.hold(row, <int32_t>(found // self.kv.block_size), external, now_ns)
        return True

    # ---- a pass

    cdef int _schedule_decodes(self, Batch* batch) except -1 nogil:
        cdef int32_t i
        if not self._has_resumed:
            self._resume()
        self._has_resumed = False
        if not self._has_retracted():
            self._preallocate(batch.start_ns)
        for i in range(self._merging.size):
            self.run_held(self._merging.rows[i], batch)
            self._list(self._merging.rows[i])
        self._merging.size = 0
        if self._decoding.size > 0:
            self._decode(batch)
        self._gone.size = 0
        self._is_disordered = self._is_disordered or batch.num_preempted > 0
        self.opens_ns = NEVER_NS
        if (batch.num_entries + batch.num_members + batch.num_preempted + self.num_in_flight + self.num_standing == 0
                and self._loaded.size > 0 and self._decoding.size < self.max_running):
            self.opens_ns = batch.start_ns              # places are free now: requests join in the next pass
        return 0
