"""The blocks of shared text of a cache, as runs."""
from libc.stdlib cimport free
from libc.string cimport memcpy, memset
cimport cython

from simulator.core.memory cimport resize
from simulator.kv.content cimport Content
from simulator.kv.prefix_cache cimport Block
from simulator.kv.stretches cimport OWN, SHARED, Stretch
from simulator.kv.text_pieces cimport name_of


@cython.final
cdef class Runs:
    """The runs of one cache.

    queue : Stretches, in which nothing was cached yet.
    content, block_size, ahead : see TextPieces.
    """

    def __init__(self, Stretches queue, Content content, int32_t block_size, int32_t ahead):
        self._queue, queue.has_runs = queue, True
        self._block_size, self._ahead = block_size, ahead
        self.read(content)

    def read(self, Content content):
        """Use this Content from now on; it has the same texts."""
        self._texts = TextPieces(content, self._block_size, self._ahead)

    def __dealloc__(self):
        cdef int32_t element
        for element in range(self._num_outlines):
            free(self._outlines[element].starts)
        free(self._outlines)
        free(self._hits)
        free(self._parts)

    # ---- lookup

    cdef int32_t find(self, int32_t row, int32_t most) except -1 nogil:
        cdef int32_t found = 0, first, stop, reach
        self._num_hits = self.free_hits = 0
        self._texts.begin(row, &self._place)
        while found < most:
            self._texts.move_to(row, found, &self._place)
            first = self._queue.prefixes.find(
                name_of(self._place.stem, self._texts.tokens_to(&self._place, found)))
            if first == 0:
                break
            reach = <int32_t>self._queue.stretches[first].stamp
            stop = self._common(row, first, found, min(most, reach), &self._place)
            found = self._find_in_ring(first, found, stop)
            if found < stop:                # these blocks were reused; the place is behind them
                self._texts.begin(row, &self._place)
            if found < reach:
                break
        return found

    cdef int32_t _common(self, int32_t row, int32_t element, int32_t begin, int32_t most, Place* place) noexcept nogil:
        cdef const Outline* outline = &self._outlines[element]
        cdef const Start* following
        cdef int32_t i = 1, end
        while True:
            following = &outline.starts[i]
            end = min(most, place.end)
            if i < outline.count and following.block < end:
                return following.block
            if end == most or i == outline.count or following.block > end:
                return end
            self._texts.move_to(row, end, place)
            if place.stem != following.stem or self._texts.tokens_to(place, end) != following.tokens:
                return end
            i += 1

    cdef int32_t _find_in_ring(self, int32_t first, int32_t begin, int32_t most) except -1 nogil:
        """Go on from block `begin`, the first of the ring, to block `most` at the latest; return the end."""
        cdef int32_t element = first, end
        while True:
            if self._queue.stretches[element].end > begin:
                end = min(self._queue.stretches[element].end, most)
                self._note_hit(element, end)
                self.free_hits += end - begin if self._queue.blocks[element].references == 0 else 0
                begin = end
            element = self._queue.blocks[element].twin_next
            if begin == most or element == first:
                return begin

    cdef int _note_hit(self, int32_t element, int32_t end) except -1 nogil:
        cdef int32_t room = 2 * self._num_hits + 8
        if self._num_hits == self._room_hits:
            resize(&self._hits, room * sizeof(Hit))
            self._room_hits = room
        self._hits[self._num_hits] = Hit(element, end)
        self._num_hits += 1
        return 0

    # ---- outlines

    cdef uint64_t _name(self, const Start* start, int32_t block) noexcept nogil:
        return name_of(start.stem, start.tokens + <int64_t>(block - start.block) * self._block_size)

    cdef int _have_outline(self, int32_t element, int32_t count) except -1 nogil:
        """Make room for so many pieces of a run."""
        cdef int32_t before = self._num_outlines
        if element >= before:
            resize(&self._outlines, (2 * <size_t>element + 8) * sizeof(Outline))
            self._num_outlines = 2 * element + 8
            memset(self._outlines + before, 0, (self._num_outlines - before) * sizeof(Outline))
        if count > self._outlines[element].room:
            resize(&self._outlines[element].starts, 2 * <size_t>count * sizeof(Start))
            self._outlines[element].room = 2 * count
        return 0

    cdef int _split_ring(self, int32_t element, int32_t at) except -1 nogil:
        cdef int32_t other = element, following, count = 1
        while self._queue.blocks[other].twin_next != element:
            other = self._queue.blocks[other].twin_next
            count += 1
        self._queue.prepare(count)
        element = other = self._queue.prefixes.find(self._queue.blocks[element].hash)
        while True:
            following = self._queue.blocks[other].twin_next
            self._split(other, at)
            other = following
            if other == element:
                return 0

    cdef int _split(self, int32_t element, int32_t at) except -1 nogil:
        """Let a run reach up to block `at`, and a new one begin there if it has such blocks."""
        cdef Outline* outline = &self._outlines[element]
        cdef int32_t kept = outline.count, behind
        cdef Start* last
        while outline.starts[kept - 1].block > at:
            kept -= 1
        last = &outline.starts[kept - 1]
        if self._queue.stretches[element].end > at:
            behind = self._queue.split(element, at)
            self._have_outline(behind, outline.count - kept + 1)
            outline = &self._outlines[element]
            last = &outline.starts[kept - 1]
            self._outlines[behind].count = outline.count - kept + 1
            memcpy(self._outlines[behind].starts, last, self._outlines[behind].count * sizeof(Start))
            self._outlines[behind].starts[0].tokens += (at - last.block) * self._block_size
            self._outlines[behind].starts[0].block = at
            self._queue.prefixes.insert(behind, self._name(last, at))
        self._queue.stretches[element].stamp = at
        outline.count = kept if last.block < at else kept - 1
        return 0

    # ---- a sequence

    cdef int take(self, Chain* chain) except -1 nogil:
        cdef int32_t begin = 0, element, i
        cdef Block* block
        if self._num_hits > chain.room:
            resize(&chain.runs, 2 * <size_t>self._num_hits * sizeof(int32_t))
            chain.room = 2 * self._num_hits
        chain.count, chain.place = self._num_hits, self._place
        for i in range(self._num_hits):
            element = self._hits[i].element
            while self._queue.stretches[element].end <= begin:      # the ring was split for the hit before
                element = self._queue.stretches[element].sibling
            if self._hits[i].end < self._queue.stretches[element].stamp:
                self._split_ring(element, self._hits[i].end)
            block = &self._queue.blocks[element]
            if block.references == 0:
                self._queue.take_run(element)
            block.references += 1
            self._queue.stretches[element].row = SHARED
            chain.runs[i] = element
            begin = self._hits[i].end
        return 0

    cdef int insert(self, int32_t row, int32_t begin, int32_t end, Chain* chain) except -1 nogil:
        if begin == 0:
            self._texts.begin(row, &chain.place)
        while begin < end and not self._may_grow(chain, begin):
            begin = self._join(row, begin, end, chain)
        return self._grow(row, begin, end, chain) if begin < end else 0

    cdef bint _may_grow(self, const Chain* chain, int32_t begin) noexcept nogil:
        """Return whether the block before `begin` is the only copy, and was never held by another sequence."""
        cdef int32_t last
        if chain.count == 0:
            return False
        last = chain.runs[chain.count - 1]
        return (self._queue.stretches[last].row == OWN and self._queue.stretches[last].end == begin
                and self._queue.blocks[last].twin_next == last)

    cdef int32_t _join(self, int32_t row, int32_t begin, int32_t end, Chain* chain) except -1 nogil:
        """Cache a run that joins the ring of its first block, or begins one; return its end."""
        cdef int32_t first, reach
        cdef Start start
        self._texts.move_to(row, begin, &chain.place)
        start = Start(chain.place.stem, begin, self._texts.tokens_to(&chain.place, begin))
        first = self._queue.prefixes.find(name_of(start.stem, start.tokens))
        if first == 0:
            end = min(end, chain.place.end)
            self._add(chain, &start, 1, begin, end)
            return end
        reach = <int32_t>self._queue.stretches[first].stamp
        end = self._common(row, first, begin, min(end, reach), &chain.place)
        if end < reach:
            self._split_ring(first, end)
        self._add(chain, self._outlines[first].starts, self._outlines[first].count, begin, end)
        return end

    cdef int _grow(self, int32_t row, int32_t begin, int32_t end, Chain* chain) except -1 nogil:
        """Let the last run of a sequence go on with text that no other sequence has."""
        cdef int32_t element = chain.runs[chain.count - 1]
        cdef Outline* outline
        while begin < end:
            self._texts.move_to(row, begin, &chain.place)
            outline = &self._outlines[element]
            if outline.starts[outline.count - 1].stem != chain.place.stem:
                self._have_outline(element, outline.count + 1)
                outline.starts[outline.count] = Start(
                    chain.place.stem, begin, self._texts.tokens_to(&chain.place, begin))
                outline.count += 1
            begin = min(end, chain.place.end)
        self._queue.stretches[element].end = end
        self._queue.stretches[element].stamp = end
        return 0

    cdef int _add(self, Chain* chain, const Start* starts, int32_t count, int32_t begin, int32_t end) except -1 nogil:
        cdef int32_t room = 2 * chain.count + 8, element
        if chain.count == chain.room:
            resize(&chain.runs, room * sizeof(int32_t))
            chain.room = room
        self._queue.prepare(1)
        element = self._queue.hold()
        self._have_outline(element, count)
        memcpy(self._outlines[element].starts, starts, count * sizeof(Start))
        self._outlines[element].count = count
        self._queue.stretches[element] = Stretch(end, OWN, begin, end, 0)
        self._queue.prefixes.insert(element, self._name(starts, begin))
        chain.runs[chain.count] = element
        chain.count += 1
        return 0

    cdef int32_t release(self, Chain* chain, int32_t end) except -1 nogil:
        cdef int32_t num_free = 0, count, i, k
        cdef Block* block
        for i in range(chain.count - 1, -1, -1):
            count = self._gather_parts(chain.runs[i], end)
            end = self._queue.stretches[chain.runs[i]].begin
            for k in range(count - 1, -1, -1):
                block = &self._queue.blocks[self._parts[k]]
                block.references -= 1
                if block.references == 0:
                    self._queue.append_run(self._parts[k])
                    num_free += self._queue.stretches[self._parts[k]].end - self._queue.stretches[self._parts[k]].begin
        chain.count = 0
        return num_free

    cdef int32_t _gather_parts(self, int32_t element, int32_t end) except -1 nogil:
        """Fill in the parts of a run up to block `end`, in the order of the text; return their number."""
        cdef int32_t count = 0
        while True:
            if count == self._room_parts:
                resize(&self._parts, (2 * <size_t>count + 8) * sizeof(int32_t))
                self._room_parts = 2 * count + 8
            self._parts[count] = element
            count += 1
            if self._queue.stretches[element].end >= end:
                return count
            element = self._queue.stretches[element].sibling
