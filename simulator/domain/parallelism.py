"""How one replica is spread over accelerators."""
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.domain.model_spec import ModelSpec

Ways = Annotated[int, Meta(ge=1)]


class Parallelism(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Degrees of parallelism in a replica; experts regroup its accelerators."""

    tensor_parallel: Ways = 1
    pipeline_parallel: Ways = 1
    expert_parallel: Ways = 1
    data_parallel: Ways = 1                     # attention data parallelism

    @property
    def num_accelerators(self) -> int:
        """Accelerators of one replica."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    def faults(self, model: ModelSpec) -> list[str]:
        """Return why `model` cannot be spread this way; empty when it can."""
        return [message for is_fault, message in self._checks(model) if is_fault] + self._shard_faults(model)

    def _checks(self, model: ModelSpec):
        tensor, expert, stages = self.tensor_parallel, self.expert_parallel, self.pipeline_parallel
        stage_width = tensor * self.data_parallel
        experts = model.moe.num_experts if model.moe else 0
        yield (stages > model.num_layers,
               f"pipeline_parallel = {stages} is above the {model.num_layers} layers of {model.name}")
        yield expert > 1 and not experts, f"expert_parallel = {expert}, but {model.name} has no experts"
        yield (experts and experts % expert,
               f"expert_parallel = {expert} does not divide the {experts} experts of {model.name}")
        yield (stage_width % expert,
               f"expert_parallel = {expert} does not divide tensor_parallel x data_parallel = {stage_width}")

    def _shard_faults(self, model: ModelSpec) -> list[str]:
        split = [model.attention, model.windowed_attention, model.linear_attention, model.mlp]
        if model.moe:
            split.append(model.moe.shared_expert)
            if self.expert_parallel == 1:
                split.append(model.moe.expert)
        faults = []
        for part in split:
            try:
                if part is not None:
                    part.shard(self.tensor_parallel)
            except ValueError as error:
                faults.append(f"{model.name}: {error}")
        return list(dict.fromkeys(faults))

    def layers_of_stage(self, model: ModelSpec, stage: int) -> range:
        """Return the layers of a pipeline stage.

        Layers that are left over go one each to the last stages but the very last, as vLLM's get_pp_indices does
        (vllm/distributed/utils.py): the last stage holds the output head already.
        """
        sizes = [model.num_layers // self.pipeline_parallel] * self.pipeline_parallel
        for i in range(2, model.num_layers % self.pipeline_parallel + 2):
            sizes[-i] += 1
        start = sum(sizes[:stage])
        return range(start, start + sizes[stage])
