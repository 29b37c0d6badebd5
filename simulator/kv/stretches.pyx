"""Free blocks that hold something, in the order in which they will be reused."""
from libc.stdlib cimport calloc, free
from libc.string cimport memset
cimport cython

from simulator.core.memory cimport resize
from simulator.kv.prefix_cache cimport PRIVATE
from simulator.kv.returning cimport key_of

cdef enum:
    FIRST_RECORDS = 8           # doubled with need


@cython.final
cdef class Stretches:
    """The free blocks of one replica that hold something.

    Blocks that hold nothing are reused before all of its blocks; only their number matters.
    """

    def __cinit__(self):
        self.prefixes = PrefixCache()
        self._first_of = HashMap()
        self._num_records = 1
        self.blocks = <Block*>calloc(1, sizeof(Block))
        self.stretches = <Stretch*>calloc(1, sizeof(Stretch))
        if self.blocks == NULL or self.stretches == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.blocks)
        free(self.stretches)
        free(self.pieces)

    # ---- elements

    cdef int _grow(self, int32_t count) except -1 nogil:
        cdef int32_t before = self._num_records, element
        cdef int32_t after = max(max(2 * before, before + count), <int32_t>FIRST_RECORDS)
        resize(&self.stretches, after * sizeof(Stretch))
        resize(&self.blocks, after * sizeof(Block))
        memset(self.blocks + before, 0, (after - before) * sizeof(Block))
        self.prefixes.relocate(self.blocks, after)
        for element in range(after - 1, before - 1, -1):
            self.blocks[element].next = self._free
            self._free = element
        self._num_free += after - before
        self._num_records = after
        return 0

    cdef int32_t _new(self) noexcept nogil:
        cdef int32_t element = self._free
        self._free = self.blocks[element].next
        self._num_free -= 1
        return element

    cdef void _append(self, int32_t element) noexcept nogil:
        self._insert_before(element, 0)

    cdef void _insert_before(self, int32_t element, int32_t following) noexcept nogil:
        cdef Block* blocks = self.blocks
        cdef int32_t before = blocks[following].prev
        blocks[element].prev, blocks[element].next = before, following
        blocks[before].next = blocks[following].prev = element

    cdef void _unlink(self, int32_t element) noexcept nogil:
        cdef Block* it = &self.blocks[element]
        self.blocks[it.prev].next = it.next
        self.blocks[it.next].prev = it.prev

    cdef void _give_up(self, int32_t element) noexcept nogil:
        self.blocks[element].next = self._free
        self._free = element
        self._num_free += 1

    # ---- shared text

    cdef int32_t hold(self) noexcept nogil:
        cdef int32_t element = self._new()
        self.blocks[element].references = 1
        return element

    cdef void append_block(self, int32_t element) noexcept nogil:
        self._append(element)
        self.size += 1

    cdef void take_block(self, int32_t element) noexcept nogil:
        self._unlink(element)
        self.size -= 1

    cdef void append_run(self, int32_t element) noexcept nogil:
        self._append(element)
        self.size += self.stretches[element].end - self.stretches[element].begin

    cdef void take_run(self, int32_t element) noexcept nogil:
        self._unlink(element)
        self.size -= self.stretches[element].end - self.stretches[element].begin

    cdef int32_t split(self, int32_t element, int32_t at) noexcept nogil:
        cdef int32_t behind = self._new()
        self.blocks[behind].references = self.blocks[element].references
        self.stretches[behind] = self.stretches[element]
        self.stretches[behind].begin = self.stretches[element].end = at
        self.stretches[element].sibling = behind
        if self.blocks[element].references == 0:
            self._insert_before(behind, element)
        return behind

    # ---- private text

    cdef int append_nobodys(self, int32_t count) except -1 nogil:
        cdef int32_t last = self.blocks[0].prev
        if last == 0 or self.blocks[last].hash != 0 or self.stretches[last].row != NOBODY:
            self.prepare(1)
            last = self._new()
            self.blocks[last].chain = PRIVATE
            self.stretches[last].row = NOBODY
            self.stretches[last].begin = self.stretches[last].end = 0
            self._append(last)
        self.stretches[last].end += count
        self.size += count
        return 0

    cdef int append_read(self, int64_t reader, int32_t begin, int32_t end) except -1 nogil:
        cdef int32_t element
        self.prepare(1)
        element = self._new()
        self.blocks[element].chain = PRIVATE
        self.stretches[element].row, self.stretches[element].stamp = READ, reader
        self.stretches[element].begin, self.stretches[element].end = begin, end
        self._append(element)
        self.size += end - begin
        return 0

    cdef int32_t append_passed(self, int64_t name, int32_t count, int32_t before) except -1 nogil:
        cdef int32_t element
        self.prepare(1)
        element = self._new()
        self.blocks[element].chain = PRIVATE
        self.stretches[element] = Stretch(name, PASSED, 0, count, before)
        self._append(element)
        self.size += count
        return element

    cdef int32_t num_passed(self, int32_t element, int64_t name) noexcept nogil:
        cdef const Stretch* it = &self.stretches[element]
        if element == 0 or self.blocks[element].hash != 0 or it.row != PASSED or it.stamp != name:
            return 0
        return it.end

    cdef int list_passed(self, int32_t element, uint64_t hash) except -1 nogil:
        cdef int32_t block
        self.prepare(1)
        block = self._new()
        self.blocks[block].references = 0
        self.prefixes.insert(block, hash)
        self._insert_before(block, element)
        self.stretches[element].end -= 1
        if self.stretches[element].end == 0:
            self._unlink(element)
            self._give_up(element)
        return 0

    cdef int append_private(self, int32_t row, int32_t begin, int32_t end) except -1 nogil:
        cdef int32_t element
        self.prepare(1)
        self._first_of.reserve(self._first_of.size + 1)
        element = self._new()
        self._stamp += 1
        self.blocks[element].chain = PRIVATE
        self.stretches[element].stamp = self._stamp
        self.stretches[element].row = row
        self.stretches[element].begin, self.stretches[element].end = begin, end
        return self.append_piece(element)

    cdef int append_piece(self, int32_t element) except -1 nogil:
        cdef Stretch* it = &self.stretches[element]
        it.sibling = max(self._first_of.get(key_of(it.row)), 0)
        self._first_of.put(key_of(it.row), element)
        self._append(element)
        self.size += it.end - it.begin
        return 0

    cdef int32_t find(self, int32_t row, int32_t found, int32_t most) except -1 nogil:
        cdef int32_t first = max(self._first_of.get(key_of(row)), 0), element, best, end
        cdef const Stretch* it
        self.num_pieces = 0
        while found < most:
            best, element = 0, first
            while element != 0:
                it = &self.stretches[element]
                if it.begin <= found < it.end and (best == 0 or it.stamp < self.stretches[best].stamp):
                    best = element
                element = it.sibling
            if best == 0:
                break
            end, element = min(self.stretches[best].end, most), first
            while element != 0:                     # where an older copy begins, that copy is found
                it = &self.stretches[element]
                if found < it.begin < end and it.stamp < self.stretches[best].stamp:
                    end = it.begin
                element = it.sibling
            self._note_piece(best, found, end)
            found = end
        return found

    cdef int _note_piece(self, int32_t element, int32_t begin, int32_t end) except -1 nogil:
        cdef int32_t room = 2 * self.num_pieces + 2
        if self.num_pieces == self._room_pieces:
            resize(&self.pieces, room * sizeof(Piece))
            self._room_pieces = room
        self.pieces[self.num_pieces].element = element
        self.pieces[self.num_pieces].begin, self.pieces[self.num_pieces].end = begin, end
        self.num_pieces += 1
        return 0

    cdef int32_t take(self) noexcept nogil:
        cdef int32_t taken = 0, element, i
        cdef const Piece* piece
        for i in range(self.num_pieces):
            piece = &self.pieces[i]
            element = self._cut_out(piece)
            self.stretches[element].sibling = taken
            self.size -= piece.end - piece.begin
            taken = element
        return taken

    cdef int32_t _cut_out(self, const Piece* piece) noexcept nogil:
        """Return an element, not in the queue, of a piece alone; the next piece may be in the blocks behind it."""
        cdef int32_t element = piece.element
        cdef Stretch* it = &self.stretches[element]
        if it.begin < piece.begin:                  # blocks before it in the text are behind it in the queue
            self._insert_before(self._copy(element, it.begin, piece.begin), self.blocks[element].next)
        if piece.end < it.end:
            it.begin = piece.end
            element = self._copy(element, piece.begin, piece.end)
            self._leave_siblings(element)
            return element
        it.begin = piece.begin
        self._leave_siblings(element)
        self._unlink(element)
        return element

    cdef int32_t _copy(self, int32_t element, int32_t begin, int32_t end) noexcept nogil:
        """Return a new element of other blocks of the same copy, behind it among its siblings."""
        cdef int32_t other = self._new()
        self.blocks[other].chain = PRIVATE
        self.stretches[other] = self.stretches[element]
        self.stretches[other].begin, self.stretches[other].end = begin, end
        self.stretches[element].sibling = other
        return other

    cdef void _leave_siblings(self, int32_t element) noexcept nogil:
        cdef Stretch* it = &self.stretches[element]
        cdef int32_t other = self._first_of.get(key_of(it.row))
        if other == element and it.sibling == 0:
            self._first_of.remove(key_of(it.row))
        elif other == element:
            self._first_of.replace(key_of(it.row), it.sibling)
        else:
            while self.stretches[other].sibling != element:
                other = self.stretches[other].sibling
            self.stretches[other].sibling = it.sibling

    cdef void drop_piece(self, int32_t element) noexcept nogil:
        self._give_up(element)

    cdef void forget_row(self, int32_t row) noexcept nogil:
        cdef int32_t element
        if self._first_of.size == 0:
            return
        element = max(self._first_of.remove(key_of(row)), 0)
        while element != 0:
            self.stretches[element].row = NOBODY
            element = self.stretches[element].sibling

    # ---- reuse

    cdef void evict(self, int32_t count) noexcept nogil:
        cdef int32_t element, taken
        cdef Stretch* it
        self.size -= count
        while count > 0:
            element = self.blocks[0].next
            if self.blocks[element].hash != 0 and not self.has_runs:
                if self.fences is not None:
                    self.fences.touch_last(element)
                self.prefixes.remove(element)
                self._unlink(element)
                self._give_up(element)
                count -= 1
                continue
            it = &self.stretches[element]
            taken = min(count, it.end - it.begin)
            it.end -= taken
            count -= taken
            if it.row == READ:
                self.fences.touch_many(it.stamp, it.end, it.end + taken)
            if it.begin == it.end:
                if self.blocks[element].hash != 0:
                    self.prefixes.remove(element)
                elif it.row >= 0:
                    self._leave_siblings(element)
                self._unlink(element)
                self._give_up(element)

    # ---- the debug face

    def num_held(self):
        """Return the number of blocks of shared text that sequences hold, and the sum of their references."""
        cdef int32_t element
        held = [(self._num_blocks(element), self.blocks[element].references) for element in range(1, self._num_records)
                if self.blocks[element].hash != 0 and self.blocks[element].references > 0]
        return sum(count for count, _ in held), sum(count * references for count, references in held)

    cdef int32_t _num_blocks(self, int32_t element) noexcept nogil:
        if self.blocks[element].hash != 0 and not self.has_runs:
            return 1
        return self.stretches[element].end - self.stretches[element].begin

    def check(self):
        """Raise RuntimeError unless queue, prefix cache and the stretches of each request agree."""
        cdef int32_t element = self.blocks[0].next, other, total = 0
        cdef const Stretch* it
        cdef const Block* block
        rows = set()
        while element != 0:
            it, block = &self.stretches[element], &self.blocks[element]
            if self.blocks[block.next].prev != element:
                raise RuntimeError(f"element {element} is not linked both ways")
            if block.hash != 0 and (block.references != 0 or not (
                    self.prefixes.drops_hashes or self.prefixes.find(block.hash))):
                raise RuntimeError(f"free block {element} is held {block.references} times, or cannot be found")
            if self._num_blocks(element) <= 0:
                raise RuntimeError(f"stretch {element} is empty")
            if block.hash == 0 and it.row >= 0:
                rows.add(it.row)
                other = self._first_of.get(key_of(it.row))
                while other > 0 and other != element:
                    other = self.stretches[other].sibling
                if other <= 0:
                    raise RuntimeError(f"stretch {element} is not among those of request {it.row}")
            total += self._num_blocks(element)
            element = block.next
        if total != self.size or len(rows) != self._first_of.size:
            raise RuntimeError(f"{total} blocks of {len(rows)} requests in the queue, {self.size} of "
                               f"{self._first_of.size} counted")
