"""Schedulers with encoders, which compute the images of a prompt in the batch that reaches them."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.kv.encoder_cache cimport EncoderCache
from simulator.scheduling.base cimport Sequence
from simulator.scheduling.multi_token_scheduler cimport MultiTokenScheduler


cdef class EncodingScheduler(MultiTokenScheduler):
    # Called while the policy is built. None: encoding items costs nothing.
    cdef int encode_by(self, EncoderCache encoder) except -1

    # Is no item left to encode in the running sequences? Members decode, so they have none left.
    cdef bint needs_no_encoder(self) noexcept nogil

    # The number of `tokens` behind `computed` that the batch being formed can compute; see EncoderCache.plan.
    @cython.final
    cdef inline int64_t tokens_with_items(self, int32_t row, int64_t computed, int64_t tokens) except? -1 nogil:
        return self.encoder.plan(row, computed, tokens) if self.encoder is not None and tokens > 0 else tokens

    # The request is not admitted: drop its references to items.
    @cython.final
    cdef inline void let_items_go(self, int32_t row) noexcept nogil:
        if self.encoder is not None:
            self.encoder.let_go(row)

    # A batch ended: release the items of `sequence` before its computed tokens, less the last `unsettled` ones; all
    # items if the sequence has ended. Called only where there is an encoder.
    cdef void pass_items(self, const Sequence* sequence, int32_t unsettled, bint has_ended) noexcept nogil
