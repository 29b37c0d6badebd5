"""`utilisation`: as many replicas as keep a measure of load at its target."""
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.scaling.base import Autoscaler, in_proportion


class UtilisationParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Metric of load, and its target."""

    metric: Annotated[Literal["kv_cache", "running", "in_flight"], Meta(description=(
        "mean over replicas of: kv_cache: KV blocks in use / KV blocks; running: requests in the running list / "
        "max_num_seqs; in_flight: requests sent there that have not left / max_num_seqs"))] = "kv_cache"
    target: Annotated[float, Meta(gt=0, le=100, description="target of the metric")] = 0.7
    tolerance: Annotated[float, Meta(ge=0, le=1, description=(
        "no change within this distance from the target, as a fraction of it"))] = 0.1


class Utilisation(Autoscaler):
    """Replicas in proportion to their mean utilisation; see `in_proportion`."""

    Parameters = UtilisationParameters

    def decide(self, observation):
        """See Autoscaler."""
        states, metric = observation.states(), self.parameters.metric
        if metric == "kv_cache":
            used = states["used_blocks"] / states["num_blocks"]
        else:
            count = states["running"] if metric == "running" else observation.accounts()["in_flight"]
            used = count / states["max_running"]
        ratio = float(used.mean()) / self.parameters.target if len(used) else 0.0
        return in_proportion(observation, ratio, self.parameters.tolerance)
