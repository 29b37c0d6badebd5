"""Llumnix's filters: the candidates that may be chosen at all, and those that adaptive P/D reserves."""
from libc.stdint cimport int8_t, int32_t, int64_t

from simulator.routing.llumnix.candidates cimport Candidates


cdef enum FilterKind:               # FILTER_NAMES in composition.py follows this order
    SCHEDULABILITY                  # rejects replicas that take no requests; marks them for failover
    STALENESS                       # rejects statuses more than some whole seconds old; marks them for failover
    METRIC                          # keeps values that are strictly better than a threshold
    INFER_TYPE                      # keeps one infer type
    RESERVED                        # rejects replicas that adaptive P/D reserves for an infer type
    FAILOVER                        # rejects the failover domains of all marked members
    FAILOVER_MIGRATION_SOURCE       # passes only these domains


cdef enum FailoverDomain:           # FAILOVER_DOMAINS in composition.py follows this order
    DOMAIN_INSTANCE
    DOMAIN_NODE
    DOMAIN_INSTANCE_UNIT
    DOMAIN_NODE_UNIT


cdef enum:
    MAX_FILTERS = 16                # of one chain


cdef struct Filter:
    int8_t kind                     # FilterKind
    int8_t is_inverted              # pass exactly the replicas that it would reject
    int8_t skips_fallback           # skipped in the second pass, when the first has passed none
    int8_t infer_type               # of INFER_TYPE and RESERVED
    int8_t domain                   # of FAILOVER and FAILOVER_MIGRATION_SOURCE
    int32_t metric                  # of METRIC
    float threshold
    int64_t staleness_s             # of STALENESS and FAILOVER_MIGRATION_SOURCE


cdef struct FilterChain:
    Filter items[MAX_FILTERS]
    int32_t count


# Does this filter, which judges a candidate by itself, reject it? Marks a candidate that needs failover.
cdef bint rejects(Candidates candidates, const Filter* one, int32_t i) noexcept nogil

# Apply all filters that judge a candidate by itself, even after one has rejected it.
cdef bint passes(Candidates candidates, const FilterChain* chain, bint is_fallback, int32_t i) noexcept nogil

# Write those of `members` that pass all filters to `kept`, in their order, and return how many.
# Every filter sees every member, since marks count; filters that reject whole domains see all members.
cdef int32_t apply_filters(Candidates candidates, const FilterChain* chain, const int32_t* members,
                           int32_t num_members, bint is_fallback, int32_t* kept) noexcept nogil

# Take a chain from a list of FilterSpec.
cdef int fill_chain(FilterChain* chain, object specs, bint is_lite) except -1


# Reserve one for each where none is. A reservation lasts as long as its candidate takes requests.
cdef void reserve(Candidates candidates) noexcept nogil
