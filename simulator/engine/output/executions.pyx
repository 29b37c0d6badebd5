"""Execution time and waits of requests, added up batch by batch.

As in Vidur: each stage of a batch adds its duration to the requests in it, and the time since they left the stage
before to their preempted time, whether due to a restart, a batch without them, a KV transfer or a busy stage. The wait
for the first stage is in neither. Source: microsoft/vidur 7d47513, vidur/entities/request.py, on_batch_stage_schedule
and on_batch_stage_end.
"""
from libc.stdint cimport int32_t
cimport cython

import numpy as np

from simulator.domain import records


@cython.final
cdef class Executions:
    """The account of all requests; lanes share it, since no request is in two lanes.

    num_requests : including prefill legs, which have rows of their own, see `merged`.
    """

    def __init__(self, int64_t num_requests):
        cdef Execution[::1] rows
        self.table = np.zeros(num_requests, records.EXECUTION)
        self.table["first_ns"] = self.table["left_ns"] = records.NEVER_NS
        if num_requests > 0:
            rows = self.table
            self._rows = &rows[0]

    cdef void add(self, const Batch* batch) noexcept nogil:
        cdef int64_t begin_ns = batch.end_ns - batch.duration_ns, executed_ns = batch.duration_ns, inside_ns = 0
        cdef int32_t i
        cdef Execution* row
        if batch.num_stages > 1:
            begin_ns, executed_ns = batch.visits[0].start_ns, 0
            for i in range(batch.num_stages):
                executed_ns += batch.visits[i].end_ns - batch.visits[i].start_ns
            inside_ns = batch.end_ns - begin_ns - executed_ns
        for i in range(batch.num_entries):
            row = &self._rows[batch.entries[i].row]
            if row.first_ns < 0:
                row.first_ns = begin_ns
            elif begin_ns > row.left_ns:            # two chunks of a prompt may be in the pipeline at once
                row.preempted_ns += begin_ns - row.left_ns
            row.execution_ns += executed_ns
            row.preempted_ns += inside_ns
            row.left_ns = batch.end_ns


def merged(table, num_requests):
    """Return the account of clients' requests, with their prefill legs added.

    Legs are behind the others in the table. None: executions are not recorded.
    """
    if table is None:
        return None
    whole, legs = table[:num_requests].copy(), table[num_requests:]
    for name in ("execution_ns", "preempted_ns"):
        whole[name] += legs[name]
    both = (whole["first_ns"] >= 0) & (legs["left_ns"] >= 0)
    whole["preempted_ns"][both] += np.maximum(whole["first_ns"] - legs["left_ns"], 0)[both]
    return whole
