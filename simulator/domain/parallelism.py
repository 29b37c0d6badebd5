"""Distribution of one replica over accelerators."""
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
    decode_context_parallel: Ways = 1           # tensor-parallel ranks that share the KV of a sequence
    prefill_context_parallel: Ways = 1          # ranks that divide prompts; each has all weights but those of experts

    @property
    def num_accelerators(self) -> int:
        """Accelerators of one replica."""
        return self.expert_ranks * self.pipeline_parallel

    @property
    def token_ranks(self) -> int:
        """Ranks of a stage with rows of their own; tokens are spread over them."""
        return self.data_parallel * self.prefill_context_parallel

    @property
    def expert_ranks(self) -> int:
        """Accelerators of a stage; experts are spread over them.

        Source: vLLM 0.32.0, vllm/model_executor/layers/fused_moe/config.py (FusedMoEParallelConfig).
        """
        return self.tensor_parallel * self.token_ranks

    @property
    def expert_cuts(self) -> int:
        """Ranks that share an expert; 0: expert_parallel does not divide the ranks."""
        return 0 if self.expert_ranks % self.expert_parallel else self.expert_ranks // self.expert_parallel

    @property
    def query_parallel(self) -> int:
        """Ranks that split the heads where decodes attend.

        Ranks that share KV gather their queries.
        """
        return self.tensor_parallel // self.decode_context_parallel

    def faults(self, model: ModelSpec) -> list[str]:
        """Return why `model` cannot be spread this way; empty when it can."""
        return [message for is_fault, message in self._checks(model) if is_fault] + (
            self._context_faults(model) + self._prompt_faults(model) + self._shard_faults(model))

    def _checks(self, model: ModelSpec):
        expert, stages, divided = self.expert_parallel, self.pipeline_parallel, self.prefill_context_parallel > 1
        ways = "tensor_parallel x data_parallel" + " x prefill_context_parallel" * divided
        experts = model.moe.num_experts if model.moe else 0
        yield (stages > model.num_layers,
               f"pipeline_parallel = {stages} is above the {model.num_layers} layers of {model.name}")
        yield expert > 1 and not experts, f"expert_parallel = {expert}, but {model.name} has no experts"
        yield (experts and experts % expert,
               f"expert_parallel = {expert} does not divide the {experts} experts of {model.name}")
        yield self.expert_ranks % expert, f"expert_parallel = {expert} does not divide {ways} = {self.expert_ranks}"

    def _context_faults(self, model: ModelSpec) -> list[str]:
        """Return why the KV of a sequence cannot be shared.

        Source: vLLM 0.32.0, vllm/config/model.py (verify_with_parallel_config).
        """
        degree, tensor, attention = self.decode_context_parallel, self.tensor_parallel, model.attention
        if degree == 1:
            return []
        found = f"decode_context_parallel = {degree}"
        if not model.num_full_attention_layers:
            return [f"{found}, but {model.name} has no layers of full attention, whose KV could be shared"]
        if model.num_sliding_attention_layers:
            return [f"{found}, but {model.name} has layers with windows, which vLLM does not share"]
        if attention.indexer:
            return [f"{found}, but {model.name} attends to the tokens that an indexer picks: on which ranks these lie "
                    "is not settled"]
        if tensor % degree:
            return [f"{found} does not divide tensor_parallel = {tensor}"]
        heads = attention.num_kv_heads
        if degree > tensor // heads:
            return [f"{found} is above tensor_parallel / KV heads = {tensor} / {heads} = {tensor // heads} of "
                    f"{model.name}: only ranks that would hold the same KV head share its tokens"]
        if attention.num_heads // heads % degree:
            return [f"{found} does not divide the {attention.num_heads // heads} query heads of a KV head of "
                    f"{model.name}"]
        return []

    def _prompt_faults(self, model: ModelSpec) -> list[str]:
        """Return why ranks cannot divide prompts."""
        if self.prefill_context_parallel == 1 or not model.num_linear_attention_layers:
            return []
        return [f"prefill_context_parallel = {self.prefill_context_parallel}, but {model.name} has layers whose state "
                "passes from token to token: how ranks that divide a prompt hand it on is not settled"]

    def _shard_faults(self, model: ModelSpec) -> list[str]:
        split = [mixer for mixer, _ in model.mixers] + [
            part for layer in model.kinds for name, part in layer.named_parts() if name != "attention"]
        faults = self._expert_shard_faults(model)
        for part in dict.fromkeys(split):
            try:
                part.shard(self.tensor_parallel)
            except ValueError as error:
                faults.append(f"{model.name}: {error}")
        return list(dict.fromkeys(faults))

    def _expert_shard_faults(self, model: ModelSpec) -> list[str]:
        """Return why experts cannot be cut into as many parts as the ranks that share one.

        Source: vLLM 0.33, vllm/model_executor/layers/fused_moe/config.py: each rank holds intermediate_size / parts.
        """
        if model.moe is None or not self.expert_cuts or model.moe.intermediate_size % self.expert_cuts == 0:
            return []
        width, parts, ranks = model.moe.intermediate_size, self.expert_cuts, self.expert_ranks
        below, above = max(_divisors(width, 1, parts)), min(_divisors(width, parts, width))
        advice = f"the nearest that go are {below} and {above}"
        if model.moe.num_experts % ranks == 0:
            advice += f", or expert_parallel = {ranks}, which deals out whole experts"
        return [f"{model.name}: each expert is cut into {self._expert_ways()} = {parts} parts, which does not divide "
                f"its intermediate_size = {width}; {advice}"]

    def _expert_ways(self) -> str:
        """Return the degrees that cut an expert, as a product."""
        ways = {"tensor_parallel": self.tensor_parallel, "data_parallel": self.data_parallel,
                "prefill_context_parallel": self.prefill_context_parallel}
        product = " x ".join(name for name, degree in ways.items() if degree > 1)
        return product + " / expert_parallel" * (self.expert_parallel > 1)

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


def _divisors(number: int, least: int, most: int) -> list[int]:
    """Return the divisors of `number` from `least` to `most`."""
    return [each for each in range(least, most + 1) if number % each == 0]
