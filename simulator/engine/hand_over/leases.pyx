"""KV leases: how long blocks wait to be read, with renewal by the replica that will read them.

When a prefill leg ends, its replica keeps the blocks for the time of a lease. As long as a decode replica has the
request and its KV has not arrived, it sends heartbeats, each of which extends the lease to at least an extension from
then. vLLM's decode replica sends them for all requests at once, when the last ones are old enough; here each
request has its own, the first when it arrives. An extension is longer than the interval of heartbeats, so that a lease
cannot run out meanwhile: only their begin and their end need any work. Source: vLLM 0.32.0,
vllm/distributed/kv_transfer/kv_connector/v1/nixl/base_scheduler.py and base_worker.py.
"""
from libc.stdlib cimport calloc, free
cimport cython

from simulator.core.errors cimport broken
from simulator.core.memory cimport resize


@cython.final
cdef class Leases:
    """The leases of a cluster.

    num_replicas : of the cluster. lease_ns : duration of a lease without renewals. beat_ns : heartbeat interval; 0:
        no heartbeats. extension_ns : least remaining time after each heartbeat.
    """

    def __init__(self, int32_t num_replicas, int64_t lease_ns, int64_t heartbeat_ns, int64_t extension_ns):
        if 0 < heartbeat_ns >= extension_ns > 0 or (heartbeat_ns > 0 and extension_ns == 0):
            raise ValueError(f"a lease would run out between two heartbeats, {extension_ns} ns and {heartbeat_ns} ns")
        self._lease_ns, self._heartbeat_ns, self._extension_ns = lease_ns, heartbeat_ns, extension_ns
        self._due = IndexHeap()
        self._held = <int32_t*>calloc(num_replicas, sizeof(int32_t))
        if self._held == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self._leases)
        free(self._free)
        free(self._held)

    cdef int32_t begin(self, int32_t row, int32_t source, int32_t slot, int64_t now_ns) except -1 nogil:
        cdef int32_t index
        cdef Lease* it
        if self._num_free == 0:
            self._grow()
        self._num_free -= 1
        index = self._free[self._num_free]
        it = &self._leases[index]
        it.row, it.source, it.slot, it.reader, it.carrier = row, source, slot, -1, -1
        it.until_ns, it.heartbeats_since_ns, it.has_expired = now_ns + self._lease_ns, -1, False
        self._held[source] += 1
        self._due.put(index, it.until_ns, self._order)
        self._order += 1
        return index

    cdef void renew(self, int32_t index, int64_t now_ns) noexcept nogil:
        cdef Lease* it = &self._leases[index]
        if self._heartbeat_ns > 0 and not it.has_expired and it.heartbeats_since_ns < 0:
            it.heartbeats_since_ns = now_ns
            self._due.remove(index)

    cdef void fall_silent(self, int32_t index, int64_t now_ns) noexcept nogil:
        cdef Lease* it = &self._leases[index]
        cdef int64_t last_ns
        if it.heartbeats_since_ns >= 0:
            last_ns = now_ns - (now_ns - it.heartbeats_since_ns) % self._heartbeat_ns
            it.until_ns, it.heartbeats_since_ns = max(it.until_ns, last_ns + self._extension_ns), -1
            self._due.put(index, it.until_ns, self._order)
            self._order += 1

    cdef void end(self, int32_t index) noexcept nogil:
        cdef Lease* it = &self._leases[index]
        self._due.remove(index)
        self._held[it.source] -= not it.has_expired
        it.row = FREE_LEASE
        self._free[self._num_free] = index
        self._num_free += 1

    cdef int32_t take(self, int64_t now_ns) noexcept nogil:
        cdef int32_t index
        if self._due.next_ns() > now_ns:
            return -1
        index = self._due.top()
        self._due.remove(index)
        self._leases[index].has_expired = True
        self._held[self._leases[index].source] -= 1
        return index

    cdef int _grow(self) except -1 nogil:
        cdef int32_t room = 2 * self.room + 16, index
        resize(&self._leases, room * sizeof(Lease))
        resize(&self._free, room * sizeof(int32_t))
        self._due.reserve(room)
        for index in range(room - 1, self.room - 1, -1):
            self._leases[index].row = FREE_LEASE
            self._free[self._num_free] = index
            self._num_free += 1
        self.room = room
        return 0

    # ---- the face for tests and exploration

    def holds(self, int32_t replica):
        """Return how many leases there are on the blocks of a replica."""
        return self._held[replica]

    def on(self):
        """Return (row, source, reader, until_ns) of leases that have not run out; until_ns is None while renewed."""
        return [(self._leases[i].row, self._leases[i].source, self._leases[i].reader,
                 None if self._leases[i].heartbeats_since_ns >= 0 else self._leases[i].until_ns)
                for i in range(self.room) if self.is_on(i) and not self._leases[i].has_expired]

    def check(self):
        """Raise RuntimeError unless heap, places and counts agree."""
        self._due.check()
        on = self.on()
        if self._due.size != sum(until_ns is not None for *_, until_ns in on):
            broken("Leases: those that run out are not those that nobody renews")
        if sum(self.is_on(i) for i in range(self.room)) + self._num_free != self.room:
            broken("Leases: places and free places do not agree")

    def start(self, row, source, slot, now_ns):
        """Begin a lease; return it."""
        return self.begin(row, source, slot, now_ns)

    def tell(self, index, is_heard, now_ns):
        """Renew a lease from now on, or no more."""
        if is_heard:
            self.renew(index, now_ns)
        else:
            self.fall_silent(index, now_ns)

    def stop(self, index):
        """End a lease."""
        self.end(index)

    def expired(self, now_ns):
        """Return the leases that have run out by `now_ns`."""
        found, index = [], self.take(now_ns)
        while index >= 0:
            found.append(index)
            index = self.take(now_ns)
        return found

    def next_end_ns(self):
        """Return when the first lease runs out, NEVER_NS if none does."""
        return self.next_ns()
