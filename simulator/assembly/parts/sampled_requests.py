"""Every N-th request of a streamed run, row by row: table /sampled_requests."""
from functools import partial
from typing import Annotated

import numpy as np
from msgspec import Meta

from simulator.assembly.parts.base import Part, Rows
from simulator.assembly.parts.streamed import STREAMED
from simulator.config.conflicts import Conflict, Feature, without
from simulator.domain import records
from simulator.workload.base import Workload

KEY, TABLE = "output.requests_every", "sampled_requests"
DTYPE = np.dtype([("request_id", "<i8"), *(
    (name, records.REQUEST[name]) for name in records.REQUEST.names if name != "spare")])


class SampledRequests(Part):
    """Rows of every N-th request, written before the request is given up."""

    keys = {KEY: Annotated[int, Meta(ge=0, le=2**31 - 1, extra={"unit": "requests"}, description=(
        "with streamed: write every N-th request, from the first, to the table sampled_requests; 0: none"))]}
    tables = {TABLE: Rows(DTYPE, f"[output] {KEY.partition('.')[2]} was 0", grows=True)}
    conflicts = [Conflict(
        Feature("samples of requests", KEY, 0),
        without(STREAMED._replace(off=None, value=lambda place: place.output.streamed), "output.streamed = true"),
        "the table of requests has all")]

    def meet(self, prepared) -> None:
        self._chunks = prepared.workload.chunks

    def plan(self, plan, sink):
        if TABLE in sink.streams:
            every, append = self.experiment.output.requests_every, partial(sink.append, TABLE)
            self._chunks.taker.keep = partial(_keep, append, every, self._chunks.first_id)
        return plan


def _keep(append, every: int, first_id: int, part: Workload) -> None:
    """Append every N-th request of a chunk; requests count from the first of the run."""
    chosen = (part.request_ids - first_id) % every == 0
    rows = np.zeros(int(chosen.sum()), DTYPE)
    rows["request_id"] = part.request_ids[chosen]
    for name in DTYPE.names[1:]:
        rows[name] = part.requests[name][chosen]
    append(rows)
