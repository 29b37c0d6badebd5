"""A scheduler and an operation that let no time pass."""
# cython: language_level=3
from libc.stdint cimport int64_t

from simulator.core.event_queue cimport Event
from simulator.domain.batch cimport clear_shape
from simulator.domain.iteration cimport Batch
from simulator.engine.fleet.events cimport SAMPLE
from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.operations.base cimport Operation
from simulator.scheduling.base cimport Scheduler

from simulator.scheduling.python_scheduler import PythonSchedulerParameters
from simulator.scheduling.waiting_queue import WaitingQueue


cdef class ForEver(Scheduler):
    """Say of those who wait that they may run now, and let nobody run."""

    Parameters = PythonSchedulerParameters

    def __init__(self, parameters, context):
        self.max_running, self.longest_prompt = parameters.max_num_seqs, context.max_model_len - 1
        self.waiting = WaitingQueue(context.requests, context.demands, False)

    cdef int schedule(self, Batch* batch, int64_t now_ns) except -1 nogil:
        batch.start_ns = now_ns
        batch.num_entries = batch.num_preempted = batch.num_members = batch.num_starved = 0
        clear_shape(&batch.shape)
        self.close(batch, -1)
        self.opens_ns = now_ns
        return 0


cdef class Echo(Operation):
    """Each event calls for another one at the same instant, from 10 ms on."""

    cdef Fleet _fleet

    def __init__(self, Fleet fleet, gateways, plan):
        self.kinds = (SAMPLE,)
        self._fleet = fleet

    cdef int start(self) except -1 nogil:
        return self._fleet.events.push(10_000_000, SAMPLE, SAMPLE, 0, 0)

    cdef int handle(self, const Event* event) except -1 nogil:
        return self._fleet.events.push(event.time_ns, SAMPLE, SAMPLE, 0, 0)
