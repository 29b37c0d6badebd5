"""The chunks that one level of a tier holds, in lists in eviction order.

A chunk is a fixed number of tokens, one or more whole blocks, at its place in a text. A chunk that other requests may
share is an element of its own, found by the hash of the text up to its end. Chunks of private text (see kv/content.pxd)
can be found by their own request alone: neighbours are one element, a *run*, which is cut where its parts are treated
differently. The owner of the table chooses whether to use runs; they affect only the cost, never a decision.

A chunk that is being written is present but cannot be read yet; one that is being read cannot be evicted; all other
chunks are idle.
"""
from libc.stdint cimport int8_t, int32_t, int64_t, uint64_t
cimport cython

from simulator.core.hash_map cimport HashMap
from simulator.kv.chunk_store cimport ChunkStore


cdef enum:
    NOBODY = -1                 # in place of a row: no request finds this run any more
    WRITING = -1                # in place of references: it is being written
    NUM_LISTS = 4               # elements 0 .. 3 are the heads of the lists
    REMEMBERED = 2              # lists from here on hold only names of evicted chunks


cdef struct Chunk:              # an element: one chunk that other requests may share, or a run. 64 bytes
    uint64_t hash               # of the text up to its end; 0: a run
    int64_t guard               # the offer that protects it from eviction, see `evict`
    int32_t prev, next          # neighbours in its list; of an element not in use: the next one
    int32_t row                 # of a run: the request that has the text
    int32_t begin, end          # chunks of the text: end - begin; one, unless it is a run; of a mark none
    int32_t references          # requests that it is read for; 0: idle; WRITING
    int32_t sibling             # of a run: the next of this row, 0: none; of a chunk: one that followed it in a text
    int32_t slot                # its slot, if slots are numbered; else -1
    int32_t loads               # references for loads into blocks; being written: 1 if it is read from a lower level
    int8_t listed               # the list that holds it
    int8_t is_reversed          # of a run: its end is evicted first


@cython.final
cdef class ChunkTable(ChunkStore):
    cdef Chunk* chunks          # [num_records] elements; 0 .. 3 are heads and tails of the lists
    cdef readonly int64_t capacity      # chunks
    cdef int64_t sizes[NUM_LISTS]       # chunks in each list
    cdef readonly int64_t num_idle
    cdef readonly int64_t num_writing
    cdef readonly int64_t num_busy      # shared chunks being written, and shared chunks being loaded, once per load
    cdef bint notes_one_load    # see begin_load
    cdef bint _numbers_slots
    cdef int32_t _num_fresh     # slots that were ever used
    cdef int32_t* _left_slots   # [_num_left] a stack of slots that were freed
    cdef int32_t _num_left
    cdef int32_t num_records
    cdef int32_t _free          # first element not in use, linked by `next`; 0: none
    cdef int32_t _num_free
    cdef HashMap _by_hash       # hash -> element
    cdef HashMap _runs_of       # key_of(row) -> its run that was added last

    # Number of chunks that are present, also those being written or read.
    cdef inline int64_t size(self) noexcept nogil:
        return self.sizes[0] + self.sizes[1]

    # Make room for `count` new elements. -1 without memory, and nothing changed.
    cdef inline int prepare(self, int32_t count) except -1 nogil:
        return self._grow(count) if self._num_free < count else 0

    # The element with this hash, even if only its name is remembered; 0: there is none.
    cdef inline int32_t find(self, uint64_t hash) noexcept nogil:
        return max(self._by_hash.get(hash), 0)

    # find(), faster if the chunk before in that text is `before`; 0: unknown.
    cdef inline int32_t find_behind(self, int32_t before, uint64_t hash) noexcept nogil:
        cdef int32_t element = self.chunks[before].sibling if before > 0 else 0
        if element > 0 and self.chunks[element].hash == hash:
            return element
        element = self.find(hash)
        if before > 0:
            self.chunks[before].sibling = element
        return element

    # Is the chunk present?
    cdef inline bint holds(self, int32_t element) noexcept nogil:
        return element > 0 and self.chunks[element].listed < REMEMBERED

    cdef inline bint is_idle(self, int32_t element) noexcept nogil:
        return self.chunks[element].references == 0

    cdef inline int32_t length(self, int32_t element) noexcept nogil:
        return self.chunks[element].end - self.chunks[element].begin

    # The first run of a row, linked to the next by `sibling`; the run with chunk `place` of its text. 0: none.
    cdef int32_t first_run(self, int32_t row) noexcept nogil
    cdef int32_t run_at(self, int32_t row, int32_t place) noexcept nogil

    # Add a chunk at the end of a list, or chunks begin .. end - 1 of a private text; they are being written. The caller
    # has made room for them, and called `prepare`.
    cdef int32_t add(self, uint64_t hash, int32_t place, int32_t listed) except 0 nogil
    cdef int32_t add_run(self, int32_t row, int32_t begin, int32_t end, int32_t listed) except 0 nogil

    # Cut a run before chunk `place` of its text, begin < place < end; return the new element behind. The
    # caller has called `prepare`.
    cdef int32_t cut(self, int32_t element, int32_t place) noexcept nogil

    # A chunk has been written. pin(): one more request reads it; unpin(): one less.
    cdef inline void written(self, int32_t element) noexcept nogil:
        self.chunks[element].references = 0
        self.num_writing -= self.length(element)
        self.num_idle += self.length(element)
        self.num_busy -= self.chunks[element].hash != 0
        if self.log is not None:
            self._tell(element, True)

    cdef void pin(self, int32_t element) noexcept nogil
    cdef void unpin(self, int32_t element) noexcept nogil

    # pin() and unpin() for loads into blocks. Where some loads are part of a step, loads of a chunk may overlap, and as
    # in vLLM's set of chunks that others wait for, a load of a step is not noted, and the first end removes the note.
    cdef inline void begin_load(self, int32_t element, bint is_in_step) noexcept nogil:
        self.pin(element)
        if not self.notes_one_load or (not is_in_step and self.chunks[element].loads == 0):
            self.chunks[element].loads = self.chunks[element].loads + 1
            self.num_busy += self.chunks[element].hash != 0

    cdef inline void end_load(self, int32_t element) noexcept nogil:
        if not self.notes_one_load or self.chunks[element].loads > 0:
            self.chunks[element].loads = self.chunks[element].loads - 1
            self.num_busy -= self.chunks[element].hash != 0
        self.unpin(element)

    # Make an element the last in a list to be evicted; a run is then reversed: its end is evicted first.
    cdef void move_back(self, int32_t element, int32_t listed) noexcept nogil

    # The same for elements that are neighbours in that list, from `first` to `last`, with their order kept.
    cdef void move_all_back(self, int32_t first, int32_t last, int32_t listed) noexcept nogil

    # Remove the first `count` chunks, in eviction order, of an idle element; or keep only its name, at the end of a
    # list: `find` still returns the element.
    cdef void drop(self, int32_t element, int32_t count) noexcept nogil
    cdef void remember(self, int32_t element, int32_t listed) noexcept nogil

    # Remove a chunk or run that is being written, as if it had not been added.
    cdef void discard(self, int32_t element) noexcept nogil

    # A mark is an element without chunks, at a place of a list: it is never idle, and no request finds it. Add one at
    # the end of a list (the caller has called `prepare`); remove it.
    cdef int32_t add_mark(self, int32_t listed) noexcept nogil
    cdef void drop_mark(self, int32_t mark) noexcept nogil

    # Move an element of this list to the place before `following`, an element of it or its head. A run is then
    # reversed: its end is evicted first.
    cdef void move_before(self, int32_t element, int32_t following) noexcept nogil

    # A request has left: no request finds its runs any more.
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
