"""Base class for routers written in Python: slow, but the shortest way to try an idea."""
from libc.stdint cimport int32_t, int64_t

import operator

from simulator.routing.base cimport Router
from simulator.signals.media cimport DISK, HOST, NUM_MEDIA, SHARED
from simulator.signals.request_view cimport RequestView


cdef class PythonRouter(Router):
    """Base of routers written in Python: override `choose`.

    The experiment names the subclass: `policy = "my_lab.routing:MostFree"`.

    Hang a frozen `msgspec.Struct` on the class as `Parameters` to have keys of [cluster.routing] read, checked and
    passed on. Without `choose`, a request is refused.

        class MostFree(PythonRouter):
            def choose(self, request, now_ns):
                free = self.states["num_blocks"] - self.states["used_blocks"]
                return int(free.argmax()) if free.max() * 16 > request.prompt_tokens else None

    `choose` is called once each time a request is to be sent somewhere, whether or not decisions are written down. It
    costs a Python call and its own work, some microseconds. `states` and `accounts` are read-only NumPy arrays, one row
    a replica, fields as in simulator/domain/replica_state.pxd; they show the replicas as the gateway sees them at
    `now_ns`, with the ages that the experiment gives. An exception ends the simulation.
    """

    Parameters = None
    uses_caches = False                 # a subclass that calls `cached_blocks` sets it
    uses_tiers = False                  # a subclass that calls `tier_blocks` sets it

    cdef readonly object parameters     # content of [cluster.routing], as `Parameters`
    cdef readonly object states         # structured array (replicas,), reports of replicas
    cdef readonly object accounts       # structured array (replicas,), the gateway's own account
    cdef RequestView _request           # one, reused for each call
    cdef bint _hears_sent, _hears_left  # the subclass overrides these

    def __init__(self, parameters, context):
        self.parameters = parameters
        self.states, self.accounts = self.view.state_array.view(), self.view.account_array.view()
        self.states.flags.writeable = self.accounts.flags.writeable = False
        self._request = RequestView(context.workload)
        self._hears_sent = type(self).on_sent is not PythonRouter.on_sent
        self._hears_left = type(self).on_left is not PythonRouter.on_left
        self.reads_state = True
        self.view.wants_counts = self.view.wants_levels = self.view.wants_times = True
        if self.uses_caches:
            self.view.wants_caches = True

        if self.uses_tiers:
            self.view.wants_caches = self.view.wants_tiers = True

    @classmethod
    def sees_tiers(cls, parameters):
        """See Router."""
        return cls.uses_tiers

    def choose(self, request, now_ns):
        """Return the index of the replica for `request`, a `RequestView`; None: no replica can take it."""
        raise NotImplementedError(f"{type(self).__name__} must override choose")

    def on_sent(self, request, replica, now_ns):
        """Handle the notification that a request was sent to a replica."""

    def on_left(self, request, replica, now_ns):
        """Handle the notification that a request has left a replica, for any reason."""

    def cached_blocks(self, request, now_ns):
        """Return the leading blocks of a prompt that each replica has in its KV cache, as far as is known.

        Where the replicas' blocks differ in size, they are counted in blocks of the greatest common divisor.
        For classes with `uses_caches = True`.
        """
        cdef const int32_t* cached
        cdef int32_t row = request.row, i
        if not self.uses_caches:
            raise RuntimeError(f"{type(self).__name__} must set uses_caches = True to ask for cached_blocks")
        cached = self.view.cached_everywhere(row, now_ns)
        return [cached[i] for i in range(self.num_replicas)]

    def tier_blocks(self, request, now_ns):
        """Return the cached blocks of a prompt on each replica, as far as known: (device, host, disk, shared).

        Leading blocks in its KV cache, further blocks in its host memory, further blocks on disks of its own, and
        blocks after the first part in stores that it shares. For classes with `uses_tiers = True`.
        """
        cdef const int32_t* found
        cdef int32_t row = request.row, i, medium
        if not self.uses_tiers:
            raise RuntimeError(f"{type(self).__name__} must set uses_tiers = True to ask for tier_blocks")
        found = self.view.tiers_in_turn(row, 1 << HOST | 1 << DISK | 1 << SHARED, now_ns)
        if not self.view.has_tiers:
            return [(found[i], 0, 0, 0) for i in range(self.num_replicas)]
        return [tuple(found[medium * self.num_replicas + i] for medium in range(NUM_MEDIA))
                for i in range(self.num_replicas)]

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        self.view.look(now_ns)
        with gil:
            return self._ask(row, now_ns)

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        if self._hears_sent:
            with gil:
                self._request.row = row
                self.on_sent(self._request, replica, now_ns)
        return 0

    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        if self._hears_left:
            with gil:
                self._request.row = row
                self.on_left(self._request, replica, now_ns)
        return 0

    cdef int32_t _ask(self, int32_t row, int64_t now_ns) except -2:
        self._request.row = row
        chosen = self.choose(self._request, now_ns)
        if chosen is None:
            return -1
        index = operator.index(chosen) if hasattr(chosen, "__index__") else -1      # NumPy's integers too
        if not (0 <= index < self.num_replicas and self.accounts["is_routable"][index]):
            raise ValueError(f"{type(self).__name__}.choose: expected None or the index of one of {self.num_replicas} "
                             f"replicas that can be routed to, found {chosen!r}")
        return index
