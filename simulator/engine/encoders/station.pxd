"""An encoder replica: its queue, batches, cache and link."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.index_list cimport IndexLinks, IndexList
from simulator.core.row_list cimport RowList
from simulator.domain.encode_job cimport EncodeJob
from simulator.kv.encoder_cache cimport EncoderCache


@cython.final
cdef class Station:
    cdef readonly EncoderCache cache        # of items it has encoded; a job is a request to it
    cdef RowList batch                      # jobs of the batch in progress
    cdef readonly bint is_busy              # a batch is in progress
    cdef bint is_called                     # it looks at its queue at the end of this instant
    cdef readonly int64_t busy_ns           # time of all batches together
    cdef readonly int64_t batches
    cdef IndexList _waiting                 # jobs, in order of arrival
    cdef IndexLinks _links                  # of `_waiting`, shared with the other replicas
    cdef EncodeJob* _jobs                   # [job] borrowed
    cdef double _embedding_ns, _iteration_ns, _least_ns
    cdef double _sending_ns                 # of an embedding, on its link
    cdef int32_t _max_jobs
    cdef int64_t _link_free_ns              # when the last queued transfer ends

    cdef inline int32_t num_waiting(self) noexcept nogil:
        return self._waiting.size

    # put: a job arrives, and waits. withdraw: take a job back; False: it does not wait any more.
    cdef inline void put(self, int32_t job, int64_t now_ns) noexcept nogil:
        self._jobs[job].queued_ns = now_ns
        self._links.push_back(&self._waiting, job)

    cdef inline bint withdraw(self, int32_t job) noexcept nogil:
        if not self._links.is_linked(job):
            return False
        self._links.remove(&self._waiting, job)
        return True

    # Begin a batch of waiting jobs, in order, within budget, cache and max_jobs: return when it ends; -1: there is
    # none.
    cdef int64_t begin(self, int64_t now_ns) except -2 nogil

    # The batch has ended: `batch` stays as it is until the next one begins.
    cdef void end(self, int64_t now_ns) noexcept nogil

    # Queue the embeddings of a job on the link: return when their last byte leaves.
    cdef int64_t send(self, int32_t job, int64_t now_ns) noexcept nogil
