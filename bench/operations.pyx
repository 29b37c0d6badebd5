# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Loops over single operations of the data structures, without the GIL: build one, then time `run(count)`."""
from libc.stdint cimport int32_t, int64_t, uint64_t

from simulator.core.event_queue cimport Event, EventQueue
from simulator.core.finish_heap cimport FinishHeap
from simulator.core.wake_heap cimport WakeHeap
from simulator.kv.content cimport Content
from simulator.kv.paged cimport PagedKV
from simulator.scheduling.waiting_queue cimport WaitingQueue


cdef inline uint64_t next_random(uint64_t* state) noexcept nogil:
    """Return the next number of xorshift64 (Marsaglia, 2003): a nanosecond each, so that the draw hardly counts."""
    state[0] ^= state[0] << 13
    state[0] ^= state[0] >> 7
    state[0] ^= state[0] << 17
    return state[0]


cdef class Loop:
    cdef uint64_t state         # of next_random
    cdef int32_t size

    def __cinit__(self, *_, **__):
        self.state = 88172645463325252


cdef class EventQueueLoop(Loop):
    """Pop the first of `size` events and push one at a random later time."""

    cdef EventQueue queue

    def __init__(self, int32_t size):
        self.queue = EventQueue()
        for _ in range(size):
            self.queue.push(next_random(&self.state) & 0xFFFFF, 1, 1, 0, 0)

    def run(self, int64_t count):
        cdef Event event
        with nogil:
            for _ in range(count):
                event = self.queue.pop()
                self.queue.push(event.time_ns + <int64_t>(next_random(&self.state) & 0xFFFFF), 1, 1, 0, 0)


cdef class WakeHeapLoop(Loop):
    """Find the first of `size` replicas and give it a random later time."""

    cdef WakeHeap heap

    def __init__(self, int32_t size):
        cdef int32_t index
        self.heap = WakeHeap(size)
        for index in range(size):
            self.heap.set(index, next_random(&self.state) & 0xFFFFF)

    def run(self, int64_t count):
        with nogil:
            for _ in range(count):
                self.heap.set(self.heap.top_index(),
                              self.heap.top_time() + <int64_t>(next_random(&self.state) & 0xFFFFF))


cdef class FinishHeapLoop(Loop):
    """Remove the first of `size` sequences to end and add one that ends up to 1023 iterations later."""

    cdef FinishHeap heap
    cdef int64_t order

    def __init__(self, int32_t size):
        cdef int32_t slot
        self.heap = FinishHeap()
        self.order = size
        for slot in range(size):
            self.heap.push(next_random(&self.state) & 1023, slot, slot)

    def run(self, int64_t count):
        cdef int64_t iteration
        cdef int32_t slot
        with nogil:
            for _ in range(count):
                iteration = self.heap.top_iteration()
                slot = self.heap.pop()
                self.order += 1
                self.heap.push(iteration + <int64_t>(next_random(&self.state) & 1023), self.order, slot)


cdef class WaitingQueueLoop(Loop):
    """Take the first of `size` rows and add another, each row in turn; by priority, the later row goes last."""

    cdef WaitingQueue queue
    cdef object workload        # the queue borrows its records
    cdef int32_t row

    def __init__(self, workload, int32_t size, bint by_priority):
        self.queue = WaitingQueue(workload.requests, workload.demands, by_priority)
        self.workload = workload
        self.size = len(workload)
        self.row = size
        for row in range(size):
            self.queue.push(row)

    def run(self, int64_t count):
        with nogil:
            for _ in range(count):
                self.queue.pop()
                self.queue.push(self.row)
                self.row = self.row + 1 if self.row + 1 < self.size else 0


cdef class AllocatorLoop(Loop):
    """Release a random one of `size` block tables and allocate it anew with `blocks` blocks."""

    cdef PagedKV kv
    cdef int32_t blocks

    def __init__(self, workload, int32_t num_blocks, int32_t size, int32_t blocks, bint caching):
        cdef int32_t slot
        self.kv = PagedKV(num_blocks, 16, Content(workload), caching)
        self.kv.reserve_slots(size)
        self.size = size
        self.blocks = blocks
        for slot in range(size):
            self.allocate(slot)

    cdef int allocate(self, int32_t slot) except -1 nogil:
        return self.kv.allocate(slot, slot, 0, self.blocks * 16, 0, 0, self.blocks * 16)

    def run(self, int64_t count):
        cdef int32_t slot
        with nogil:
            for _ in range(count):
                slot = <int32_t>(next_random(&self.state) % <uint64_t>self.size)
                self.kv.release(slot, False)
                self.allocate(slot)

    @property
    def free_blocks(self):
        return self.kv.free_blocks


cdef class LookupLoop(Loop):
    """Look up the prompts of random rows in a prefix cache that holds the first `num_cached` prompts."""

    cdef PagedKV kv
    cdef int32_t tokens
    cdef readonly int64_t blocks_found

    def __init__(self, workload, int32_t num_blocks, int32_t num_cached, int32_t tokens):
        cdef int32_t slot
        self.kv = PagedKV(num_blocks, 16, Content(workload), True)
        self.kv.reserve_slots(num_cached)
        self.size = len(workload)
        self.tokens = tokens
        for slot in range(num_cached):
            assert self.kv.allocate(slot, slot, 0, tokens, 0, 0, tokens) == 1

    def run(self, int64_t count):
        cdef int32_t row
        with nogil:
            for _ in range(count):
                row = <int32_t>(next_random(&self.state) % <uint64_t>self.size)
                self.blocks_found += self.kv.lookup(row, self.tokens)
