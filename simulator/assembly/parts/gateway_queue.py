"""Remarks on requests that a gateway queue held back, for [cluster.gateway_queue]."""
import numpy as np

from simulator.assembly.parts.base import Part
from simulator.results.journeys import journeys_of

LEAST_SHARE = 0.5       # of the mean time to first token
MOST_BUSY = 0.5         # of the requests that replicas may run at once, and at most one for each, at the peak
KEY = "cluster.gateway_queue"


class HeldBack(Part):
    """Waits at the gateway before replicas with room."""

    def report(self, run, cluster) -> None:
        """See Part; the requests that all replicas run at once."""
        run.records["places"] = [replica.scheduler.max_running for gateway in cluster.gateways
                                 for replica in gateway.view.replicas]

    def summary(self, run, summary: dict) -> dict:
        """See Part."""
        queue = self.experiment.cluster.gateway_queue
        notes = [*self._stale(queue), *self._idle(run, summary)]
        if queue.counts_bytes:
            notes.append(f"{KEY}: the body of a request has bytes_per_token = {queue.bytes_per_token:g} bytes for "
                         "each of its prompt tokens, without images and the like")
        if queue.order == "slack":
            notes.append(f"{KEY}: one profile of latencies counts for all replicas, and saturation alone holds "
                         "requests back, where AIBrix looks for a replica for each line")
        return {"diagnosis": notes} if notes else {}

    def _stale(self, queue):
        """Yield a remark on reports that are too old for a part of each interval."""
        refresh_s = self.experiment.cluster.routing.snapshot_refresh_interval_s
        staleness_s = getattr(queue.saturation.parameters, "staleness_s", None)
        if staleness_s and staleness_s < refresh_s:
            yield (f"{KEY}.saturation.staleness_s = {staleness_s:g}: a report is older than this from "
                   f"{staleness_s:g} s after a refresh until the next at cluster.routing.snapshot_refresh_interval_s = "
                   f"{refresh_s:g}; its replica counts as full for that time")

    def _idle(self, run, summary):
        """Yield a remark on waits at the gateway that are most of the latency, though no replica ran two requests."""
        journeys = journeys_of(run)
        if journeys is None or not summary["ttft_ms"]["mean"]:
            return
        requests = run.workload.requests
        is_done = (requests["completed_ns"] >= 0) & (journeys["dispatched_ns"] >= 0)
        sent_ns, ended_ns = journeys["dispatched_ns"][is_done], requests["completed_ns"][is_done]
        if not len(sent_ns):
            return
        wait_s = float((sent_ns - journeys["admitted_ns"][is_done]).mean()) / 1e9
        share = 1e3 * wait_s / summary["ttft_ms"]["mean"]
        peak, places = _peak(sent_ns, ended_ns), sum(run.records["places"])
        if share >= LEAST_SHARE and peak <= min(len(run.replicas), MOST_BUSY * places):
            yield (f"{KEY}: requests waited {wait_s:,.3g} s at the gateway in the mean, {min(share, 1):.0%} of their "
                   f"time to first token, while at most {peak:,} of the {places:,} requests that replicas may run at "
                   "once were there: the detector or its ceilings keep replicas idle")


def _peak(begin_ns: np.ndarray, end_ns: np.ndarray) -> int:
    """Return the most intervals that hold one instant; an end comes before a begin at the same one."""
    instants = np.concatenate((end_ns, begin_ns))
    changes = np.repeat((-1, 1), len(begin_ns))
    return int(np.cumsum(changes[np.argsort(instants, kind="stable")]).max())
