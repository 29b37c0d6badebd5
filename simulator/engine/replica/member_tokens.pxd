"""Tokens of group members: gaps between tokens, and their times if these are recorded.

Most members had their last token together, in the last iteration with the group. A Lateness lists the exceptions, so
that an iteration costs nothing for the other members, and an iteration without the group nothing at all.
"""
from libc.stdint cimport int32_t, int64_t

from simulator.core.row_list cimport RowList, add_row
from simulator.domain.iteration cimport Batch
from simulator.engine.output.recorder cimport Recorder
from simulator.engine.replica.delivery cimport Delivery
from simulator.scheduling.base cimport Scheduler


cdef struct Lateness:           # for a scheduler's members; all zero at first; its owner frees `late.rows`
    int64_t stood_ns            # time without the group since its last token, in ended iterations; a member's
                                # time is longer by its late_ns, which may be negative
    RowList late                # slots with late_ns != 0, and some that are no members any more


# Return whether some member is late; otherwise all had their last token together.
cdef inline bint is_late(const Lateness* it) noexcept nogil:
    return (it.late.size | it.stood_ns) != 0

# A member is skipped for `by_ns`, while others are scheduled.
cdef inline int put_off_token(Lateness* it, Scheduler scheduler, int32_t slot, int64_t by_ns) except -1 nogil:
    if scheduler.sequence(slot).late_ns == 0:
        add_row(&it.late, slot)
    scheduler.sequence(slot).late_ns += by_ns
    return 0

# A sequence, which became a member just now or when its batch was formed, has had a token of its own.
cdef inline int note_joined(Lateness* it, Scheduler scheduler, int32_t slot) except -1 nogil:
    return put_off_token(it, scheduler, slot, -it.stood_ns) if it.stood_ns > 0 else 0

# Forget all members.
cdef inline void forget_late(Lateness* it) noexcept nogil:
    it.stood_ns = it.late.size = 0

# Raise RuntimeError unless all members with a last token other than the group's are listed, and none is ahead of time.
cdef int check_late(const Lateness* it, Scheduler scheduler) except -1 nogil

# Count a token, and the gap before it, for each member with a turn in a batch that ends; `gap_ns` is the gap of a
# member with a token in the batch before. Requests in `leaving` get no token; NULL: none leaves.
cdef int count_tokens(Lateness* it, Scheduler scheduler, Recorder recorder, Delivery delivery, const Batch* batch,
                      int64_t gap_ns, const RowList* leaving) except -1 nogil

# Record a token of each member, none late, for each of the `count` iterations that end at `ends_ns`; `ahead` precede.
cdef int write_tokens(Scheduler scheduler, Recorder recorder, Delivery delivery, const int64_t* ends_ns, int32_t count,
                      int32_t ahead) except -1 nogil
