"""Padding of experts in memory, beyond the checkpoint: kernels round their sides up.

Sources, MXFP4: vllm/model_executor/layers/quantization/mxfp4.py (create_weights, get_mxfp4_backend) and, since 2026,
layers/fused_moe/oracle/mxfp4.py, which for gpt-oss prefers FlashInfer's kernels on Blackwell, Triton's on Hopper, and
Marlin's where neither run; for other models Marlin's in place of Triton's. Start-up logs of vLLM: gpt-oss-120b takes
65.97 GiB with Marlin's (H100, 0.10.1: issue 23278), 64.38 GiB with Triton's (H100, 0.14.1: issue 33155), gpt-oss-20b
13.72 GiB with Marlin's (A100, 0.19). Triton's layout for Hopper rounds one side up, to multiples of 256: the size that
this gives is 0.3 % above that log.

NVFP4 and integers, vLLM 0.33: quantization/utils/flashinfer_fp4_moe.py (TRT-LLM's kernels on Blackwell with NVLink),
utils/marlin_utils_fp4.py, utils/marlin_utils.py (marlin_moe_padded_intermediate: whole groups).

Kimi delta attention with a whole gate on its output (Kimi-K3), vLLM 0.32 and 0.33: vllm/models/kimi_k3/nvidia/kda.py
(in_proj_padding); its quantised projections, in blocks of fp8, would be rounded to 128.
"""
from math import lcm
from typing import NamedTuple

from simulator.domain.deployment import Deployment
from simulator.domain.hardware_spec import AcceleratorSpec
from simulator.domain.model_spec import ModelSpec, Quantization

MXFP4_GROUP, NVFP4_GROUP = 32, 16               # weights that share a scale
MARLIN_TILE, PROJECTION_ROWS = 64, 16
NVIDIA = ("Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell", "Blackwell Ultra")


class Rounding(NamedTuple):
    """A kernel, and the multiples to which it rounds the sides of experts."""

    kernel: str
    hidden: int
    intermediate: int


MARLIN = Rounding("Marlin", 256, 128)
TRITON = Rounding("Triton", 256, 1)
FLASHINFER = Rounding("FlashInfer TRTLLM", 256, 128)
OLD_FLASHINFER = FLASHINFER._replace(intermediate=256)          # of vLLM 0.10
CDNA3, CDNA4 = Rounding("Triton", 128, 128), Rounding("Triton", 256, 256)
BY_ARCHITECTURE = {"Hopper": TRITON, "Ada": MARLIN, "Ampere": MARLIN, "Turing": MARLIN, "Volta": MARLIN,
                   "Blackwell": FLASHINFER, "Blackwell Ultra": FLASHINFER, "CDNA3": CDNA3, "CDNA4": CDNA4}


def rounding_of(accelerator: AcceleratorSpec, is_old: bool = False, is_gpt_oss: bool = True) -> Rounding | None:
    """Return the kernel of experts in MXFP4 on an accelerator; None: none is known.

    is_old : vLLM 0.10, which has Marlin's on Hopper. Blackwell without NVLink (compute capability 12) has them, too.
    is_gpt_oss : its kernels add biases; Triton's serve no other model.
    """
    rounding = BY_ARCHITECTURE.get(accelerator.architecture)
    if rounding is TRITON and (is_old or not is_gpt_oss):
        return MARLIN
    if rounding is FLASHINFER:
        return MARLIN if not accelerator.scaleup_bytes_per_s else OLD_FLASHINFER if is_old else FLASHINFER
    return rounding


def expert_padding(deployment: Deployment, is_old: bool = False) -> tuple[float, str]:
    """Return (bytes of experts in memory / in the checkpoint, the kernel).

    (1, ""): without padding.
    """
    quantization, model = deployment.expert_quantization, deployment.model
    if quantization is None or model.moe is None or deployment.accelerator is None:
        return 1.0, ""
    width, local = model.moe.expert_width(model.hidden_size), model.moe.intermediate_size / (
        deployment.parallelism.expert_cuts)
    rounding = _rounding(deployment, quantization, local, is_old)
    if rounding is None:
        return 1.0, ""
    ratio = rounded(width, rounding.hidden) * rounded(local, rounding.intermediate) / (width * local)
    return ratio, rounding.kernel if ratio > 1 or rounding in BY_ARCHITECTURE.values() else ""


def projection_padding(deployment: Deployment, layers: range) -> float:
    """Return the bytes by which input projections of Kimi delta attention grow.

    On one rank. Rows of queries, keys, values, gate, the gate that forgets and updates are one matrix, of a multiple
    of 16 rows.
    """
    model, rows = deployment.model, 0.0
    for layer in layers:
        for part in (mixer.part.shard(deployment.parallelism.tensor_parallel) for mixer in model.layers[layer].mixers):
            if part.kind == "kda" and part.gate_rank == 0 and part.forget_rank:
                rows += -(4 * part.output_width + part.forget_rank + part.num_heads) % PROJECTION_ROWS
    return rows * model.hidden_size * deployment.activation_bytes


def _rounding(deployment: Deployment, quantization: Quantization, local: float, is_old: bool) -> Rounding | None:
    accelerator, group = deployment.accelerator, quantization.group_size
    if (quantization.weight_dtype, group) == ("fp4", MXFP4_GROUP):
        return rounding_of(accelerator, is_old, quantization.method == "mxfp4")
    if is_old or accelerator.architecture not in NVIDIA:
        return None
    if (quantization.weight_dtype, group) == ("fp4", NVFP4_GROUP):
        return _of_nvfp4(accelerator, deployment.model)
    if quantization.weight_dtype in ("int4", "int8") and group > 1 and local % group == 0:
        return Rounding("Marlin, whole groups", 1, lcm(MARLIN_TILE, group))
    return None


def _of_nvfp4(accelerator: AcceleratorSpec, model: ModelSpec) -> Rounding | None:
    is_blackwell = accelerator.architecture.startswith("Blackwell")
    if is_blackwell and not accelerator.scaleup_bytes_per_s:
        return None             # compute capability 12: CUTLASS, which pads nothing
    if is_blackwell:
        return Rounding("TRT-LLM, NVFP4", 256, 64 if model.moe.gated else 128)
    return Rounding("Marlin, NVFP4", 1, 128 if model.moe.expert_width(model.hidden_size) % 128 else 64)


def rounded(count: float, multiple: int) -> float:
    """Return a count rounded up to a multiple."""
    return -(-count // multiple) * multiple if multiple > 1 else count
