"""Routing decisions with the best replicas of each: tables /decisions and /candidates, and totals in the summary."""
from functools import partial
from typing import Annotated

import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from simulator.assembly.parts.base import Part, Rows
from simulator.domain import records
from simulator.results.decisions import DecisionTotals
from simulator.results.summary_keys import keys_of
from simulator.results.tables import without_spare

ABSENT = "[output] decisions was 0"


class Decisions(Part):
    """Records of the decisions of the routers."""

    keys = {"output.decisions": Annotated[int, Meta(ge=0, le=2**20, description=(
        "number of replicas, best first, to record for each routing decision; 0: no decisions are recorded"))]}
    tables = {"decisions": Rows(without_spare(records.DECISION), ABSENT, grows=True),
              "candidates": Rows(without_spare(records.CANDIDATE), ABSENT, grows=True)}
    summary_before = "latency"
    summary_keys = keys_of(
        decisions__total="routing decisions", decisions__routed="decisions that found a replica",
        decisions__refused="decisions that found none", decisions__unique_targets="replicas chosen at least once",
        decisions__targets="decisions for each replica", decisions__mean_regret="score of the best less that of "
        "the chosen, mean", decisions__max_regret="largest regret")
    totals: DecisionTotals | None = None

    def plan(self, plan, sink):
        if "decisions" not in sink.streams:
            return plan
        from simulator.engine.gateway.tracer import DecisionTracer
        from simulator.engine.output.row_stream import RowStream

        self.totals = DecisionTotals()
        decisions = RowStream(records.DECISION, partial(self._append, sink))
        candidates = RowStream(records.CANDIDATE, partial(sink.append, "candidates"))
        sink.pending += [decisions.flush, candidates.flush]
        best = self.experiment.output.decisions
        return replace(plan, tracer=lambda view, index: DecisionTracer(view, index, best, decisions, candidates))

    def _append(self, sink, rows: np.ndarray) -> None:
        self.totals.append(rows)
        sink.append("decisions", rows)

    def summary(self, run, summary: dict) -> dict:
        return {} if self.totals is None else {"decisions": self.totals.summary(len(run.replicas))}
