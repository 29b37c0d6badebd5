"""Uses of chunks, as requests of a tier report them to its eviction policy."""
from simulator.kv.tiers.eviction cimport INSERTED, SEEN


cdef int32_t mark_of(LruByRequest policy, User* user) except -1 nogil:
    if user.mark == 0:
        user.mark = policy.open()
    return user.mark


cdef int rank_uses(LruByRequest policy, User* user, Part* part, int32_t begin, int32_t end, int64_t first,
                   int64_t step) except -1 nogil:
    cdef int32_t mark, i
    for i in range(begin, end):
        if part.uses[i] & (SEEN | RANKED) == SEEN:
            part.uses[i] |= RANKED
            mark = mark_of(policy, user)
            if policy.table.holds(part.elements[i]):
                policy.used(mark, part.elements[i], first + i * step)
    return 0


cdef int32_t cut_out(ChunkTable table, LruByRequest policy, int32_t row, int32_t begin, int32_t end) except 0 nogil:
    cdef int32_t element = table.run_at(row, begin)
    table.prepare(2)
    if table.chunks[element].begin < begin:
        element = _cut(table, policy, element, begin)
    if table.chunks[element].end > end:
        _cut(table, policy, element, end)
    return element


cdef int32_t _cut(ChunkTable table, LruByRequest policy, int32_t element, int32_t place) except 0 nogil:
    cdef int32_t other = table.cut(element, place)
    if policy is not None:
        policy.was_cut(element, other)
    return other


cdef void close_runs(EvictionPolicy policy, int32_t row, Content content) noexcept nogil:
    cdef int32_t first = policy.table.first_run(row)
    if first != 0 and policy.table.chunks[first].sibling == 0:
        policy.closed(first, SEEN | INSERTED)
    elif first != 0:
        _close_several(policy, policy.table, first)
    if first != 0 and content.has_left(row):
        policy.table.forget_row(row)


cdef void _close_several(EvictionPolicy policy, ChunkTable table, int32_t first) noexcept nogil:
    cdef int32_t element, last = -1, before
    while True:
        before, element = 0, first
        while element != 0:                         # the last run before `last`
            if (last < 0 or table.chunks[element].begin < last) and (
                    before == 0 or table.chunks[element].begin > table.chunks[before].begin):
                before = element
            element = table.chunks[element].sibling
        if before == 0:
            break
        last = table.chunks[before].begin
        policy.closed(before, SEEN | INSERTED)
