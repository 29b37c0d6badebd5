"""How much of its peak an accelerator reaches: measured shares, by accelerator, for the roofline's defaults."""
from statistics import median

import msgspec

from simulator.domain.hardware_spec import COMPUTE_FALLBACK, AcceleratorSpec


class Efficiency(msgspec.Struct, frozen=True, kw_only=True):
    """Measured shares of peak rates (0 to 1), and latencies that no rate explains."""

    matmul: dict[str, float]        # of the peak of the operand format, large matrix products
    attention: float                # of the 16-bit peak, prompt attention
    bandwidth: float                # of memory bandwidth, streaming weights or KV cache
    attention_us: float             # of an attention kernel with next to nothing to do


# Derived from the public operator tables of NVIDIA's aiconfigurator (ai-dynamo/aiconfigurator at commit 095f58a,
# Apache-2.0; vLLM 0.24 kernels, on A100 0.14). matmul: median of products with m >= 2048, n and k >= 4096, of the
# operand format's dense peak. attention: median over prompts of 2048 tokens and more, 16 heads and more, head_dim 128,
# causal pairs counted. bandwidth: median of one-row products with weights of 134 MB and more. attention_us: median over
# decode batches of at most 8 sequences and 256 tokens of context.
MEASURED = {
    "a100-sxm-80gb": Efficiency(matmul={"bfloat16": 0.902}, attention=0.538, bandwidth=0.733, attention_us=18.0),
    "h100-sxm-80gb": Efficiency(
        matmul={"bfloat16": 0.796, "fp8": 0.579}, attention=0.540, bandwidth=0.884, attention_us=12.1),
    "h200-sxm-141gb": Efficiency(
        matmul={"bfloat16": 0.773, "fp8": 0.645}, attention=0.537, bandwidth=0.827, attention_us=11.9),
    "b200-sxm-180gb": Efficiency(
        matmul={"bfloat16": 0.686, "fp8": 0.476, "fp4": 0.417}, attention=0.477, bandwidth=0.817, attention_us=9.1),
    "gb200": Efficiency(
        matmul={"bfloat16": 0.500, "fp8": 0.450, "fp4": 0.391}, attention=0.445, bandwidth=0.812, attention_us=10.8),
    "l40s": Efficiency(
        matmul={"bfloat16": 0.629, "fp8": 0.502}, attention=0.441, bandwidth=0.854, attention_us=10.8),
}
# An accelerator without measurements takes those of its generation; another maker's, the median of all measured ones.
GENERATION = {
    "Ampere": "a100-sxm-80gb", "Hopper": "h100-sxm-80gb", "Ada": "l40s", "Blackwell": "b200-sxm-180gb",
    "Blackwell Ultra": "b200-sxm-180gb",
}
# Formats that were not measured, and the one whose share they take: units of the same kind and rate.
SIMILAR = {
    "float16": "bfloat16", "float32": "bfloat16", "int8": "fp8", "int4": "bfloat16", "fp4": "fp8", "fp8": "bfloat16",
}

# Time of a kernel beyond what its bytes and FLOPs take: aiconfigurator's mem_empirical_constant_latency, all systems.
KERNEL_LATENCY_US = 3.0
# vLLM's own all-reduce in a CUDA graph, 256 bytes, 2 to 8 accelerators: 4.3-4.7 us on H100 and H200, 4.9-5.7 us on
# A100, 6.6-7.4 us on B200; with 4 to 32 MB the ring volume moves at 0.5-0.75 of link bandwidth. Same source,
# custom_allreduce tables.
COLLECTIVE_LATENCY_US = 5.0
LINK_EFFICIENCY = 0.6


def efficiency_of(accelerator: AcceleratorSpec) -> Efficiency:
    """Return the shares of an accelerator, of its generation, or the median ones."""
    name = accelerator.name if accelerator.name in MEASURED else GENERATION.get(accelerator.architecture)
    return MEASURED[name] if name else _typical()


def matmul_efficiency(efficiency: Efficiency, dtype: str) -> float:
    """Return the share of peak of products in `dtype`, or in a similar format."""
    while dtype not in efficiency.matmul:
        dtype = SIMILAR[dtype]
    return efficiency.matmul[dtype]


def compute_dtype(accelerator: AcceleratorSpec, dtype: str) -> str:
    """Return the format in which weights stored as `dtype` are multiplied."""
    rates = accelerator.dense_flops_per_s
    return next((each for each in COMPUTE_FALLBACK[dtype] if getattr(rates, each) > 0.0), dtype)


def _typical() -> Efficiency:
    values = list(MEASURED.values())
    formats = {dtype for each in values for dtype in each.matmul}
    return Efficiency(
        matmul={dtype: median(each.matmul[dtype] for each in values if dtype in each.matmul) for dtype in formats},
        attention=median(each.attention for each in values),
        bandwidth=median(each.bandwidth for each in values),
        attention_us=median(each.attention_us for each in values))
