"""Reached share of an accelerator's peak, measured or approximated, for the roofline's defaults.

The measured shares are in hardware/, in the table [measured] of an accelerator. An accelerator without them takes the
shares of the one that covers its architecture (`stands_for`); of another maker, the median of all measured ones.
"""
from functools import cache
from statistics import median

from simulator.domain.facts import load_accelerator, names
from simulator.domain.hardware_spec import COMPUTE_FALLBACK, AcceleratorSpec, MeasuredShares

# Format without a measurement -> measured format that replaces it: units of the same kind and rate.
SIMILAR = {
    "float16": "bfloat16", "float32": "bfloat16", "int8": "fp8", "int4": "bfloat16", "fp4": "fp8", "fp8": "bfloat16",
}

# Time of a kernel beyond its bytes and FLOPs: aiconfigurator's mem_empirical_constant_latency, all systems.
KERNEL_LATENCY_US = 3.0
# vLLM's own all-reduce in a CUDA graph, 256 bytes, 2 to 8 accelerators: 4.3-4.7 us on H100 and H200, 4.9-5.7 us on
# A100, 6.6-7.4 us on B200; with 4 to 32 MB the ring volume moves at 0.5-0.75 of link bandwidth. Same source,
# custom_allreduce tables.
COLLECTIVE_LATENCY_US = 5.0
LINK_EFFICIENCY = 0.6
# Bus bandwidth of all-reduces of 512 MiB between two cards on PCIe, as a share of the link's rate: 20.1 of 32 GB/s on
# L40S, 38.6 of 64 GB/s on RTX PRO 6000; aiconfigurator-core 0.12.0, nccl_perf of l40s and rtx_pro_6000_server.
PCIE_SHARE = 0.6


def reached_pcie_bytes_per_s(accelerator: AcceleratorSpec, ranks: int) -> float:
    """Return the bus bandwidth of an all-reduce over PCIe, bytes/s; 0: not known.

    It is as measured, for more ranks than were measured that of the most; not measured, `PCIE_SHARE` of the link.

    ranks : cards without another link.
    """
    measured = accelerator.pcie_bus_bytes_per_s
    if not measured:
        return PCIE_SHARE * accelerator.pcie_bytes_per_s
    return measured[min(max(ranks - 1, 1).bit_length(), len(measured)) - 1]


def efficiency_of(accelerator: AcceleratorSpec) -> MeasuredShares:
    """Return the shares of an accelerator, of its generation, or the median ones."""
    if accelerator.measured:
        return accelerator.measured
    of_generation = (each for each in _all_measured() if accelerator.architecture in each.stands_for)
    return next(of_generation, None) or _typical()


def matmul_efficiency(efficiency: MeasuredShares, dtype: str) -> float:
    """Return the share of peak of products in `dtype`, or in a similar format."""
    while dtype not in efficiency.matmul_frac:
        dtype = SIMILAR[dtype]
    return efficiency.matmul_frac[dtype]


def compute_dtype(accelerator: AcceleratorSpec, dtype: str) -> str:
    """Return the format in which weights stored as `dtype` are multiplied."""
    rates = accelerator.dense_flops_per_s
    return next((each for each in COMPUTE_FALLBACK[dtype] if getattr(rates, each) > 0.0), dtype)


@cache
def _all_measured() -> tuple[MeasuredShares, ...]:
    """Return the measurements of our own accelerators, in order of their names."""
    return tuple(spec.measured for spec in map(load_accelerator, names("hardware")) if spec.measured)


def _typical() -> MeasuredShares:
    values = _all_measured()
    formats = {dtype for each in values for dtype in each.matmul_frac}
    return MeasuredShares(
        source="the median of all that were measured",
        matmul_frac={dtype: median(each.matmul_frac[dtype] for each in values if dtype in each.matmul_frac)
                     for dtype in formats},
        attention_frac=median(each.attention_frac for each in values),
        bandwidth_frac=median(each.bandwidth_frac for each in values),
        attention_us=median(each.attention_us for each in values))
