"""Schedulers that rank by the tokens generated per account of requests; see metered.pyx."""
from libc.stdint cimport int32_t, int64_t

from simulator.scheduling.ranked cimport Ranked


cdef struct Account:            # all zero at first
    int64_t tokens              # generated so far; of members, those before they joined
    int64_t offsets             # sum over members of tokens generated less the iteration's number
    int32_t num_members


cdef class Metered(Ranked):
    # The account of a request, kept by the policy, which overrides this.
    cdef Account* _account(self, int32_t row) noexcept nogil

    # Tokens generated for an account on this replica; valid between iterations.
    cdef int64_t _metered(self, const Account* account) noexcept nogil
