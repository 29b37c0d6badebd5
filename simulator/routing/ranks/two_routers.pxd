"""Two routers in a row: one chooses a group of ranks, another one a rank of the group."""
from libc.stdint cimport int32_t
cimport cython

from simulator.routing.base cimport Router
from simulator.routing.ranks.base cimport RankRouter
from simulator.routing.ranks.views cimport Groups


@cython.final
cdef class TwoRouters(RankRouter):
    cdef readonly Groups groups
    cdef readonly Router first
    cdef readonly list seconds              # Router of each group
    cdef list _members
    cdef void** _seconds                    # [group] `seconds`, borrowed
    cdef void** _views                      # [group] Members, borrowed
    cdef list _limits                       # QueueLimits of each group, or None; None: no group has any
    cdef void** _doors                      # [group] `_limits`, borrowed; NULL: no group has any
    cdef int32_t _refused                   # row that the API server of its group refuses: it has no rank; -1: none

    cdef bint _is_full(self, int32_t group) noexcept nogil
    cdef int32_t _note(self, int32_t group, int32_t replica) noexcept nogil
