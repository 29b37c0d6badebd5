"""Tokens of members reach their clients: gaps between tokens, and when each came if somebody wants to know.

Most members had their last token together, with the last iteration in which the group had one. A Lateness says who did
not, so that an iteration costs nothing for the others, nor one in which the group stands still.
"""
from libc.stdint cimport int32_t, int64_t

from simulator.core.row_list cimport RowList, add_row
from simulator.domain.iteration cimport Batch
from simulator.engine.output.recorder cimport Recorder
from simulator.engine.replica.delivery cimport Delivery
from simulator.scheduling.base cimport Scheduler


cdef struct Lateness:           # of a scheduler's members; all zero at first, whoever has it frees `late.rows`
    int64_t stood_ns            # time since the last token of the group that it stood still, in iterations that have
                                # ended; a member's is by its late_ns longer, or shorter where that is negative
    RowList late                # slots of those with late_ns != 0, and of some who are no members any more


# Is somebody late? They all had their last token together otherwise.
cdef inline bint is_late(const Lateness* it) noexcept nogil:
    return (it.late.size | it.stood_ns) != 0

# A member has no turn for so long, though others have.
cdef inline int put_off_token(Lateness* it, Scheduler scheduler, int32_t slot, int64_t by_ns) except -1 nogil:
    if scheduler.sequence(slot).late_ns == 0:
        add_row(&it.late, slot)
    scheduler.sequence(slot).late_ns += by_ns
    return 0

# A member, which has just become one or did when its batch was formed, has had a token of its own.
cdef inline int note_joined(Lateness* it, Scheduler scheduler, int32_t slot) except -1 nogil:
    return put_off_token(it, scheduler, slot, -it.stood_ns) if it.stood_ns > 0 else 0

# Nobody is a member any more.
cdef inline void forget_late(Lateness* it) noexcept nogil:
    it.stood_ns = it.late.size = 0

# Raise RuntimeError unless all members whose last token was not that of the group are listed, and none ahead of time.
cdef int check_late(const Lateness* it, Scheduler scheduler) except -1 nogil

# Count a token, and the gap before it, for each member with a turn in a batch that ends; `gap_ns` is that of who had a
# token with the batch before. Those of `leaving` get none; NULL: nobody leaves.
cdef int count_tokens(Lateness* it, Scheduler scheduler, Recorder recorder, Delivery delivery, const Batch* batch,
                      int64_t gap_ns, const RowList* leaving) except -1 nogil

# Write down a token of each member, none late, for each of `count` iterations that end then; `ahead` are before.
cdef int write_tokens(Scheduler scheduler, Recorder recorder, Delivery delivery, const int64_t* ends_ns, int32_t count,
                      int32_t ahead) except -1 nogil
