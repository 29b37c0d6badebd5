"""Tokens of group members."""
from simulator.core.errors cimport broken
from simulator.core.row_list cimport has_row
from simulator.scheduling.base cimport Sequence


cdef int count_tokens(Lateness* it, Scheduler scheduler, Recorder recorder, Delivery delivery, const Batch* batch,
                      int64_t gap_ns, const RowList* leaving) except -1 nogil:
    cdef int32_t usual = batch.num_members, i
    cdef Sequence* sequence
    gap_ns += it.stood_ns
    if batch.num_starved > 0 or (leaving != NULL and leaving.size > 0):
        usual = visit_members(it, scheduler, recorder, delivery, batch, gap_ns, leaving)
    else:
        if recorder.wants_tokens:
            write_tokens(scheduler, recorder, delivery, &batch.end_ns, 1, 0)
        for i in range(it.late.size):
            sequence = scheduler.sequence(it.late.rows[i])
            if sequence.is_member and sequence.late_ns != 0:
                recorder.gaps.add(gap_ns + sequence.late_ns, 1)
                sequence.late_ns = 0
                usual -= 1
        it.late.size = 0
    if usual > 0:
        recorder.gaps.add(gap_ns, usual)
    it.stood_ns = 0
    return 0


cdef int check_late(const Lateness* it, Scheduler scheduler) except -1 nogil:
    cdef int32_t slot = scheduler.first_running()
    cdef const Sequence* sequence
    while slot >= 0:
        sequence = scheduler.sequence(slot)
        if sequence.is_member and it.stood_ns + sequence.late_ns < 0:
            return broken("Lateness: a member has had a token that is still to come")
        if sequence.is_member and sequence.late_ns != 0 and not has_row(&it.late, slot):
            return broken("Lateness: a member is late and not listed")
        slot = scheduler.next_running(slot)
    return 0


cdef int32_t visit_members(Lateness* it, Scheduler scheduler, Recorder recorder, Delivery delivery, const Batch* batch,
                           int64_t gap_ns, const RowList* leaving) except -1 nogil:
    """Count tokens one by one, as some leave or have no turn; return how many have the gap and are not counted yet."""
    cdef int32_t slot = scheduler.first_running(), usual = batch.num_members
    cdef bint leaves
    cdef Sequence* sequence
    it.late.size = 0
    while slot >= 0:
        sequence = scheduler.sequence(slot)
        leaves = leaving != NULL and has_row(leaving, sequence.row)
        if sequence.group != scheduler.group or not sequence.is_member:
            pass
        elif not sequence.is_starved and sequence.num_placeholders == 0:
            if leaves:
                usual -= 1
            else:
                if sequence.late_ns != 0:
                    recorder.gaps.add(gap_ns + sequence.late_ns, 1)
                    usual -= 1
                if recorder.wants_tokens:
                    recorder.token(sequence.row, delivery.observed_ns(batch.end_ns, scheduler.outputs(slot) + 1), 1)
            sequence.late_ns = 0
        else:
            sequence.is_starved = leaves                # it has had all its tokens, for the code that removes it
            sequence.late_ns += it.stood_ns if sequence.num_placeholders == 0 else 0
            if sequence.late_ns != 0:
                add_row(&it.late, slot)
        slot = scheduler.next_running(slot)
    return usual


cdef int write_tokens(Scheduler scheduler, Recorder recorder, Delivery delivery, const int64_t* ends_ns, int32_t count,
                      int32_t ahead) except -1 nogil:
    cdef int32_t slot = scheduler.first_running(), i
    cdef int64_t gap_ns = delivery.gap_ns
    cdef const Sequence* sequence
    while slot >= 0:
        sequence = scheduler.sequence(slot)
        if sequence.group != scheduler.group or sequence.num_placeholders > 0:
            pass                                    # the batch brings it none, or as an entry
        elif sequence.is_member and gap_ns == 0:
            recorder.tokens_of(sequence.row, ends_ns, count, delivery.output_ns)
        elif sequence.is_member:
            for i in range(count):
                recorder.token(sequence.row, delivery.observed_ns(
                    ends_ns[i], scheduler.outputs(slot) + ahead + i + 1), 1)
        slot = scheduler.next_running(slot)
    return 0
