"""Whether weights that share a scale can be split over ranks: no rank may hold a part of a block or group.

Sources, blocks of fp8: vLLM 0.33, vllm/model_executor/layers/quantization/utils/fp8_utils.py (validate_fp8_block_shape)
for dense layers, quantization/fp8.py (Fp8MoEMethod) and fused_moe/oracle/fp8.py (refine_fp8_moe_block_shape) for
experts; vLLM from 0.32 on divides their blocks further. Projections to queries, keys and values that are one product
are left out: vLLM lets them pass (its pull request 30836). Groups along inputs: quantization/auto_awq.py, auto_gptq.py,
moe_wna16.py (create_weights) for integers, modelopt.py for NVFP4.
"""
from collections.abc import Iterator
from math import gcd, isqrt

from simulator.domain.deployment import Deployment
from simulator.domain.model_spec import Quantization

LEAST_BLOCK = 32            # to which blocks and groups of experts are divided, at least
HALVED = ("awq", "gptq", "inc")         # methods with groups of experts that vLLM halves until they fit


def block_faults(deployment: Deployment, refines: bool = False) -> list[str]:
    """Return why weights with common scales cannot be split over ranks.

    Empty where they can.

    refines : the engine divides blocks of experts until they fit.
    """
    if deployment.parallelism.faults(deployment.model):
        return []
    return list(dict.fromkeys([*_dense_faults(deployment), *_expert_faults(deployment, refines)]))


def _dense_faults(deployment: Deployment) -> Iterator[str]:
    quantization, ranks = deployment.matrix_quantization, deployment.parallelism.tensor_parallel
    block, group = block_edge(quantization), group_of(quantization)
    if ranks == 1 or max(block, group) < 2:
        return
    model = deployment.model
    parts = [part for part, _ in model.mixers if not deployment.leaves("attention")] + [
        part for layer in model.kinds for name, part in layer.named_parts()
        if name != "attention" and not deployment.leaves(name)]
    for part in dict.fromkeys(parts):
        inputs = {"attention's output", "intermediate_size"}            # of projections with split inputs
        for name, width in part.shard(ranks).split_widths():
            if block > 1 and width % block:
                yield _fault(deployment, name, width, ranks, block)
            elif group > 1 and name in inputs and width % group:
                yield _fault(deployment, name, width, ranks, group, f"groups of {group} weights")


def _expert_faults(deployment: Deployment, refines: bool) -> Iterator[str]:
    quantization, moe, cuts = deployment.expert_quantization, deployment.model.moe, deployment.parallelism.expert_cuts
    if moe is None or quantization is None or moe.intermediate_size % cuts:
        return
    name, width = "intermediate_size of an expert", moe.intermediate_size // cuts
    block, group = block_edge(quantization), group_of(quantization)
    hidden = moe.expert_width(deployment.model.hidden_size)
    if block > 1 and width % block and not (refines and gcd(block, width, hidden) >= LEAST_BLOCK):
        yield _fault(deployment, name, width, cuts, block)
    is_halved = quantization.method in HALVED and gcd(group, width, hidden) >= LEAST_BLOCK
    if group > 1 and width % group and not is_halved:
        yield _fault(deployment, name, width, cuts, group, f"groups of {group} weights")


def block_edge(quantization: Quantization | None) -> int:
    """Return the edge of square blocks of fp8 weights that share a scale; 0: none do."""
    if quantization is None or quantization.weight_dtype != "fp8" or not quantization.group_size:
        return 0
    edge = isqrt(quantization.group_size)
    return edge if edge**2 == quantization.group_size else 0


def group_of(quantization: Quantization | None) -> int:
    """Return how many inputs of packed weights share a scale.

    0: all do, or kernels pad, as those of MXFP4.
    """
    if quantization is None or quantization.weight_dtype not in ("int4", "int8", "fp4"):
        return 0
    is_padded = quantization.weight_dtype == "fp4" and quantization.group_size == 32
    return 0 if is_padded or quantization.method == "bitsandbytes" else quantization.group_size


def _fault(deployment: Deployment, name: str, width: int, parts: int, unit: int, shared: str = "") -> str:
    whole = width * parts
    most = next((ranks for ranks in range(parts - 1, 0, -1) if whole % (ranks * unit) == 0), 0)
    advice = f"; the most that goes is {most}" if most else ""
    if "expert" in name and deployment.model.moe.num_experts % deployment.parallelism.expert_ranks == 0:
        advice += f", or expert_parallel = {deployment.parallelism.expert_ranks}"
    shared = shared or f"blocks of {unit} x {unit} fp8 weights"
    return (f"{deployment.model.name}: {name}, {whole} over {parts} ranks = {width}, is no multiple of {unit}: "
            f"{shared} share a scale and cannot be cut, which vLLM refuses{advice}")
