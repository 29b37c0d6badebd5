"""Base class for deciders written in Python: slow, but the shortest way to try an idea."""
from libc.stdint cimport int32_t, int64_t

from simulator.routing.disaggregation.base cimport Decider
from simulator.signals.request_view cimport RequestView


cdef class PythonDecider(Decider):
    """Base of deciders written in Python: override `splits_request`.

    The experiment names the subclass: `decider = "my_lab.splitting:LongPrompts"`. Hang a frozen `msgspec.Struct` on the
    class as `Parameters` to have keys of [cluster.disaggregation] read, checked and passed on.

        class LongPrompts(PythonDecider):
            def splits_request(self, request, prefill, decode, now_ns):
                return request.prompt_tokens > 1000

    `prefill_states`, `decode_states`, `prefill_accounts` and `decode_accounts` are read-only NumPy arrays, one row a
    replica, fields as in simulator/domain/replica_state.pxd, of the replicas for either leg. An exception ends the
    simulation.
    """

    Parameters = None
    uses_prefill = False                # a subclass that depends on the prefill replica sets it
    uses_caches = False                 # a subclass that calls `cached_blocks` sets it

    cdef readonly object parameters     # content of [cluster.disaggregation], as `Parameters`
    cdef readonly object prefill_states, prefill_accounts, decode_states, decode_accounts
    cdef RequestView _request           # one, reused for each call

    def __init__(self, parameters, context):
        self.parameters = parameters
        self.prefill_states, self.prefill_accounts = self.prefill.state_array.view(), self.prefill.account_array.view()
        self.decode_states, self.decode_accounts = self.decode.state_array.view(), self.decode.account_array.view()
        for view in (self.prefill, self.decode):
            view.wants_counts = view.wants_levels = view.wants_times = True
        for each in (self.prefill_states, self.prefill_accounts, self.decode_states, self.decode_accounts):
            each.flags.writeable = False
        self._request = RequestView(context.workload)
        self.looks_at_prefill = self.uses_prefill
        if self.uses_caches:
            self.decode.wants_caches = True

    def splits_request(self, request, prefill, decode, now_ns):
        """Return whether the prompt of `request`, a `RequestView`, is computed on a prefill replica.

        prefill, decode : the replicas that would get the legs; None: not chosen yet, or there is none.
        """
        raise NotImplementedError(f"{type(self).__name__} must override splits_request")

    def cached_blocks(self, request, replica, now_ns):
        """Return the leading blocks of a prompt that a decode replica has; for classes with `uses_caches = True`."""
        if not self.uses_caches:
            raise RuntimeError(f"{type(self).__name__} must set uses_caches = True to ask for cached_blocks")
        return self.decode.cached_blocks(<int32_t>replica, <int32_t>request.row, <int64_t>now_ns)

    cdef bint splits(self, int32_t row, int32_t prefill, int32_t decode, int64_t now_ns) except -1 nogil:
        self.prefill.look(now_ns)
        self.decode.look(now_ns)
        with gil:
            self._request.row = row
            return bool(self.splits_request(self._request, prefill if prefill >= 0 else None,
                                            decode if decode >= 0 else None, now_ns))
