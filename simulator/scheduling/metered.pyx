"""Base of policies that rank by the tokens generated per account of requests, such as tenants.

Members gain a token in each iteration in which they are scheduled, without being visited: an account keeps the tokens
that its members had when they joined, less the number of the iteration, as `Scheduler` keeps their tokens in KV.
"""
from simulator.domain.iteration cimport Entry
from simulator.scheduling.base cimport Sequence


cdef class Metered(Ranked):
    """Base of policies that count tokens by account; see metered.pxd."""

    cdef Account* _account(self, int32_t row) noexcept nogil:
        return NULL

    cdef int64_t _metered(self, const Account* account) noexcept nogil:
        return account.tokens + account.offsets + account.num_members * self.iteration

    cdef int update(self, const Entry* entry, int32_t sampled, int32_t rejected, bint goes_on) except -1 nogil:
        self._account(entry.row).tokens += sampled
        return Ranked.update(self, entry, sampled, rejected, goes_on)

    cdef int join(self, int32_t slot) except -1 nogil:
        cdef const Sequence* sequence = &self._sequences[slot]
        cdef Account* account = self._account(sequence.row)
        Ranked.join(self, slot)
        account.num_members += 1
        account.offsets += sequence.offset + 1 - sequence.prompt_tokens
        account.tokens -= <int64_t>sequence.num_computed + 1 - sequence.prompt_tokens
        return 0

    cdef void leave(self, int32_t slot) noexcept nogil:
        cdef const Sequence* sequence = &self._sequences[slot]
        cdef Account* account = self._account(sequence.row)
        account.num_members -= 1
        account.offsets -= sequence.offset + 1 - sequence.prompt_tokens
        account.tokens += self.outputs(slot)
        Ranked.leave(self, slot)

    cdef int starve(self, int32_t slot) except -1 nogil:
        self._account(self._sequences[slot].row).offsets -= 1
        return Ranked.starve(self, slot)
