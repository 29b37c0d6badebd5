"""Schedulers with encoders, which compute the images of a prompt in the batch that reaches them."""
from simulator.domain.iteration cimport Entry


cdef class EncodingScheduler(MultiTokenScheduler):
    """Base of schedulers with encoders; see encoding.pxd.

    A policy visits running sequences one by one while `needs_no_encoder` is false.
    """

    cdef int encode_by(self, EncoderCache encoder) except -1:
        self.encoder = encoder
        self._asks_who_joins = self._asks_who_joins or encoder is not None
        return 0

    cdef bint needs_no_encoder(self) noexcept nogil:
        cdef int32_t i
        for i in range(self._num_prefilling if self.encoder is not None else 0):
            if self.encoder.lacks(self._sequences[self._prefilling[i]].row,
                                  self._sequences[self._prefilling[i]].num_computed):
                return False
        return True

    cdef bint _may_join(self, const Entry* entry) noexcept nogil:
        # A sequence releases its items while it is an entry: with async scheduling a batch later than joining.
        return ((self.encoder is None or not self.encoder.holds(entry.row))
                and MultiTokenScheduler._may_join(self, entry))

    cdef void pass_items(self, const Sequence* sequence, int32_t unsettled, bint has_ended) noexcept nogil:
        if has_ended:
            self.encoder.let_go(sequence.row)
        else:
            self.encoder.pass_by(sequence.row, <int64_t>sequence.num_computed - unsettled)
