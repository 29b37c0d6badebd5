"""Output tokens of requests as of an instant, also in the middle of a run of a replica."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from simulator.engine.replica.departures cimport Departures
from simulator.engine.replica.replica cimport Replica
from simulator.scheduling.base cimport Scheduler
from simulator.signals.output_counts cimport OutputCounts


cdef struct Reading:            # of a request
    int64_t look                # number of the look that found the request in the running list
    int32_t tokens


@cython.final
cdef class LiveOutputs(OutputCounts):
    """Counts of the requests in a table.

    requests : structured array (requests,), `records.REQUEST`. departures : see build.Shared.
    """

    cdef Departures _departures
    # NULL and None unless a policy reads outputs:
    cdef void** _replicas               # [replica] Replica, borrowed
    cdef list _replica_list             # owns them
    cdef Reading* _readings             # [row]
    cdef int64_t* _looks                # [replica] number of the look that read it last
    cdef int64_t _look, _now_ns         # number and instant of the last look; 0: none yet

    def __init__(self, requests, Departures departures):
        super().__init__(requests)
        self._departures = departures

    def __dealloc__(self):
        free(self._replicas)
        free(self._readings)
        free(self._looks)

    def attach(self, replicas):
        """Read the replicas of this list, if some policy reads outputs; once, after routers are made."""
        if not self.is_requested:
            return
        self._replica_list = list(replicas)
        self._readings = <Reading*>calloc(max(len(self._owner), 1), sizeof(Reading))
        self._replicas = <void**>calloc(len(self._replica_list), sizeof(void*))
        self._looks = <int64_t*>calloc(len(self._replica_list), sizeof(int64_t))
        if self._replicas == NULL or self._readings == NULL or self._looks == NULL:
            raise MemoryError()
        for i, replica in enumerate(self._replica_list):
            self._replicas[<int32_t>i] = <void*>replica

    cdef void look(self, int64_t now_ns) noexcept nogil:
        self._look += 1
        self._now_ns = now_ns

    cdef int32_t outputs(self, int32_t row) except -1 nogil:
        cdef int32_t replica = self._requests[row].replica
        if replica >= 0 and self._looks[replica] != self._look:
            self._looks[replica] = self._look
            (<Replica>self._replicas[replica]).keep_up(self._departures.acted_until_ns(replica, self._now_ns))
            self._read((<Replica>self._replicas[replica]).scheduler)
        return self._readings[row].tokens if self._readings[row].look == self._look else (
            self._requests[row].output_tokens)

    cdef void _read(self, Scheduler scheduler) noexcept nogil:
        """Read the members: their output tokens are not in the table."""
        cdef Reading* reading
        cdef int32_t slot = scheduler.first_running()
        while slot >= 0:
            if scheduler.sequence(slot).is_member:
                reading = &self._readings[scheduler.sequence(slot).row]
                reading.look, reading.tokens = self._look, scheduler.outputs(slot)
            slot = scheduler.next_running(slot)
