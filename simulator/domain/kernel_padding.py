"""Padding of MXFP4 experts in memory, beyond the checkpoint: kernels round their sides up.

Source: vllm/model_executor/layers/quantization/mxfp4.py (create_weights, get_mxfp4_backend) and, since 2026,
layers/fused_moe/oracle/mxfp4.py, which prefers FlashInfer's kernels on Blackwell, Triton's on Hopper, and Marlin's
where neither run. Start-up logs of vLLM: gpt-oss-120b takes 65.97 GiB with Marlin's (H100, 0.10.1: issue 23278),
64.38 GiB with Triton's (H100, 0.14.1: issue 33155), gpt-oss-20b 13.72 GiB with Marlin's (A100, 0.19). Triton's layout
for Hopper rounds one side up, to multiples of 256: the size that this gives is 0.3 % above that log.
"""
from typing import NamedTuple

from simulator.domain.deployment import Deployment
from simulator.domain.hardware_spec import AcceleratorSpec

MXFP4_GROUP = 32                                # weights that share a scale


class Rounding(NamedTuple):
    """A kernel, and the multiples to which it rounds the sides of experts."""

    kernel: str
    hidden: int
    intermediate: int


MARLIN = Rounding("Marlin", 256, 128)
TRITON = Rounding("Triton", 256, 1)
FLASHINFER = Rounding("FlashInfer TRTLLM", 256, 256)
CDNA3, CDNA4 = Rounding("Triton", 128, 128), Rounding("Triton", 256, 256)
BY_ARCHITECTURE = {"Hopper": TRITON, "Ada": MARLIN, "Ampere": MARLIN, "Turing": MARLIN, "Volta": MARLIN,
                   "Blackwell": FLASHINFER, "Blackwell Ultra": FLASHINFER, "CDNA3": CDNA3, "CDNA4": CDNA4}


def rounding_of(accelerator: AcceleratorSpec, is_old: bool = False) -> Rounding | None:
    """Return the kernel of experts in MXFP4 on an accelerator; None: none is known.

    is_old : vLLM 0.10, which has Marlin's on Hopper. Blackwell without NVLink (compute capability 12) has them, too.
    """
    rounding = BY_ARCHITECTURE.get(accelerator.architecture)
    if (rounding is TRITON and is_old) or (rounding is FLASHINFER and not accelerator.scaleup_bytes_per_s):
        return MARLIN
    return rounding


def expert_padding(deployment: Deployment, is_old: bool = False) -> tuple[float, str]:
    """Return (bytes of experts in memory / in the checkpoint, the kernel).

    (1, ""): without padding.
    """
    quantization, model = deployment.quantization, deployment.model
    is_mxfp4 = quantization is not None and (
        quantization.weight_dtype, quantization.group_size) == ("fp4", MXFP4_GROUP)
    rounding = rounding_of(deployment.accelerator, is_old) if is_mxfp4 and model.moe else None
    if rounding is None:
        return 1.0, ""
    width, local = model.hidden_size, model.moe.intermediate_size / deployment.parallelism.expert_cuts
    return rounded(width, rounding.hidden) * rounded(local, rounding.intermediate) / (width * local), rounding.kernel


def rounded(count: float, multiple: int) -> float:
    """Return a count rounded up to a multiple."""
    return -(-count // multiple) * multiple if multiple > 1 else count
