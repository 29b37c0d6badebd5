"""A scheduler that has encoders compute the images in prompts, in the batch that comes to them."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.kv.encoder_cache cimport EncoderCache
from simulator.scheduling.base cimport Sequence
from simulator.scheduling.striding cimport StridingScheduler


cdef class EncodingScheduler(StridingScheduler):
    # Called while the policy is built. None: nothing is paid for items.
    cdef int encode_by(self, EncoderCache encoder) except -1

    # Is no item left before the end of what runs? Members decode, and have none before them.
    cdef bint needs_no_encoder(self) noexcept nogil

    # Of `tokens` behind `computed`, those that one can compute in the batch being formed; see EncoderCache.plan.
    @cython.final
    cdef inline int64_t tokens_with_items(self, int32_t row, int64_t computed, int64_t tokens) except? -1 nogil:
        return self.encoder.plan(row, computed, tokens) if self.encoder is not None and tokens > 0 else tokens

    # It is not admitted, and refers to no items.
    @cython.final
    cdef inline void let_items_go(self, int32_t row) noexcept nogil:
        if self.encoder is not None:
            self.encoder.let_go(row)

    # A batch came back, but for the last `unsettled` tokens in KV: it refers to no items before them any more, or, if
    # it has ended, to none. Asked where there is an encoder.
    cdef void pass_items(self, const Sequence* sequence, int32_t unsettled, bint has_ended) noexcept nogil
