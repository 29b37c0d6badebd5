"""The chunks that one level of a tier holds, each in a list that says in which order they go.

A chunk is a fixed number of tokens, some whole blocks, at its place in a text. One that others may share is an element
of its own, found by the hash of the text up to its end. Chunks of private text (see kv/content.pxd) can be found by
their own request alone: neighbours are one element, a *run*, which is cut where its parts fare differently. Whether
anything is a run at all is up to the owner of the table; it decides nothing but what it costs.

A chunk that is being written is there and cannot be read yet; one that is read cannot go; all others are idle.
"""
from libc.stdint cimport int8_t, int32_t, int64_t, uint64_t
cimport cython

from simulator.core.hash_map cimport HashMap
from simulator.kv.chunk_store cimport ChunkStore


cdef enum:
    NOBODY = -1                 # no row: what the run holds is found by nobody any more
    WRITING = -1                # references of what is being written
    NUM_LISTS = 4               # elements 0 .. 3 are their heads
    REMEMBERED = 2              # lists from here on hold only names of chunks that are gone


cdef struct Chunk:              # an element: one chunk that others may share, or a run. 64 bytes
    uint64_t hash               # of the text up to its end; 0: a run
    int64_t guard               # the offer that keeps it from going, see `evict`
    int32_t prev, next          # neighbours in its list; of an element not in use: the next one
    int32_t row                 # of a run: whose text
    int32_t begin, end          # chunks of the text: end - begin of them; one, unless it is a run
    int32_t references          # requests that it is read for; 0: idle; WRITING
    int32_t sibling             # of a run: the next of this row, 0: none; of a chunk: one that came after it in a text
    int32_t slot                # where it lies, if slots are numbered; else -1
    int32_t loads               # of these references, those that bring it to blocks; being written: 1 if from below
    int8_t listed               # which list it is in
    int8_t is_reversed          # of a run: its end goes first


@cython.final
cdef class ChunkTable(ChunkStore):
    cdef Chunk* chunks          # [_num_records] elements; 0 .. 3 are heads and tails of the lists
    cdef readonly int64_t capacity      # chunks
    cdef int64_t sizes[NUM_LISTS]       # chunks in each list
    cdef readonly int64_t num_idle
    cdef readonly int64_t num_writing
    cdef readonly int64_t num_busy      # chunks that others may share: being written, and as often as they are loaded
    cdef bint _numbers_slots
    cdef int32_t _num_fresh     # slots that were ever used
    cdef int32_t* _left_slots   # [_num_left] a stack of those that are free again
    cdef int32_t _num_left
    cdef int32_t _num_records
    cdef int32_t _free          # first element not in use, linked by `next`; 0: none
    cdef int32_t _num_free
    cdef HashMap _by_hash       # hash -> element
    cdef HashMap _runs_of       # key_of(row) -> its run that came last

    # Chunks that are there, whatever is being done to them.
    cdef inline int64_t size(self) noexcept nogil:
        return self.sizes[0] + self.sizes[1]

    # Make room for `count` new elements. -1 without memory, and nothing changed.
    cdef inline int prepare(self, int32_t count) except -1 nogil:
        return self._grow(count) if self._num_free < count else 0

    # The element with this hash, also where only its name is remembered; 0: there is none.
    cdef inline int32_t find(self, uint64_t hash) noexcept nogil:
        return max(self._by_hash.get(hash), 0)

    # The same, where the chunk before in that text is `before`; 0: there is none, or it is not there.
    cdef inline int32_t find_behind(self, int32_t before, uint64_t hash) noexcept nogil:
        cdef int32_t element = self.chunks[before].sibling if before > 0 else 0
        if element > 0 and self.chunks[element].hash == hash:
            return element
        element = self.find(hash)
        if before > 0:
            self.chunks[before].sibling = element
        return element

    # Is it there?
    cdef inline bint holds(self, int32_t element) noexcept nogil:
        return element > 0 and self.chunks[element].listed < REMEMBERED

    cdef inline bint is_idle(self, int32_t element) noexcept nogil:
        return self.chunks[element].references == 0

    cdef inline int32_t length(self, int32_t element) noexcept nogil:
        return self.chunks[element].end - self.chunks[element].begin

    # The first run of a row, the others by `sibling`; the one that has chunk `place` of its text. 0: there is none.
    cdef int32_t first_run(self, int32_t row) noexcept nogil
    cdef int32_t run_at(self, int32_t row, int32_t place) noexcept nogil

    # A chunk that is being written comes to the end of a list; chunks begin .. end - 1 of a private text do. There is
    # room for it, `prepare` came before.
    cdef int32_t add(self, uint64_t hash, int32_t place, int32_t listed) except 0 nogil
    cdef int32_t add_run(self, int32_t row, int32_t begin, int32_t end, int32_t listed) except 0 nogil

    # Cut a run before chunk `place` of its text, begin < place < end; return the new element behind. `prepare` came
    # before.
    cdef int32_t cut(self, int32_t element, int32_t place) noexcept nogil

    # What was being written is there; one more request reads it; one less does.
    cdef inline void written(self, int32_t element) noexcept nogil:
        self.chunks[element].references = 0
        self.num_writing -= self.length(element)
        self.num_idle += self.length(element)
        self.num_busy -= self.chunks[element].hash != 0
        if self.log is not None:
            self._tell(element, True)

    cdef void pin(self, int32_t element) noexcept nogil
    cdef void unpin(self, int32_t element) noexcept nogil

    # The same for those that bring it to blocks.
    cdef inline void begin_load(self, int32_t element) noexcept nogil:
        self.pin(element)
        self.chunks[element].loads = self.chunks[element].loads + 1
        self.num_busy += self.chunks[element].hash != 0

    cdef inline void end_load(self, int32_t element) noexcept nogil:
        self.chunks[element].loads = self.chunks[element].loads - 1
        self.num_busy -= self.chunks[element].hash != 0
        self.unpin(element)

    # The last in a list to go, of those idle; a run is then reversed: its end goes first.
    cdef void move_back(self, int32_t element, int32_t listed) noexcept nogil

    # The same for chunks that follow one another in that list, from `first` to `last`.
    cdef void move_all_back(self, int32_t first, int32_t last, int32_t listed) noexcept nogil

    # An idle element, or the first `count` chunks of it to go, is gone; or only its name is left, at the end of a list.
    # -> the elements that a name was left of keep their place in the list.
    cdef void drop(self, int32_t element, int32_t count) noexcept nogil
    cdef void remember(self, int32_t element, int32_t listed) noexcept nogil

    # What is being written will not be: as if it had never come.
    cdef void discard(self, int32_t element) noexcept nogil

    # A request has left: its runs are nobody's.
    cdef void forget_row(self, int32_t row) noexcept nogil

    cdef int _grow(self, int32_t count) except -1 nogil
    cdef void _tell(self, int32_t element, bint is_there) noexcept nogil
    cdef int32_t _new(self) noexcept nogil
    cdef void _give_up(self, int32_t element) noexcept nogil
    cdef void _insert_before(self, int32_t element, int32_t following) noexcept nogil
    cdef void _unlink(self, int32_t element) noexcept nogil
    cdef void _leave_siblings(self, int32_t element) noexcept nogil
    cdef void _take_slot(self, int32_t element) noexcept nogil
    cdef void _free_slot(self, int32_t element) noexcept nogil
