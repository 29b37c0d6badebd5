"""LoRA adapters, [engine.lora] and [workload.adapters]: assignment to requests, counts of loads."""
from typing import Annotated

from msgspec import Meta

from simulator.assembly.parts import features as used
from simulator.assembly.parts.base import Part
from simulator.config import features as has
from simulator.config.conflicts import Conflict, Feature
from simulator.domain.traits import Adapters
from simulator.results.summary_keys import keys_of
from simulator.workload.adapters import with_adapters

SGLANG_LORA = Feature("LoRA adapters of SGLang", "engine.lora", value=lambda place: (
    place.engine.scheduler == "sglang" and place.engine.parameters.lora))
OTHER_DRAFTER = Feature("drafts of another model under SGLang", "engine.speculative.method", value=lambda place: (
    (drafts := getattr(place.engine.parameters, "speculative", None)) and drafts.method == "draft_model"
    and "draft_model"))


class LoraAdapters(Part):
    """LoRA adapters of requests, and the schedulers that load them."""

    keys = {"workload.adapters": Annotated[Adapters | None, Meta(description=(
        "assignment of LoRA adapters to requests; absent: as in the trace"))]}
    conflicts = (
        Conflict(Feature("LoRA adapters", "engine.lora"), has.DIVIDED_PROMPTS, "vLLM refuses it"),
        Conflict(SGLANG_LORA, has.ROLES, "decode replicas count the adapters of requests with KV on the way as well; "
                 "that is not built"),
        Conflict(SGLANG_LORA, used.LOCK_STEP, "SGLang loads the adapters of all ranks together, and ends with an error "
                 "where they are more than max_loras_per_batch"),
        Conflict(SGLANG_LORA, OTHER_DRAFTER, "SGLang refuses it"),
    )
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
