"""A replica that encodes: which jobs are a batch, and when their embeddings have left."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.index_list cimport IndexLinks, IndexList
from simulator.core.row_list cimport RowList
from simulator.domain.encode_job cimport EncodeJob
from simulator.kv.encoder_cache cimport EncoderCache


@cython.final
cdef class Station:
    cdef readonly EncoderCache cache        # of what it has encoded; a job is a request to it
    cdef RowList batch                      # jobs of the batch that is computed
    cdef readonly bint is_busy              # there is one
    cdef bint is_called                     # it looks at its queue at the end of this instant
    cdef readonly int64_t busy_ns           # all batches together
    cdef readonly int64_t batches
    cdef IndexList _waiting                 # jobs, in the order in which they came
    cdef IndexLinks _links                  # of these, shared with the other replicas
    cdef EncodeJob* _jobs                   # [job] borrowed
    cdef double _embedding_ns, _iteration_ns
    cdef double _sending_ns                 # of an embedding, on its link
    cdef int32_t _max_jobs
    cdef int64_t _link_free_ns              # when all that was sent has left

    cdef inline int32_t num_waiting(self) noexcept nogil:
        return self._waiting.size

    # A job comes, and waits; or is taken back, False: it does not wait any more.
    cdef inline void put(self, int32_t job, int64_t now_ns) noexcept nogil:
        self._jobs[job].queued_ns = now_ns
        self._links.push_back(&self._waiting, job)

    cdef inline bint withdraw(self, int32_t job) noexcept nogil:
        if not self._links.is_linked(job):
            return False
        self._links.remove(&self._waiting, job)
        return True

    # Begin a batch of those that wait, in their order, as far as budget, places and jobs go: when it ends; -1: there is
    # none.
    cdef int64_t begin(self, int64_t now_ns) except -2 nogil

    # It has ended: `batch` stays as it is until the next one begins.
    cdef void end(self, int64_t now_ns) noexcept nogil

    # The embeddings of a job leave behind those before: when the last byte has.
    cdef int64_t send(self, int32_t job, int64_t now_ns) noexcept nogil
