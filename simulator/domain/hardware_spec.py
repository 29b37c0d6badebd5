"""Accelerators and the nodes they sit in; also the schemas of hardware/*.toml and hardware/nodes/*.toml."""
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.domain.dtypes import DTYPE_BITS
from simulator.domain.layers.base import Count, Positive

FASTEST = 1e18                                  # bound of every rate, which keeps infinity out
Rate = Annotated[float, Meta(gt=0, le=FASTEST)]
OptionalRate = Annotated[float, Meta(ge=0, le=FASTEST)]     # 0: not known or absent
Share = Annotated[float, Meta(gt=0, le=1)]
Format = Literal["float32", "tf32", "bfloat16", "float16", "fp8", "fp4", "int8", "int4"]    # of operands
# Designs of networks between nodes: simulator/collective/flow/fabrics.py.
NetworkDesign = Literal["spectrum_x", "rail_optimized", "alibaba_hpn_single_plane", "alibaba_hpn_dual_plane",
                        "dcn_single_tor", "dcn_dual_tor"]

ANY = "any"                                     # in place of an accelerator's name: a node that takes every one

# Formats without a rate of their own run at that of the next one listed that the accelerator has: weights are unpacked
# to it before the multiplication, as vLLM's weight-only kernels do.
COMPUTE_FALLBACK = {
    "fp4": ("fp4", "bfloat16", "float16"),
    "fp8": ("fp8", "bfloat16", "float16"),
    "int4": ("bfloat16", "float16"),
    "int8": ("int8", "bfloat16", "float16"),
    "bfloat16": ("bfloat16", "float16", "float32"),
    "float16": ("float16", "bfloat16", "float32"),
    "float32": ("float32",),
}


class DenseFlops(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Peak dense FLOP/s (integer OP/s) by operand format; 0: none published."""

    float32: OptionalRate = 0.0
    tf32: OptionalRate = 0.0
    bfloat16: OptionalRate = 0.0
    float16: OptionalRate = 0.0
    fp8: OptionalRate = 0.0
    fp4: OptionalRate = 0.0
    int8: OptionalRate = 0.0
    int4: OptionalRate = 0.0


class MeasuredShares(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Measured efficiency of an accelerator: shares of its peak, and one latency."""

    source: str                                 # of the measurements
    matmul_frac: dict[Format, Share]            # of the peak of the operand format: large matrix products
    attention_frac: Share                       # of the 16-bit peak: prompt attention
    bandwidth_frac: Share                       # of memory bandwidth: streaming weights or KV cache
    attention_us: Annotated[float, Meta(ge=0, le=1e6)]  # of an attention kernel with next to nothing to do
    stands_for: tuple[str, ...] = ()            # architectures that take these shares where an accelerator has none

    def __post_init__(self):
        if "bfloat16" not in self.matmul_frac:
            raise ValueError("matmul_frac: bfloat16 is missing; other formats without a share take its")


class AcceleratorSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One accelerator; links are per direction, all its links together."""

    name: str = ""                              # default: the file's name
    title: str = ""                             # the vendor's name
    vendor: str = ""
    architecture: str = ""
    source: str = ""
    confidence: Literal["datasheet", "secondary", "mixed", "unofficial", ""] = ""
    note: str = ""

    memory_bytes: Positive                      # as the driver's tool reports it (nvidia-smi), else nominal
    usable_memory_bytes: Count = 0              # memory visible to a process (cudaMemGetInfo); 0: not known
    memory_bandwidth_bytes_per_s: Rate
    l2_cache_bytes: Count = 0
    num_cores: Count = 0                        # streaming multiprocessors; 0: not known
    scaleup_link: str = ""                      # link between accelerators: NVLink, Infinity Fabric, ICI, ...
    scaleup_bytes_per_s: OptionalRate = 0.0     # 0: no such link
    pcie_bytes_per_s: OptionalRate = 0.0
    pcie_bus_bytes_per_s: tuple[Rate, ...] = () # measured bus bandwidth of all-reduces over PCIe, of 2, 4, 8, ... ranks
    scaleout_bytes_per_s: OptionalRate = 0.0    # typical network card per accelerator
    node: str = ""                              # in hardware/nodes/: the usual one, where none is named; "": not known
    tdp_watts: OptionalRate = 0.0

    dense_flops_per_s: DenseFlops
    measured: MeasuredShares | None = None      # None: no measurement known to us

    def flops_per_s(self, dtype: str) -> float:
        """Return the peak dense rate of matrix products with weights stored in `dtype`."""
        return getattr(self.dense_flops_per_s, self.compute_dtype(dtype))

    def compute_dtype(self, dtype: str) -> str:
        """Return the format in which weights stored as `dtype` are multiplied.

        ValueError: the accelerator has none for them.
        """
        for candidate in COMPUTE_FALLBACK[dtype]:
            if getattr(self.dense_flops_per_s, candidate) > 0.0:
                return candidate
        known = ", ".join(format for format in DTYPE_BITS if getattr(self.dense_flops_per_s, format) > 0.0)
        raise ValueError(f"accelerator {self.name} has no compute rate for {dtype}; it has {known or 'none'}")


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One node type; links are per direction and accelerator."""

    name: str = ""                              # default: the file's name
    title: str = ""
    source: str = ""
    note: str = ""

    accelerator: str                            # name in hardware/; "any": the accelerator of the experiment
    num_accelerators: Positive
    host_cpu: str = ""
    scaleup_fabric: str = ""
    scaleup_domain_size: Positive               # accelerators on one scale-up fabric, which may span nodes
    scaleup_bytes_per_s: Rate
    num_nics: Count
    nic_bytes_per_s: OptionalRate               # one card
    scaleout_bytes_per_s: OptionalRate          # network bandwidth of one accelerator
    network: NetworkDesign = "rail_optimized"   # between nodes, as collectives on flows take it
    nics_per_switch: Count = 0                  # network cards of one leaf switch; 0: the design's
    num_spine_switches: Count = 0               # 0: the design's
    spine_bytes_per_s: OptionalRate = 0.0       # of a leaf switch to one spine switch; 0: 50 GB/s

    @property
    def joined(self) -> int:
        """Accelerators that a scale-up fabric joins; without one, a server."""
        return self.scaleup_domain_size if self.scaleup_domain_size > 1 else self.num_accelerators

    def holds(self, accelerator: AcceleratorSpec) -> bool:
        """Return whether the node holds this accelerator."""
        return self.accelerator in (accelerator.name, ANY)
