"""`orca`: iteration-level batches of whole prompts and decodes, with the blocks of whole requests, as Vidur has Orca.

Everyone who runs has a turn in each batch; who waits joins as soon as a place and the blocks of the longest text are
free, with the whole prompt. Source: the behaviour of Vidur's scheduler "orca", microsoft/vidur at 7d47513,
replica_scheduler/orca_replica_scheduler.py; Yu et al., Orca, OSDI 2022.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.iteration cimport Batch
from simulator.scheduling.whole_requests cimport WholeRequests


@cython.final
cdef class Orca(WholeRequests):
    """Whole prompts and decodes together; see `WholeRequestsParameters`."""

    cdef int schedule(self, Batch* batch, int64_t now_ns) except -1 nogil:
        cdef int32_t i = 0
        self.begin_batch(batch, now_ns)
        if self.go_on_at_once(batch):
            self.admit_whole(batch, True)
        else:
            self.gather_at_hand()
            while i < self._count and self._size < self._micro_batch:
                self.go_on_at(batch, i)
                i += 1
            self.admit_whole(batch, False)
            self.fill(batch)
        self.close(batch, -1)
        return 0
