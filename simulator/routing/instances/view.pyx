"""The view of one instance of a gateway: shared reports of replicas, and an account of its own."""
from libc.stdint cimport int8_t
from libc.stdlib cimport calloc, free
cimport cython

WANTS = ("wants_counts", "wants_blocks", "wants_levels", "wants_times", "wants_caches", "wants_tiers",
         "wants_adapters")


@cython.final
cdef class InstanceView(View):
    """The view of one instance.

    num_replicas : of `shared`.
    shared : View of the gateway, which has the replicas' reports.
    siblings : list of the views of all instances, which this one joins.
    """

    def __init__(self, num_replicas, View shared, siblings):
        self._shared, self._siblings = shared, siblings
        self.account_array[:] = shared.account_array
        self.states, self.state_array = shared.states, shared.state_array
        self.knows_adapters = shared.knows_adapters
        self._num_barred = <int32_t*>calloc(max(num_replicas, 1), sizeof(int32_t))
        if self._num_barred == NULL:
            raise MemoryError()
        siblings.append(self)
        self._next = <void*>(<InstanceView>siblings[0])
        if len(siblings) > 1:
            (<InstanceView>siblings[len(siblings) - 2])._next = <void*>self

    def __dealloc__(self):
        free(self._num_barred)

    def pass_on_wants(self):
        """Request from the shared view the fields that are requested of this one."""
        for name in WANTS:
            setattr(self._shared, name, getattr(self._shared, name) or getattr(self, name))

    cdef int look(self, int64_t now_ns) except -1 nogil:
        self._shared.look(now_ns)
        if self._shared.num_changed > 0:
            self._tell_siblings()
        self.looked_ns, self.has_tiers = self._shared.looked_ns, self._shared.has_tiers
        return 0

    cdef void _tell_siblings(self) noexcept nogil:
        cdef void* view = self._next
        cdef int32_t i
        for i in range(self._shared.num_changed):
            self.mark(self._shared.changed[i])
        while view != <void*>self:
            for i in range(self._shared.num_changed):
                (<InstanceView>view).mark(self._shared.changed[i])
            view = (<InstanceView>view)._next
        self._shared.forget_changes()

    cdef bint refresh(self, int32_t replica) noexcept nogil:
        cdef bint was_routable = self.accounts[replica].is_routable
        self.accounts[replica].is_routable = (
            self._shared.accounts[replica].is_routable and self._num_barred[replica] == 0)
        self.accounts[replica].up_since_ns = self._shared.accounts[replica].up_since_ns
        self.mark(replica)
        return self.accounts[replica].is_routable != was_routable

    cdef bint bar(self, int32_t replica, int32_t change) noexcept nogil:
        self._num_barred[replica] += change
        return self.refresh(replica)

    cdef int32_t cached_blocks(self, int32_t replica, int32_t row, int64_t now_ns) except -1 nogil:
        return self._shared.cached_blocks(replica, row, now_ns)

    cdef const int32_t* cached_everywhere(self, int32_t row, int64_t now_ns) except NULL nogil:
        return self._shared.cached_everywhere(row, now_ns)

    cdef bint holds_adapter(self, int32_t replica, int32_t adapter, int64_t now_ns) noexcept nogil:
        return self._shared.holds_adapter(replica, adapter, now_ns)

    cdef const int32_t* tiers_in_turn(self, int32_t row, int32_t media, int64_t now_ns) except NULL nogil:
        return self._shared.tiers_in_turn(row, media, now_ns)

    cdef const int32_t* best_tiers(self, int32_t row, const int8_t* order, int32_t num_ordered,
                                   int64_t now_ns) except NULL nogil:
        return self._shared.best_tiers(row, order, num_ordered, now_ns)
