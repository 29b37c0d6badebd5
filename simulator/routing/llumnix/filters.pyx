"""Llumnix's filters: the candidates that may be chosen at all, and those that adaptive P/D reserves.

Source: llumnix-project/llumnix at 8a693b4, filters.go, and cms_read_client.go:setReservedInstance for reservations.
"""
from simulator.domain.replica_state cimport DECODE, PREFILL
from simulator.routing.llumnix.candidates cimport NOT_RESERVED, Candidate
from simulator.routing.llumnix.metrics cimport ALL_PREFILLS_TOKENS_NUM, DECODE_BATCH_SIZE, is_less, metric_value

from simulator.routing.llumnix.composition import FAILOVER_DOMAINS, FILTER_NAMES, INFER_TYPES, metric_code


cdef bint rejects(Candidates candidates, const Filter* one, int32_t i) noexcept nogil:
    cdef Candidate* c = &candidates.items[i]
    cdef bint is_out = False
    if one.kind == SCHEDULABILITY:
        is_out = not c.is_schedulable
        c.needs_failover |= is_out
    elif one.kind == STALENESS:
        is_out = candidates.age_ms(i) // 1000 > one.staleness_s
        c.needs_failover |= is_out
    elif one.kind == METRIC:
        is_out = not is_less(one.metric, candidates.metric(one.metric, i), one.threshold)
    elif one.kind == INFER_TYPE:
        is_out = c.infer_type != one.infer_type
    elif one.kind == RESERVED:
        is_out = c.reserved == one.infer_type
    return is_out != one.is_inverted


cdef void flag_nodes(Candidates candidates, const int32_t* members, int32_t num_members) noexcept nogil:
    """Flag all members on the nodes of marked members; a marked member without a known node flags none."""
    cdef int32_t k, j, node
    for k in range(num_members):
        candidates.flags[members[k]] = 0
    for k in range(num_members):
        node = candidates.items[members[k]].node
        if not candidates.items[members[k]].needs_failover or candidates.flags[members[k]] or node < 0:
            continue
        for j in range(num_members):
            if candidates.items[members[j]].node == node:
                candidates.flags[members[j]] = 1


cdef void flag_units(Candidates candidates, const int32_t* members, int32_t num_members) noexcept nogil:
    """Flag all that share a unit with one that is flagged; to have no unit is to be in a unit too."""
    cdef int32_t k, j, unit
    for k in range(num_members):
        if candidates.flags[members[k]] != 1:
            continue
        unit = candidates.items[members[k]].unit
        for j in range(num_members):
            if candidates.items[members[j]].unit == unit:
                candidates.flags[members[j]] = 2        # and need not be looked at again
    for k in range(num_members):
        candidates.flags[members[k]] = candidates.flags[members[k]] != 0


cdef void flag_failover(Candidates candidates, int8_t domain, const int32_t* members,
                        int32_t num_members) noexcept nogil:
    """Flag the failover domains of the marked members."""
    cdef int32_t k
    for k in range(num_members):
        candidates.flags[members[k]] = candidates.items[members[k]].needs_failover
    if domain == DOMAIN_NODE or domain == DOMAIN_NODE_UNIT:
        flag_nodes(candidates, members, num_members)
    # Upstream checks an arbitrary instance for data parallelism.
    if (domain == DOMAIN_INSTANCE_UNIT or domain == DOMAIN_NODE_UNIT) and (
            candidates.items[members[0]].data_parallel_size > 1):
        flag_units(candidates, members, num_members)


cdef void mark_unhealthy(Candidates candidates, int64_t staleness_s, const int32_t* members,
                         int32_t num_members) noexcept nogil:
    cdef int32_t k
    for k in range(num_members):
        candidates.items[members[k]].needs_failover |= (
            not candidates.items[members[k]].is_schedulable or candidates.age_ms(members[k]) // 1000 > staleness_s)


cdef int32_t drop_domains(Candidates candidates, const Filter* one, const int32_t* members, int32_t num_members,
                          int32_t* kept, int32_t num_kept) noexcept nogil:
    """Keep the members of `kept` outside the failed domains, or, of migration sources, inside."""
    cdef bint keeps_inside = (one.kind == FAILOVER_MIGRATION_SOURCE) != one.is_inverted
    cdef int32_t k, left = 0
    if one.kind == FAILOVER_MIGRATION_SOURCE:
        mark_unhealthy(candidates, one.staleness_s, members, num_members)
    flag_failover(candidates, one.domain, members, num_members)
    for k in range(num_kept):
        if candidates.flags[kept[k]] == keeps_inside:
            kept[left] = kept[k]
            left += 1
    return left


cdef bint passes(Candidates candidates, const FilterChain* chain, bint is_fallback, int32_t i) noexcept nogil:
    cdef int32_t f
    cdef const Filter* one
    cdef bint is_in = True
    for f in range(chain.count):
        one = &chain.items[f]
        if one.kind < FAILOVER and not (is_fallback and one.skips_fallback) and rejects(candidates, one, i):
            is_in = False
    return is_in


cdef int32_t apply_filters(Candidates candidates, const FilterChain* chain, const int32_t* members,
                           int32_t num_members, bint is_fallback, int32_t* kept) noexcept nogil:
    cdef int32_t f, k, left = 0
    cdef bint is_any_marked = False
    for k in range(num_members):
        kept[left] = members[k]
        left += passes(candidates, chain, is_fallback, members[k])
        is_any_marked |= candidates.items[members[k]].needs_failover
    for f in range(chain.count):
        if chain.items[f].kind == FAILOVER_MIGRATION_SOURCE or (
                chain.items[f].kind == FAILOVER and (is_any_marked or chain.items[f].is_inverted)):
            left = drop_domains(candidates, &chain.items[f], members, num_members, kept, left)
    return left


cdef int fill_chain(FilterChain* chain, object specs, bint is_lite) except -1:
    cdef Filter* one
    if len(specs) > MAX_FILTERS:
        raise ValueError(f"at most {MAX_FILTERS} filters, found {len(specs)}")
    chain.count = <int32_t>len(specs)
    for i, spec in enumerate(specs):
        one = &chain.items[<int32_t>i]
        one.kind = FILTER_NAMES.index(spec.name)
        one.is_inverted = spec.invert
        one.skips_fallback = one.kind == METRIC and spec.skip_in_fallback
        one.infer_type = INFER_TYPES.index(spec.infer_type) if spec.infer_type else 0
        one.domain = FAILOVER_DOMAINS.index(spec.failover_domain) if spec.failover_domain else 0
        one.metric = metric_code(spec.metric, is_lite) if spec.metric else 0
        one.threshold = spec.threshold if spec.threshold is not None else 0
        one.staleness_s = spec.instance_staleness_s if spec.instance_staleness_s is not None else 0
    return 0


# ---- reservations

cdef bint is_reserved(Candidates candidates, int8_t infer_type) noexcept nogil:
    cdef int32_t i
    cdef bint found = False
    for i in range(candidates.count):
        if candidates.items[i].reserved == infer_type:
            if candidates.items[i].is_schedulable:
                found = True
            else:
                candidates.items[i].reserved = NOT_RESERVED
    return found


cdef void elect(Candidates candidates, int8_t infer_type, int32_t other_work, int32_t own_work) noexcept nogil:
    """Reserve the first that has none of the other work, else the one that has least of its own."""
    cdef int32_t i, chosen = -1
    cdef float value, least = 0
    for i in range(candidates.count):
        if candidates.items[i].reserved != NOT_RESERVED or not candidates.items[i].is_schedulable:
            continue
        if metric_value(candidates, other_work, i, 0) == 0:
            chosen = i
            break
        value = metric_value(candidates, own_work, i, 0)
        if chosen < 0 or value < least:
            chosen, least = i, value
    if chosen >= 0:
        candidates.items[chosen].reserved = infer_type


cdef void reserve(Candidates candidates) noexcept nogil:
    if not is_reserved(candidates, DECODE):
        elect(candidates, DECODE, ALL_PREFILLS_TOKENS_NUM, DECODE_BATCH_SIZE)
    if not is_reserved(candidates, PREFILL):
        elect(candidates, PREFILL, DECODE_BATCH_SIZE, ALL_PREFILLS_TOKENS_NUM)
