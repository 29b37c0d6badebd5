"""Schedulers that go by the tokens which accounts of requests have had generated; see metered.pyx."""
from libc.stdint cimport int32_t, int64_t

from simulator.scheduling.ranked cimport Ranked


cdef struct Account:            # all zero at first
    int64_t tokens              # generated so far, without what members have since they joined
    int64_t offsets             # sum over members of the tokens that they have generated, less the iteration's number
    int32_t num_members


cdef class Metered(Ranked):
    # The account of a request: the policy's to answer, and to keep.
    cdef Account* _account(self, int32_t row) noexcept nogil

    # Tokens that were generated for an account here; between iterations.
    cdef int64_t _metered(self, const Account* account) noexcept nogil
