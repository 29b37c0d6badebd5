"""Whether fp8 weights with block scales can be split over ranks: no rank may hold a part of a block.

Source: vLLM 0.33, vllm/model_executor/layers/quantization/utils/fp8_utils.py (validate_fp8_block_shape) for dense
layers, vllm/model_executor/layers/quantization/fp8.py (Fp8MoEMethod.create_weights) for experts. Projections to
queries, keys and values that are one product are left out: vLLM lets them pass (its pull request 30836).
"""
from math import isqrt

from simulator.domain.deployment import Deployment


def block_faults(deployment: Deployment) -> list[str]:
    """Return why blocks of weights cannot be split over ranks; empty where they can."""
    block, model, ways = block_edge(deployment), deployment.model, deployment.parallelism
    if block < 2 or ways.faults(model):
        return []
    faults = []
    if deployment.quantization.scope == "linear" and ways.tensor_parallel > 1:
        parts = [part for part, _ in model.mixers] + [
            part for layer in model.kinds for name, part in layer.named_parts() if name != "attention"]
        faults = [_fault(deployment, name, width, ways.tensor_parallel, block) for part in dict.fromkeys(parts)
                  for name, width in part.shard(ways.tensor_parallel).split_widths() if width % block]
    if model.moe and model.moe.intermediate_size % (ways.expert_cuts * block):
        width = model.moe.intermediate_size // ways.expert_cuts
        faults.append(_fault(deployment, "intermediate_size of an expert", width, ways.expert_cuts, block))
    return list(dict.fromkeys(faults))


def block_edge(deployment: Deployment) -> int:
    """Return the edge of square blocks of fp8 weights that share a scale; 0: none do."""
    quantization = deployment.quantization
    if quantization is None or quantization.weight_dtype != "fp8" or not quantization.group_size:
        return 0
    edge = isqrt(quantization.group_size)
    return edge if edge**2 == quantization.group_size else 0


def _fault(deployment: Deployment, name: str, width: int, parts: int, block: int) -> str:
    whole = width * parts
    most = next((ranks for ranks in range(parts - 1, 0, -1) if whole % (ranks * block) == 0), 0)
    advice = f"; the most that goes is {most}" if most else ""
    if "expert" in name and deployment.model.moe.num_experts % deployment.parallelism.expert_ranks == 0:
        advice += f", or expert_parallel = {deployment.parallelism.expert_ranks}"
    return (f"{deployment.model.name}: {name}, {whole} over {parts} ranks = {width}, is no multiple of {block}: blocks "
            f"of {block} x {block} fp8 weights share a scale and cannot be cut, which vLLM refuses{advice}")
