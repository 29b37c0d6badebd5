"""`burst-prefix`: the replica on which requests with one prompt, which arrived together, are placed together."""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset
cimport cython

from heapq import heapify, heapreplace
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from simulator.domain.request cimport COMPLETED
from simulator.routing.scoring.base cimport Scorer


class BurstPrefixParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Score 1 for the replica on which the requests of a window are placed, else 0.

    Requests wait until the window ends that began with the first request. Then those with equal prompts are placed
    together, the longest prompts first, each group on the least loaded replica; then the others, as they came, each on
    the least loaded replica. Loads are those of the gateway's account, with the requests placed before.
    Source: burst prefix producer of llm-d-router ebab6879. That others are placed by load, too, is our reading.
    """

    window_s: Annotated[float, Meta(gt=0, le=1e6, description=(
        "time from the first request of a window to its end, when all of its requests are routed"))] = 0.1
    most_together: Annotated[int, Meta(ge=-1, le=2**31 - 1, extra={"unit": "requests"}, description=(
        "requests with one prompt on a replica, at most; further ones are a group of their own; -1: any number"))] = -1
    balance_by: Annotated[Literal["requests", "tokens"], Meta(description=(
        "load of a replica: requests in flight, or their prompt tokens"))] = "requests"
    min_colocate_blocks: Annotated[int, Meta(ge=0, le=2**31 - 1, extra={"unit": "blocks"}, description=(
        "whole blocks that a prompt needs to be placed together with equal ones"))] = 0

    def __post_init__(self):
        if self.most_together == 0:
            raise ValueError("most_together: expected -1 or at least 1, found 0")


@cython.final
cdef class BurstPrefix(Scorer):
    """Requests with one prompt are better off together."""

    Parameters = BurstPrefixParameters

    cdef readonly object parameters
    cdef readonly list waiting          # rows of the window, by arrival
    cdef int32_t[::1] _placed           # [row] its replica; -1: none
    cdef object _workload
    cdef int32_t _block_size
    cdef bint _has_waiting

    @classmethod
    def reads_account(cls, parameters):
        """See Scorer."""
        return True

    def __init__(self, parameters, context):
        self.parameters, self._workload, self._block_size = parameters, context.workload, context.block_size
        self.waiting, self._placed = [], np.full(max(len(context.workload.requests), 1), -1, np.int32)
        self.is_per_request = self.view.wants_in_flight = True

    def wait(self, int32_t row):
        """Take a request into the window, which ends with the next decision."""
        self._placed[row], self._has_waiting = -1, True
        self.waiting.append(row)

    cdef int rate(self, int32_t row, int64_t now_ns) except -1 nogil:
        if self._has_waiting:
            with gil:
                self._place()
        if self._placed[row] < 0:
            return 0
        memset(self.values, 0, self.num_replicas * sizeof(double))
        self.values[self._placed[row]] = 1.0
        return 1

    def _place(self):
        """Place the requests of the window that are still there."""
        by_tokens, heap = self.parameters.balance_by == "tokens", []
        rows = [row for row in self.waiting if self.requests[<int32_t>row].status < COMPLETED]
        self.waiting, self._has_waiting = [], False
        for i in range(self.num_replicas):
            account = &self.view.accounts[<int32_t>i]
            if account.is_routable:
                heap.append((account.in_flight_tokens if by_tokens else account.in_flight, i))
        heapify(heap)
        for group in self._groups(rows) if heap else ():
            load, replica = heap[0]
            size = sum([self.requests[<int32_t>row].prompt_tokens for row in group]) if by_tokens else len(group)
            heapreplace(heap, (load + size, replica))
            for row in group:
                self._placed[<int32_t>row] = replica

    def _groups(self, rows):
        """Return lists of rows, in the order in which they are placed."""
        by_prompt, most = {}, self.parameters.most_together
        for row in rows:
            by_prompt.setdefault(self._prompt(row), []).append(row)
        equal = [group for key, group in by_prompt.items() if key[0] < 0 and len(group) > 1]
        equal.sort(key=lambda group: -self.requests[<int32_t>group[0]].prompt_tokens)
        together = {row for group in equal for row in group}
        return [group[i:i + (most if most > 0 else len(group))] for group in equal
                for i in range(0, len(group), most if most > 0 else len(group))] + [
            [row] for row in rows if row not in together]

    def _prompt(self, int32_t row):
        """Return a key that equal prompts share: (-1, text), or (row, b"") of a prompt that has no equal."""
        cdef int32_t first = self.demands[row].segments_begin, count = self.demands[row].num_segments
        if count == 0 or self.requests[row].prompt_tokens // self._block_size < self.parameters.min_colocate_blocks:
            return row, b""
        return -1, self._workload.segments[first:first + count].tobytes()
