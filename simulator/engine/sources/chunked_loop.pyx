"""A drawn closed loop: slots send the requests of a table that comes in chunks, one after the other."""
from libc.stdint cimport int8_t, int32_t, int64_t
from libc.stdlib cimport free
cimport cython

from simulator.core.arithmetic cimport round_half_up
from simulator.core.clock cimport NEVER_NS
from simulator.core.heap cimport RowHeap, first_ns, pop_row, push_row
from simulator.domain.request cimport COMPLETED
from simulator.engine.output.recorder cimport Recorder
from simulator.engine.sources.chunked cimport Chunked


@cython.final
cdef class ChunkedLoop(Chunked):
    """The requests of a workload with `chunks.loop`: a free slot sends the next one.

    As `Scripted` does with one group of requests, and in memory for the slots alone. Parameters as in `Chunked`.
    """

    cdef RowHeap _slots                 # free slots: when each becomes free
    cdef int64_t _num_held              # slots in use
    cdef int64_t _ends_ns               # no request arrives at or after this instant
    cdef int64_t _client_delay_ns       # from an end to the client's reaction to it
    cdef const int64_t* _rest_ns        # [row] pause of its slot
    cdef const double* _rest_share      # [row] share of the request's duration that shortens the pause

    def __init__(self, workload, Recorder recorder, replicas):
        cdef const int64_t[::1] rest_ns = workload.chunks.loop.rest_ns
        cdef const double[::1] rest_share = workload.chunks.loop.rest_share
        cdef int64_t opens_ns
        Chunked.__init__(self, workload, recorder, replicas)
        loop, self.is_fixed = workload.chunks.loop, False
        self._ends_ns = NEVER_NS if loop.ends_ns is None else loop.ends_ns
        self._client_delay_ns, self._rest_ns, self._rest_share = loop.client_delay_ns, &rest_ns[0], &rest_share[0]
        for opens_ns in loop.opens_ns:
            push_row(&self._slots, opens_ns, 0)
        self._look()

    def __dealloc__(self):
        free(self._slots.entries)

    cdef int _look(self) except -1 nogil:
        """Note when the next request comes, or that no further one does."""
        self.next_ns = first_ns(&self._slots) if self.num_left > 0 else NEVER_NS
        if self.next_ns < self._ends_ns or self.num_left == 0 or (self._slots.size == 0 and self._num_held > 0):
            return 0
        with gil:
            self._chunks.close(self._num_requests - self.num_left)
        self._recorder.finished += self.num_left
        self.num_left, self.next_ns = 0, NEVER_NS
        return 0

    cdef int32_t take(self) except -1 nogil:
        cdef int64_t row = self._num_requests - self.num_left
        self._requests[row].arrival_ns = pop_row(&self._slots).key
        self._num_held += 1
        self.num_left -= 1
        if self.num_left > 0 and row + 1 == self._num_drawn:
            self._renew()
        self._look()
        return <int32_t>row

    cdef int ended(self, int32_t row, int8_t how, int64_t now_ns) except -1 nogil:
        cdef int64_t seen_ns = now_ns, rest_ns = self._rest_ns[row]
        cdef double less_ns
        if self._requests[row].status == COMPLETED:     # a scheduler may report an iteration's tokens at its begin
            seen_ns = max(now_ns, self._requests[row].completed_ns)
        seen_ns += self._client_delay_ns
        less_ns = self._rest_share[row] * <double>(seen_ns - self._requests[row].arrival_ns)
        rest_ns -= rest_ns if less_ns >= <double>rest_ns else round_half_up(less_ns)
        self._num_held -= 1
        push_row(&self._slots, seen_ns + rest_ns, 0)
        return self._look()
