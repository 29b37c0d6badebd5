"""LoRA adapters, [engine.lora] and [workload.adapters]: assignment to requests, counts of loads."""
from typing import Annotated

from msgspec import Meta

from simulator.assembly.parts.base import Part
from simulator.config import features as has
from simulator.config.conflicts import Conflict, Feature
from simulator.domain.traits import Adapters
from simulator.results.summary_keys import keys_of
from simulator.workload.adapters import with_adapters


class LoraAdapters(Part):
    """LoRA adapters of requests, and the schedulers that load them."""

    keys = {"workload.adapters": Annotated[Adapters | None, Meta(description=(
        "assignment of LoRA adapters to requests; absent: as in the trace"))]}
    conflicts = (Conflict(Feature("LoRA adapters", "engine.lora"), has.DIVIDED_PROMPTS, "vLLM refuses it"),)
    summary_before = "by_slo_class"
    summary_keys = keys_of(
        adapters__loads="LoRA adapters put into the worker", adapters__reads="loads that read from disk",
        adapters__evictions="adapters that made room")

    def requests(self, columns, seed: int):
        """See Part."""
        return with_adapters(columns, self.experiment.workload.adapters, seed)

    def summary(self, run, summary: dict) -> dict:
        """Return how often adapters were loaded, where a scheduler tracks them."""
        return {name: count for name, count in run.counts.items() if name == "adapters"}
