"""Verified and accepted drafts, as vLLM logs them for speculative decoding.

Steps are counted as vLLM counts them: before a text is cut at its end, so that surplus drafts count as accepted, and
without the dummy drafts that pad some admissions. Source: vllm-project/vllm, vllm/v1/spec_decode/metrics.py,
SpecDecodingStats; vllm/v1/core/sched/scheduler.py, update_from_output.
"""
from libc.stdlib cimport calloc, free
cimport cython


@cython.final
cdef class DraftCounts:
    """Of one scheduler.

    num_tokens : drafts of a verify step, at most.
    """

    def __cinit__(self, int32_t num_tokens):
        self.num_tokens = num_tokens
        self.steps = <int64_t*>calloc(num_tokens + 1, sizeof(int64_t))
        if self.steps == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.steps)

    cdef void count_turns(self, Acceptance acceptance, int32_t row, int32_t first, int32_t end) noexcept nogil:
        self.num_draft_tokens += <int64_t>(end - first) * self.num_tokens
        acceptance.count(row, first, end, self.steps)

    def counts(self):
        """Return verified drafts, and how many verify steps had 0, 1, 2, ... accepted."""
        cdef int32_t i
        return {"num_draft_tokens": self.num_draft_tokens, "steps": [self.steps[i] for i in range(self.num_tokens + 1)]}
