"""`faster_transformer`: static batches, as in Vidur's FasterTransformer.

When no batch is left to go on with, requests are admitted together, with blocks for whole requests; a complete request
leaves, and the others go on. Source: the behaviour of Vidur's scheduler "faster_transformer", microsoft/vidur at
7d47513, replica_scheduler/faster_transformer_replica_scheduler.py, less its fault: there a request that completes
before the others never gives its blocks back. Here they are free at once.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from simulator.domain.iteration cimport Batch
from simulator.scheduling.whole_requests cimport WholeRequests


@cython.final
cdef class FasterTransformer(WholeRequests):
    """Static batches; see `WholeRequestsParameters`."""

    cdef int32_t* _cohorts              # [row] with pipeline stages: batch that admitted a request, from 1
    cdef int32_t _num_cohorts

    def __init__(self, parameters, context):
        WholeRequests.__init__(self, parameters, context)
        if context.num_stages > 1:
            self._cohorts = <int32_t*>calloc(len(context.requests) + 1, sizeof(int32_t))
            if self._cohorts == NULL:
                raise MemoryError()

    def __dealloc__(self):
        free(self._cohorts)

    cdef bint repeats(self) noexcept nogil:
        return True                     # no sequence joins a batch of members

    cdef int schedule(self, Batch* batch, int64_t now_ns) except -1 nogil:
        self.begin_batch(batch, now_ns)
        if not self.go_on_at_once(batch):
            self.gather_at_hand()
            if self._count > 0:
                self._go_on(batch)
            else:
                self.admit_whole(batch, False)
                self._number_cohort()
            self.fill(batch)
        self.close(batch, -1)
        return 0

    cdef int _go_on(self, Batch* batch) except -1 nogil:
        """Continue the batch that returned first."""
        cdef int32_t i = 0, cohort = self._cohort_of(self._at_hand[0])
        while i < self._count:
            if self._cohort_of(self._at_hand[i]) == cohort:
                self.go_on_at(batch, i)
            i += 1
        return 0

    cdef inline int32_t _cohort_of(self, int32_t slot) noexcept nogil:
        return self._cohorts[self._sequences[slot].row] if self._cohorts != NULL else 0

    cdef void _number_cohort(self) noexcept nogil:
        cdef int32_t slot = self._running.tail
        self._num_cohorts += 1
        while self._cohorts != NULL and slot >= 0 and self._sequences[slot].is_new:
            self._cohorts[self._sequences[slot].row] = self._num_cohorts
            slot = self._links.prev(slot)
