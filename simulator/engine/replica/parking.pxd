"""Sequences that own KV without running: on the way from a replica, or to it.

These functions act on one scheduler and know nothing of other replicas. A parked sequence is in no batch that is
formed.
"""
from libc.stdint cimport int32_t, int64_t

from simulator.scheduling.base cimport Scheduler, Sequence


# Reserve blocks for the first `num_computed` tokens of a text of `num_tokens` that will come from elsewhere, those
# found in the prefix cache among them; the slot, or -1 where there is no room, and nothing changed.
cdef int32_t reserve(Scheduler scheduler, int32_t row, int64_t num_tokens, int64_t num_computed) except -2 nogil

# The same for a text that has grown; False where there is no room.
cdef bint extend(Scheduler scheduler, int32_t slot, int64_t num_tokens, int64_t num_computed) except -1 nogil

# The KV has come: the sequence goes on like the one that was parked elsewhere, as soon as max_running allows.
cdef int receive(Scheduler scheduler, int32_t slot, const Sequence* sequence) except -1 nogil

# It does not come: what was reserved is free.
cdef int cancel(Scheduler scheduler, int32_t slot) except -1 nogil

# Take a sequence off the running list, WAITING from now on; it keeps its blocks. Between iterations only, where there
# are members. Tokens in flight stay in flight, see Scheduler.stale_tokens.
cdef int park(Scheduler scheduler, int32_t slot) except -1 nogil

# All tokens in flight of a parked sequence are back: take them in.
cdef void take_in(Scheduler scheduler, int32_t slot) noexcept nogil

# A parked sequence has left: free what it holds. Or it stays, and will run again.
cdef int release(Scheduler scheduler, int32_t slot) except -1 nogil
cdef void unpark(Scheduler scheduler, int32_t slot) noexcept nogil

# The slot of a request that has arrived and does not run yet, -1: it did not; it is parked again.
cdef int32_t arrived_slot(Scheduler scheduler, int32_t row) noexcept nogil
cdef void repark(Scheduler scheduler, int32_t slot) noexcept nogil

# Let those that have arrived run, as far as max_running allows.
cdef void run_arrived(Scheduler scheduler) noexcept nogil
