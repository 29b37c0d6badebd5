"""The chunks that one level of a tier holds, in lists in eviction order."""
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset
cimport cython

from simulator.core.memory cimport resize
from simulator.kv.returning cimport key_of

cdef enum:
    FIRST_RECORDS = 32          # doubled with need


@cython.final
cdef class ChunkTable(ChunkStore):
    """Chunks by hash and by row, in lists.

    capacity : chunks that fit.
    numbers_slots : each has a slot, as vLLM numbers them: 0, 1, 2, ... at first, then the one that was freed last. For
        callers that show slots; there must be no runs then.
    """

    def __cinit__(self, int64_t capacity, bint numbers_slots=False):
        cdef int32_t i
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1 chunk, found {capacity}")
        self.capacity, self._numbers_slots = capacity, numbers_slots
        self._by_hash, self._runs_of = HashMap(), HashMap()
        self.num_records = NUM_LISTS
        self.chunks = <Chunk*>calloc(NUM_LISTS, sizeof(Chunk))
        if self.chunks == NULL:
            raise MemoryError()
        for i in range(NUM_LISTS):
            self.chunks[i].prev = self.chunks[i].next = i
        if numbers_slots:
            self._left_slots = <int32_t*>malloc(capacity * sizeof(int32_t))
            if self._left_slots == NULL:
                raise MemoryError()

    def __dealloc__(self):
        free(self.chunks)
        free(self._left_slots)

    # ---- elements

    cdef int _grow(self, int32_t count) except -1 nogil:
        cdef int32_t before = self.num_records, element
        cdef int32_t after = max(max(2 * before, before + count), <int32_t>FIRST_RECORDS)
        resize(&self.chunks, after * sizeof(Chunk))
        for element in range(after - 1, before - 1, -1):
            self.chunks[element].next = self._free
            self._free = element
        self._num_free += after - before
        self.num_records = after
        return 0

    cdef int32_t _new(self) noexcept nogil:
        cdef int32_t element = self._free
        self._free = self.chunks[element].next
        self._num_free -= 1
        memset(&self.chunks[element], 0, sizeof(Chunk))
        self.chunks[element].slot = -1
        return element

    cdef void _give_up(self, int32_t element) noexcept nogil:
        self.chunks[element].next = self._free
        self.chunks[element].hash = 0
        self._free = element
        self._num_free += 1

    cdef void _insert_before(self, int32_t element, int32_t following) noexcept nogil:
        cdef Chunk* chunks = self.chunks
        cdef int32_t before = chunks[following].prev
        chunks[element].prev, chunks[element].next = before, following
        chunks[before].next = chunks[following].prev = element

    cdef void _unlink(self, int32_t element) noexcept nogil:
        cdef Chunk* it = &self.chunks[element]
        self.chunks[it.prev].next = it.next
        self.chunks[it.next].prev = it.prev

    # ---- lookups and additions

    cdef bint has(self, uint64_t hash) noexcept nogil:
        cdef int32_t element = self.find(hash)
        return self.holds(element) and self.chunks[element].references != WRITING

    cdef int32_t first_run(self, int32_t row) noexcept nogil:
        return max(self._runs_of.get(key_of(row)), 0) if self._runs_of.size > 0 else 0

    cdef int32_t run_at(self, int32_t row, int32_t place) noexcept nogil:
        cdef int32_t element = self.first_run(row)
        while element != 0 and not self.chunks[element].begin <= place < self.chunks[element].end:
            element = self.chunks[element].sibling
        return element

    cdef int32_t add(self, uint64_t hash, int32_t place, int32_t listed) except 0 nogil:
        cdef int32_t element = self.find(hash)
        if element == 0:
            self._by_hash.put(hash, self._free)
            element = self._new()
            self.chunks[element].hash = hash
        else:
            self._unlink(element)
            self.sizes[self.chunks[element].listed] -= 1
        self.chunks[element].begin, self.chunks[element].end = place, place + 1
        self.chunks[element].references, self.chunks[element].listed = WRITING, listed
        self._insert_before(element, listed)
        self.sizes[listed] += 1
        self.num_writing += 1
        self.num_busy += 1
        if self._numbers_slots:
            self._take_slot(element)
        return element

    cdef int32_t add_run(self, int32_t row, int32_t begin, int32_t end, int32_t listed) except 0 nogil:
        cdef int32_t element, sibling = self.first_run(row)
        self._runs_of.put(key_of(row), self._free)
        element = self._new()
        self.chunks[element].row, self.chunks[element].begin, self.chunks[element].end = row, begin, end
        self.chunks[element].references, self.chunks[element].listed = WRITING, listed
        self.chunks[element].sibling = sibling
        self._insert_before(element, listed)
        self.sizes[listed] += end - begin
        self.num_writing += end - begin
        return element

    cdef int32_t cut(self, int32_t element, int32_t place) noexcept nogil:
        cdef int32_t other = self._new()
        cdef Chunk* it = &self.chunks[element]
        self.chunks[other] = it[0]
        self.chunks[other].begin = it.end = place
        if it.row != NOBODY:
            it.sibling = other
        self._insert_before(other, element if it.is_reversed else it.next)
        return other

    cdef void pin(self, int32_t element) noexcept nogil:
        if self.chunks[element].references == 0:
            self.num_idle -= self.length(element)
        self.chunks[element].references += 1

    cdef void unpin(self, int32_t element) noexcept nogil:
        self.chunks[element].references -= 1
        if self.chunks[element].references == 0:
            self.num_idle += self.length(element)

    cdef void move_back(self, int32_t element, int32_t listed) noexcept nogil:
        cdef Chunk* it = &self.chunks[element]
        self._unlink(element)
        self._insert_before(element, listed)
        self.sizes[it.listed] -= self.length(element)
        self.sizes[listed] += self.length(element)
        it.listed, it.is_reversed = listed, it.hash == 0

    cdef void move_all_back(self, int32_t first, int32_t last, int32_t listed) noexcept nogil:
        cdef Chunk* chunks = self.chunks
        chunks[chunks[first].prev].next = chunks[last].next
        chunks[chunks[last].next].prev = chunks[first].prev
        chunks[first].prev, chunks[last].next = chunks[listed].prev, listed
        chunks[chunks[listed].prev].next = first
        chunks[listed].prev = last

    cdef void move_before(self, int32_t element, int32_t following) noexcept nogil:
        self._unlink(element)
        self._insert_before(element, following)
        self.chunks[element].is_reversed = self.chunks[element].hash == 0

    cdef int32_t add_mark(self, int32_t listed) noexcept nogil:
        cdef int32_t mark = self._new()
        self.chunks[mark].row, self.chunks[mark].references, self.chunks[mark].listed = NOBODY, 1, listed
        self._insert_before(mark, listed)
        return mark

    cdef void drop_mark(self, int32_t mark) noexcept nogil:
        self._unlink(mark)
        self._give_up(mark)

    # ---- removals

    cdef void drop(self, int32_t element, int32_t count) noexcept nogil:
        cdef Chunk* it = &self.chunks[element]
        self.sizes[it.listed] -= count
        if it.listed < REMEMBERED:
            self.num_idle -= count
            if self._numbers_slots:
                self._free_slot(element)
            if self.log is not None:
                self._tell(element, False)
        if count < self.length(element):
            if it.is_reversed:
                it.end -= count
            else:
                it.begin += count
            return
        if it.hash != 0:
            self._by_hash.remove(it.hash)
        elif it.row != NOBODY:
            self._leave_siblings(element)
        self._unlink(element)
        self._give_up(element)

    cdef void remember(self, int32_t element, int32_t listed) noexcept nogil:
        self.num_idle -= 1
        if self._numbers_slots:
            self._free_slot(element)
        if self.log is not None:
            self._tell(element, False)
        self.move_back(element, listed)

    cdef void _tell(self, int32_t element, bint is_there) noexcept nogil:
        """Log a chunk for the follower; a run is left out, because only its own request can find it."""
        if self.chunks[element].hash != 0:
            self.log.note(self.chunks[element].hash, is_there)

    cdef void discard(self, int32_t element) noexcept nogil:
        self.written(element)
        self.drop(element, self.length(element))

    cdef void forget_row(self, int32_t row) noexcept nogil:
        cdef int32_t element
        if self._runs_of.size == 0:
            return
        element = max(self._runs_of.remove(key_of(row)), 0)
        while element != 0:
            self.chunks[element].row = NOBODY
            element = self.chunks[element].sibling

    cdef void _leave_siblings(self, int32_t element) noexcept nogil:
        cdef Chunk* it = &self.chunks[element]
        cdef int32_t other = self.first_run(it.row)
        if other == element and it.sibling == 0:
            self._runs_of.remove(key_of(it.row))
        elif other == element:
            self._runs_of.replace(key_of(it.row), it.sibling)
        else:
            while self.chunks[other].sibling != element:
                other = self.chunks[other].sibling
            self.chunks[other].sibling = it.sibling

    # ---- slots

    cdef void _take_slot(self, int32_t element) noexcept nogil:
        if self._num_fresh < self.capacity:
            self.chunks[element].slot = self._num_fresh
            self._num_fresh += 1
        else:
            self._num_left -= 1
            self.chunks[element].slot = self._left_slots[self._num_left]

    cdef void _free_slot(self, int32_t element) noexcept nogil:
        self._left_slots[self._num_left] = self.chunks[element].slot
        self._num_left += 1
        self.chunks[element].slot = -1

    # ---- the debug face

    def clear(self):
        """Forget all chunks, as a restart does."""
        cdef int32_t i
        for hash in self.hashes() if self.log is not None else ():
            self.log.note(hash, False)
        free(self.chunks)
        self.chunks = <Chunk*>calloc(NUM_LISTS, sizeof(Chunk))
        if self.chunks == NULL:
            raise MemoryError()
        for i in range(NUM_LISTS):
            self.chunks[i].prev = self.chunks[i].next = i
            self.sizes[i] = 0
        self.num_records, self._free, self._num_free = NUM_LISTS, 0, 0
        self.num_idle = self.num_writing = self.num_busy = 0
        self._num_fresh = self._num_left = 0
        self._by_hash.clear()
        self._runs_of.clear()

    def hashes(self):
        """See ChunkStore."""
        return {hash for listed in range(REMEMBERED) for _, hash, _, _, references in self.entries(listed)
                if hash != 0 and references != WRITING}

    def slots(self, int32_t listed):
        """Return the slots of a list in eviction order."""
        return [slot for slot, _, _, places, _ in self.entries(listed) if places]

    def entries(self, int32_t listed):
        """Return (slot, hash, row, places in eviction order, references) of each element of a list, in that order."""
        cdef int32_t element = self.chunks[listed].next
        cdef const Chunk* it
        found = []
        while element != listed:
            it = &self.chunks[element]
            places = list(range(it.begin, it.end))
            found.append((it.slot, it.hash, it.row, places[::-1] if it.is_reversed else places, it.references))
            element = it.next
        return found

    def check(self):
        """Raise RuntimeError unless lists, counts, hashes and rows agree."""
        cdef int32_t listed, element, num_elements = 0
        idle = writing = busy = 0
        rows = {}
        for listed in range(NUM_LISTS):
            element, total = self.chunks[listed].next, 0
            while element != listed:
                it = self.chunks[element]
                is_mark = it.row == NOBODY and it.hash == 0 and it.references == 1 and it.end == 0
                if self.chunks[it.next].prev != element or it.listed != listed or (it.begin >= it.end and not is_mark):
                    raise RuntimeError(f"element {element} is not linked both ways, in another list, or empty")
                if it.hash != 0 and (self.find(it.hash) != element or it.end - it.begin != 1):
                    raise RuntimeError(f"element {element} cannot be found, or is more than one chunk")
                if it.hash == 0 and it.row != NOBODY:
                    rows.setdefault(it.row, set()).add(element)
                if listed < REMEMBERED:
                    idle += it.end - it.begin if it.references == 0 else 0
                    writing += it.end - it.begin if it.references == WRITING else 0
                if it.hash != 0 and listed < REMEMBERED:
                    busy += 1 if it.references == WRITING else it.loads
                total += it.end - it.begin
                num_elements += 1
                element = it.next
            if total != self.sizes[listed]:
                raise RuntimeError(f"list {listed} has {total} chunks, {self.sizes[listed]} counted")
        for row, elements in rows.items():
            element, linked = self.first_run(row), set()
            while element != 0:
                linked.add(element)
                element = self.chunks[element].sibling
            if linked != elements:
                raise RuntimeError(f"runs {sorted(elements)} of request {row}, linked are {sorted(linked)}")
        if (idle, writing, busy) != (self.num_idle, self.num_writing, self.num_busy) or self.size() > self.capacity:
            raise RuntimeError(f"{idle} idle, {writing} written and {busy} busy of {self.size()} chunks, "
                               f"{self.num_idle}, {self.num_writing} and {self.num_busy} counted, {self.capacity} fit")
        if len(rows) != self._runs_of.size or num_elements + self._num_free + NUM_LISTS != self.num_records:
            raise RuntimeError(f"{num_elements} elements in use and {self._num_free} free of {self.num_records}")
