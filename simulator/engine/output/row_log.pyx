"""Rows of iterations not passed on yet, each as its difference to the row before at the same replica and stage.

A row has 80 bytes. An iteration that repeats the one before takes 2 to 6 bytes, since its begin is known and its
duration, context and blocks change little; another takes 4 bytes for each half word that changed, and 4 more. So each
replica can be served for long before the next, while its data is in the caches, until all rows are merged.
"""
from libc.stdint cimport int8_t, int16_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memmove, memset
cimport cython

from simulator.core.arithmetic cimport lowest_bit
from simulator.core.errors cimport out_of_memory
from simulator.core.memory cimport resize

cdef enum:
    CHANGED = 0                 # kinds of differences, in the two lowest bits of the first byte: half words of a row,
    BEHIND = 1                  # a repetition scheduled at the end of the row before, or
    OVERLAPPING = 2             # at its begin
    DURATION_BITS = 2           # where the first byte has the lengths of the numbers behind it
    SLOPE_BITS = 4
    BLOCKS_BITS = 6
    HALF_WORDS = 20             # of a row, 4 bytes each
    LONGEST = 4 * (HALF_WORDS + 2)      # bytes of a difference, and some that are written in vain
    FIRST_ROOM = 512


cdef inline int32_t code_of(int64_t number) noexcept nogil:
    """Return how a number of 32 bits is written: 0, 1, 2, 3 for none, 1, 2, 4 bytes."""
    return (number != 0) + (number != <int8_t>number) + (number != <int16_t>number)


cdef inline uint8_t* put(uint8_t* place, int64_t number, int32_t code) noexcept nogil:
    """Write a number; four bytes are written in any case."""
    cdef uint32_t bits = <uint32_t>number
    place[0], place[1], place[2], place[3] = <uint8_t>bits, <uint8_t>(bits >> 8), <uint8_t>(bits >> 16), \
        <uint8_t>(bits >> 24)
    return place + ((1 << code) >> 1)


cdef inline const uint8_t* take(const uint8_t* place, int64_t* number, int32_t code) noexcept nogil:
    """Add the number written at a place to another; return the place behind it."""
    cdef uint32_t bits
    if code == 0:
        return place
    bits = place[0] | <uint32_t>place[1] << 8 | <uint32_t>place[2] << 16 | <uint32_t>place[3] << 24
    number[0] += <int8_t>bits if code == 1 else <int16_t>bits if code == 2 else <int32_t>bits
    return place + ((1 << code) >> 1)


cdef inline bint fits(int64_t number) noexcept nogil:
    return number == <int32_t>number


cdef inline bint are_close(const RowQueue* queue, int64_t duration_ns, int64_t context_tokens,
                           int32_t used_blocks) noexcept nogil:
    """Return whether the differences of a repetition to the last row can be written."""
    return (fits(duration_ns - queue.last.duration_ns)
            & fits(context_tokens - queue.last.context_tokens - queue.last_slope)
            & fits(<int64_t>used_blocks - queue.last.used_blocks))


cdef inline bint repeats(const IterationRow* row, const IterationRow* last) noexcept nogil:
    """Return whether a row does the same as the last one, right after it; without a branch."""
    return ((row.begin_ns == last.begin_ns + last.duration_ns)
            & ((row.start_ns == row.begin_ns) | (row.start_ns == last.begin_ns))
            & (row.sequences == last.sequences) & (row.prefill_tokens == last.prefill_tokens)
            & (row.decode_tokens == last.decode_tokens) & (row.waiting == last.waiting)
            & (row.running == last.running) & (row.preempted == last.preempted) & (row.rank == last.rank)
            & (row.padded_tokens == last.padded_tokens) & (row.encoder_tokens == last.encoder_tokens))


cdef inline void put_repetition(RowQueue* queue, int64_t duration_ns, int64_t context_tokens, int32_t used_blocks,
                                int32_t kind) noexcept nogil:
    """Write a row that repeats the last one, and make it the last."""
    cdef IterationRow* last = &queue.last
    cdef int64_t slope = context_tokens - last.context_tokens, begin_ns = last.begin_ns
    cdef int64_t longer_ns = duration_ns - last.duration_ns, steeper = slope - queue.last_slope
    cdef int64_t blocks = <int64_t>used_blocks - last.used_blocks
    cdef int32_t duration_code = code_of(longer_ns), slope_code = code_of(steeper), blocks_code = code_of(blocks)
    cdef uint8_t* place = queue.bytes + queue.end
    place[0] = <uint8_t>(kind | duration_code << DURATION_BITS | slope_code << SLOPE_BITS | blocks_code << BLOCKS_BITS)
    place = put(place + 1, longer_ns, duration_code)
    place = put(place, steeper, slope_code)
    place = put(place, blocks, blocks_code)
    queue.end = place - queue.bytes
    queue.last_slope = slope
    last.begin_ns += last.duration_ns
    last.start_ns = last.begin_ns if kind == BEHIND else begin_ns
    last.duration_ns, last.context_tokens, last.used_blocks = duration_ns, context_tokens, used_blocks


cdef inline uint32_t half_word(const IterationRow* row, int32_t i) noexcept nogil:
    cdef uint32_t word
    memcpy(&word, <const char*>row + 4 * i, 4)
    return word


cdef inline void put_changes(RowQueue* queue, const IterationRow* row) noexcept nogil:
    """Write the half words that differ from the last row, and which they are: three bytes, and one for the kind."""
    cdef uint32_t changed = 0, word, differs
    cdef uint8_t* place = queue.bytes + queue.end
    cdef uint8_t* out = place + 4
    cdef int32_t i
    for i in range(HALF_WORDS):
        word = half_word(row, i)
        differs = word != half_word(&queue.last, i)
        memcpy(out, &word, 4)
        out += 4 * differs
        changed |= differs << i
    place[0], place[1], place[2], place[3] = CHANGED, <uint8_t>changed, <uint8_t>(changed >> 8), \
        <uint8_t>(changed >> 16)
    queue.end = out - queue.bytes


cdef inline const uint8_t* take_changes(IterationRow* row, const uint8_t* place) noexcept nogil:
    cdef uint32_t changed = place[1] | <uint32_t>place[2] << 8 | <uint32_t>place[3] << 16
    place += 4
    while changed != 0:
        memcpy(<char*>row + 4 * lowest_bit(changed), place, 4)
        changed &= changed - 1
        place += 4
    return place


cdef void pass_head(RowQueue* queue) noexcept nogil:
    cdef const uint8_t* place = queue.bytes + queue.begin
    cdef IterationRow* head = &queue.head
    cdef int64_t begin_ns = head.begin_ns, blocks = head.used_blocks
    cdef int32_t kind
    queue.num_passed += 1
    if queue.begin == queue.end:
        queue.has_head = False
        queue.begin = queue.end = 0
        return
    kind = place[0] & 3
    if kind == CHANGED:
        place = take_changes(head, place)
    else:
        head.begin_ns += head.duration_ns
        head.start_ns = head.begin_ns if kind == BEHIND else begin_ns
        place = take_numbers(place, &head.duration_ns, &queue.head_slope, &blocks)
        head.context_tokens += queue.head_slope
        head.used_blocks = <int32_t>blocks
    queue.begin = place - queue.bytes


cdef inline const uint8_t* take_numbers(const uint8_t* place, int64_t* duration_ns, int64_t* slope,
                                        int64_t* blocks) noexcept nogil:
    cdef int32_t codes = place[0]
    place = take(place + 1, duration_ns, codes >> DURATION_BITS & 3)
    place = take(place, slope, codes >> SLOPE_BITS & 3)
    return take(place, blocks, codes >> BLOCKS_BITS & 3)


cdef inline int make_room(RowQueue* queue) except -1 nogil:
    """Make room for a difference, behind others that were not passed on."""
    if queue.room - queue.end >= LONGEST:
        return 0
    if queue.begin > queue.room // 2:
        memmove(queue.bytes, queue.bytes + queue.begin, queue.end - queue.begin)
        queue.end -= queue.begin
        queue.begin = 0
        return 0
    queue.room = max(2 * queue.room, <int64_t>FIRST_ROOM)
    return resize(&queue.bytes, queue.room)


@cython.final
cdef class RowLog:
    """Rows of `records.ITERATION`, of any replicas."""

    def __dealloc__(self):
        cdef RowQueue* queue
        cdef RowQueue* following
        cdef int64_t replica
        for replica in range(self.num_replicas):
            queue = self.queues[replica]
            while queue != NULL:
                following = queue.following
                free(queue.bytes)
                free(queue)
                queue = following
        free(self.queues)

    def extend(self, const IterationRow[::1] rows):
        """Record rows; those of each replica and stage in order of start."""
        cdef int64_t i
        for i in range(len(rows)):
            self.add(&rows[i])

    cdef int add(self, const IterationRow* row) except -1 nogil:
        cdef RowQueue* queue = self._queue(row.replica, row.stage)
        cdef int64_t end
        if not queue.has_head:
            queue.head, queue.last, queue.has_head, queue.head_slope, queue.last_slope = row[0], row[0], True, 0, 0
            return 0
        make_room(queue)
        end = queue.end
        if repeats(row, &queue.last) and are_close(queue, row.duration_ns, row.context_tokens, row.used_blocks):
            put_repetition(queue, row.duration_ns, row.context_tokens, row.used_blocks,
                           BEHIND if row.start_ns == row.begin_ns else OVERLAPPING)
        else:
            put_changes(queue, row)
            queue.last = row[0]
        self.held_bytes += queue.end - end
        return 0

    cdef int repeat(self, int32_t replica, int64_t duration_ns, int64_t context_tokens, int32_t used_blocks,
                    bint overlaps) except -1 nogil:
        cdef RowQueue* queue = self._queue(replica, 0)
        cdef IterationRow row = queue.last
        cdef int64_t end
        if not are_close(queue, duration_ns, context_tokens, used_blocks):
            row.begin_ns += row.duration_ns
            row.start_ns = queue.last.begin_ns if overlaps else row.begin_ns
            row.duration_ns, row.context_tokens, row.used_blocks = duration_ns, context_tokens, used_blocks
            return self.add(&row)
        make_room(queue)
        end = queue.end
        put_repetition(queue, duration_ns, context_tokens, used_blocks, OVERLAPPING if overlaps else BEHIND)
        self.held_bytes += queue.end - end
        return 0

    cdef void count_bytes(self) noexcept nogil:
        cdef RowQueue* queue
        cdef int64_t replica
        self.held_bytes = 0
        for replica in range(self.num_replicas):
            queue = self.queues[replica]
            while queue != NULL:
                self.held_bytes += queue.end - queue.begin
                queue = queue.following

    cdef RowQueue* _queue(self, int32_t replica, int32_t stage) except NULL nogil:
        cdef RowQueue** place
        if replica >= self.num_replicas:
            self._grow(max(replica + 1, 2 * self.num_replicas))
        place = &self.queues[replica]
        while place[0] != NULL and stage > 0:
            place = &place[0].following
            stage -= 1
        if place[0] == NULL:
            place[0] = <RowQueue*>calloc(1, sizeof(RowQueue))
            if place[0] == NULL:
                out_of_memory()
        return place[0]

    cdef int _grow(self, int64_t num_replicas) except -1 nogil:
        resize(&self.queues, num_replicas * sizeof(void*))
        memset(self.queues + self.num_replicas, 0, (num_replicas - self.num_replicas) * sizeof(void*))
        self.num_replicas = num_replicas
        return 0
