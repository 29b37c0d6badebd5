"""Two routers in a row: one chooses a group of ranks, another one a rank of the group."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from simulator.routing.base cimport Router
from simulator.routing.door cimport ask_any
from simulator.routing.ranks.base cimport RankRouter
from simulator.routing.ranks.views cimport Groups, Members
from simulator.signals.queue_limits cimport QueueLimits

from msgspec.structs import replace


@cython.final
cdef class TwoRouters(RankRouter):
    """Any router before routers over ranks.

    parameters : (sizes of the groups; class and parameters of the router over them; of routers over ranks of a group;
        View for the latter, as old as the ranks' reports to them).
    context : RoutingContext; its view shows all ranks as the first router sees them.
    """

    cdef readonly Groups groups
    cdef readonly Router first
    cdef readonly list seconds              # Router of each group
    cdef list _members
    cdef void** _seconds                    # [group] `seconds`, borrowed
    cdef void** _views                      # [group] Members, borrowed
    cdef list _limits                       # QueueLimits of each group, or None; None: no group has any
    cdef void** _doors                      # [group] `_limits`, borrowed; NULL: no group has any
    cdef int32_t _refused                   # row that the API server of its group refuses: it has no rank; -1: none

    def __init__(self, parameters, context):
        sizes, (first, first_parameters), (second, second_parameters), reports = parameters
        self.groups = Groups(len(sizes), context.view, sizes)
        self.first = first(first_parameters, replace(context, view=self.groups))
        self.groups.pass_on_wants()
        self._members, begin = [], 0
        for size in sizes:
            Members(size, reports, context.view, begin, self._members)
            begin += size
        self.seconds = [second(second_parameters, replace(context, view=members)) for members in self._members]
        self._seconds = <void**>calloc(len(sizes), sizeof(void*))
        self._views = <void**>calloc(len(sizes), sizeof(void*))
        if self._seconds == NULL or self._views == NULL:
            raise MemoryError()
        for i, members in enumerate(self._members):
            members.pass_on_wants()
            self._seconds[<int32_t>i], self._views[<int32_t>i] = <void*>self.seconds[i], <void*>members
        self.reads_state, self._refused = True, -1

    @property
    def counts_promised(self):
        """See Router; the router over groups says it."""
        return self.first.counts_promised

    def heed(self, limits):
        """Choose no rank for requests that the API server of a group refuses.

        limits : QueueLimits of each group, or None.
        """
        self._limits = list(limits)
        self._doors = <void**>calloc(len(self._limits), sizeof(void*))
        if self._doors == NULL:
            raise MemoryError()
        for i, each in enumerate(self._limits):
            self._doors[<int32_t>i] = NULL if each is None else <void*>each

    def __dealloc__(self):
        free(self._seconds)
        free(self._views)
        free(self._doors)

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef int32_t group = ask_any(self.first, row, now_ns)
        if group < 0:
            return -1
        if self._is_full(group):
            self._refused = row
            return self.groups.begin_of(group)
        return self.choose_rank(row, self.groups.begin_of(group), now_ns)

    cdef int32_t choose_rank(self, int32_t row, int32_t replica, int64_t now_ns) except -2 nogil:
        cdef int32_t group = self.groups.group_of(replica)
        cdef int32_t rank = ask_any(<Router>self._seconds[group], row, now_ns)
        return self.groups.begin_of(group) + rank if rank >= 0 else -1

    cdef int promise(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef int32_t group = self.groups.group_of(replica)
        self.groups.promise(group, 1, self.requests[row].prompt_tokens, max(self.demands[row].expected_tokens, 0))
        return self.first.sent(row, group, now_ns)

    cdef int redeem(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef int32_t group = self.groups.group_of(replica)
        self.groups.promise(group, -1, self.requests[row].prompt_tokens, max(self.demands[row].expected_tokens, 0))
        return self.first.left(row, group, now_ns)

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef int32_t group = self.groups.group_of(replica), rank = self._note(group, replica)
        self.first.sent(row, group, now_ns)
        if row == self._refused:
            self._refused = -1
            return 0
        return (<Router>self._seconds[group]).sent(row, rank, now_ns)

    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef int32_t group = self.groups.group_of(replica), rank = self._note(group, replica)
        self.first.left(row, group, now_ns)
        return (<Router>self._seconds[group]).left(row, rank, now_ns)

    cdef int moved(self, int32_t row, int32_t before, int32_t after, int64_t now_ns) except -1 nogil:
        cdef int32_t source = self.groups.group_of(before), destination = self.groups.group_of(after)
        cdef int32_t from_rank = self._note(source, before), to_rank = self._note(destination, after)
        if source == destination:
            return (<Router>self._seconds[source]).moved(row, from_rank, to_rank, now_ns)
        self.first.moved(row, source, destination, now_ns)
        (<Router>self._seconds[source]).left(row, from_rank, now_ns)
        return (<Router>self._seconds[destination]).sent(row, to_rank, now_ns)

    cdef int opened(self, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef int32_t group = self.groups.group_of(replica), rank = self._note(group, replica)
        if self.groups.num_routable(group) == 1:
            self.groups.add_up(group)
            self.first.opened(group, now_ns)
        return (<Router>self._seconds[group]).opened(rank, now_ns)

    cdef int closed(self, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef int32_t group = self.groups.group_of(replica), rank = self._note(group, replica)
        if self.groups.num_routable(group) == 0:
            self.groups.add_up(group)
            self.first.closed(group, now_ns)
        return (<Router>self._seconds[group]).closed(rank, now_ns)

    cdef inline bint _is_full(self, int32_t group) noexcept nogil:
        return self._doors != NULL and self._doors[group] != NULL and not (<QueueLimits>self._doors[group]).admits()

    cdef inline int32_t _note(self, int32_t group, int32_t replica) noexcept nogil:
        """Note that the account of a rank has changed; return its number in the group."""
        cdef int32_t rank = replica - self.groups.begin_of(group)
        self.groups.recount(replica)
        (<Members>self._views[group]).mark(rank)
        return rank
