"""The gateway's view of replicas that run: at the instant it looks, or as of the last snapshot.

A snapshot is taken when somebody looks and the last one is as old as the interval, as BLIS does and as a scrape whose
result is cached would; at first all states are empty, taken at time 0.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.domain.request cimport Request
from simulator.engine.observation cimport observe
from simulator.engine.replica cimport Replica
from simulator.signals.view cimport View


@cython.final
cdef class LiveView(View):
    """A view of `replicas`.

    num_replicas : of them.
    replicas : list of Replica; `account.replica` is set to their indexes.
    workload : lends its `requests`.
    interval_ns : age up to which a snapshot of what replicas report is used again; 0: always live.
    """

    def __init__(self, num_replicas, replicas, workload, int64_t interval_ns):
        cdef const Request[::1] requests = workload.requests
        cdef Replica replica
        cdef int32_t i
        if len(requests):
            self._requests = &requests[0]
        self._replicas = <void**>calloc(num_replicas, sizeof(void*))
        self._noted = <int32_t*>calloc(num_replicas, sizeof(int32_t))
        self._is_noted = <int8_t*>calloc(num_replicas, sizeof(int8_t))
        if self._replicas == NULL or self._noted == NULL or self._is_noted == NULL:
            raise MemoryError()
        replicas = list(replicas)
        self._owners = (replicas, workload)
        self._interval_ns = interval_ns
        for i, replica in enumerate(replicas):
            self._replicas[i] = <void*>replica
            self.accounts[i].replica = replica.index
            observe(replica, 0, &self.states[i])

    def __dealloc__(self):
        free(self._replicas)
        free(self._noted)
        free(self._is_noted)

    cdef int look(self, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        if self._interval_ns > 0:
            if now_ns - self._taken_ns < self._interval_ns:
                return 0
            self._taken_ns = now_ns
        elif self.wants_levels:
            for i in range(self.num_replicas):      # blocks and tokens grow while a replica runs ahead
                if (<Replica>self._replicas[i]).wake_ns < NEVER_NS:
                    self.note(i)
        elif not self.wants_counts:
            return 0
        for i in range(self._num_noted if self._interval_ns == 0 else self.num_replicas):
            self._read(self._noted[i] if self._interval_ns == 0 else i, now_ns)
        for i in range(self._num_noted):
            self._is_noted[self._noted[i]] = False
        self._num_noted = 0
        return 0

    cdef int _read(self, int32_t replica, int64_t now_ns) except -1 nogil:
        observe(<Replica>self._replicas[replica], now_ns, &self.states[replica])
        self.mark(replica)
        return 0

    cdef int32_t cached_blocks(self, int32_t replica, int32_t row, int64_t now_ns) except -1 nogil:
        # one token more, so that the last block of the prompt counts too
        return (<Replica>self._replicas[replica])._kv.lookup(row, self._requests[row].prompt_tokens + 1)
