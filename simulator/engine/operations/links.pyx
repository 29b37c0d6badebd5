"""Links between replicas, and the copies over them.

All flows advance at once, each at its rate. Flows that leave or enter by one link share its bandwidth max-min
fairly: all rates grow equally until a link is full; then flows over it keep their rate, and the others go on (Bertsekas
and Gallager, Data Networks, 2nd ed., 6.5.2). A link carries both directions at full bandwidth.
"""
cimport cython

from simulator.core.arithmetic cimport round_half_up
from simulator.core.clock cimport NEVER_NS


@cython.final
cdef class Flow:
    """A copy from the link of one replica to that of another."""

    def __init__(self, source, destination, num_bytes, now_ns):
        self.source, self.destination = source, destination
        self._num_bytes, self._since_ns, self.end_ns = num_bytes, now_ns, NEVER_NS

    cdef int go_on(self, double rate, int64_t now_ns) except -1:
        """Continue at a rate; at an unchanged rate the end stays unchanged, to the nanosecond."""
        if rate == self._rate and self.end_ns != NEVER_NS:
            return 0
        self._num_bytes = max(self._num_bytes - self._rate * <double>(now_ns - self._since_ns) * 1e-9, 0.0)
        self._rate, self._since_ns = rate, now_ns
        self.end_ns = now_ns + round_half_up(self._num_bytes / rate * 1e9) if rate > 0 else NEVER_NS
        return 0


@cython.final
cdef class Links:
    """The links of replicas.

    bytes_per_s : of each, in either direction.
    """

    def __init__(self, bytes_per_s):
        self._out = list(map(float, bytes_per_s))
        self._into = list(self._out)
        self._flows = []

    def start(self, source, destination, num_bytes, now_ns):
        """Begin to copy from one link to another; return the Flow."""
        flow = Flow(source, destination, num_bytes, now_ns)
        self._flows.append(flow)
        self._share(now_ns)
        return flow

    def stop(self, flow, now_ns):
        """Abort a flow."""
        self._flows.remove(flow)
        self._share(now_ns)

    def take_ended(self, now_ns):
        """Return the flows that have ended, in the order in which they began."""
        ended = [flow for flow in self._flows if flow.end_ns <= now_ns]
        self._flows = [flow for flow in self._flows if flow.end_ns > now_ns]
        self._share(now_ns)
        return ended

    cdef int64_t next_end_ns(self) except -1:
        return min((flow.end_ns for flow in self._flows), default=NEVER_NS)

    def _share(self, now_ns):
        """Compute the rates of all flows."""
        open_flows, room, users = list(self._flows), {}, {}
        for flow in open_flows:
            for end in _ends(flow):
                room[end] = (self._out if end[0] else self._into)[end[1]]
                users[end] = users.get(end, 0) + 1
        rates = {}
        while open_flows:
            level, narrowest = min((room[end] / users[end], end) for end in users if users[end])
            held = [flow for flow in open_flows if narrowest in _ends(flow)]
            for flow in held:
                rates[flow] = level
                for end in _ends(flow):
                    room[end] -= level
                    users[end] -= 1
            open_flows = [flow for flow in open_flows if flow not in rates]
        for flow, rate in rates.items():
            (<Flow>flow).go_on(rate, now_ns)

    def rates(self):
        """Return (source, destination, bytes/s) of each flow (for tests)."""
        return [(flow.source, flow.destination, (<Flow>flow)._rate) for flow in self._flows]


def _ends(flow):
    return (True, flow.source), (False, flow.destination)
