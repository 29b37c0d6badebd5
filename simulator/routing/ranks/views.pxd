"""Views of the ranks of replicas for two routers in a row: of groups of ranks, and of the ranks of one group."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.domain.replica_state cimport ReplicaAccount, ReplicaState
from simulator.signals.view cimport View


@cython.final
cdef class Groups(View):
    cdef View _ranks                    # of all ranks
    cdef int32_t* _begins               # [group, and one more] its first rank
    cdef int32_t* _group_of             # [rank]
    cdef int8_t* _is_outdated           # [group]
    cdef int32_t* _outdated             # [_num_outdated] groups
    cdef int32_t _num_outdated
    cdef ReplicaAccount* _promised      # [group] requests that are promised to it, and in no account of a rank

    # A rank changed; recount: so did its account, and that of its group is exact at once.
    cdef void note(self, int32_t rank) noexcept nogil
    cdef void recount(self, int32_t rank) noexcept nogil

    # Add a request that is promised to a group to its account, or take it out: `sign` is 1 or -1.
    cdef void promise(self, int32_t group, int32_t sign, int64_t tokens, int64_t expected_tokens) noexcept nogil

    cdef inline int32_t group_of(self, int32_t rank) noexcept nogil:
        return self._group_of[rank]

    cdef inline int32_t begin_of(self, int32_t group) noexcept nogil:
        return self._begins[group]

    # Ranks of a group that may be routed to.
    cdef int32_t num_routable(self, int32_t group) noexcept nogil

    # Add up for a group the reports and the accounts of its ranks.
    cdef void add_up(self, int32_t group) noexcept nogil
    cdef void _date_states(self) noexcept nogil
    # Given blocks in tiers of each rank, [medium x rank], return for each group those of its rank with the most.
    cdef const int32_t* _most_of_groups(self, const int32_t* found) except NULL nogil
    cdef void _add_states(self, int32_t group, ReplicaState* total) noexcept nogil
    cdef void _add_accounts(self, int32_t group, ReplicaAccount* total) noexcept nogil


@cython.final
cdef class Members(View):
    cdef View _ranks                    # of all ranks, states alone
    cdef list _siblings                 # Members of each group
    cdef void** _of_rank                # [rank] Members, borrowed; owned by the first Members
    cdef int32_t _first                 # rank
    cdef object _owners                 # owners of borrowed memory
