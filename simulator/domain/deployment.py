"""One replica of a model on accelerators: what memory plans and latency backends are computed from."""
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.domain.dtypes import (
    DTYPE_BITS,
    KV_CACHE_FORMATS,
    UNQUANTIZED_DTYPES,
    KvCacheDtype,
    WeightDtype,
    dtype_bytes,
)
from simulator.domain.experts import Experts
from simulator.domain.hardware_spec import AcceleratorSpec, NodeSpec
from simulator.domain.model_spec import ModelSpec, Quantization
from simulator.domain.parallelism import Parallelism


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """A model, the accelerators it runs on, and how its numbers are stored."""

    model: ModelSpec
    accelerator: AcceleratorSpec | None         # None: only what is stored is asked
    node: NodeSpec | None = None
    parallelism: Parallelism = Parallelism()
    weight_dtype: WeightDtype | None = None     # None: as the checkpoint stores it
    kv_cache_dtype: KvCacheDtype = "auto"       # auto: the model's dtype
    gpu_memory_utilization: Annotated[float, Meta(gt=0, le=1)] = 0.9
    experts: Experts | None = None              # None: evenly loaded, each held once

    @property
    def activation_dtype(self) -> str:
        """Format of activations and of weights that are not quantised."""
        return self.weight_dtype if self.weight_dtype in UNQUANTIZED_DTYPES else self.model.dtype

    @property
    def quantization(self) -> Quantization | None:
        """How matrices are quantised: as stored, or as `weight_dtype` asks."""
        asked, stored = self.weight_dtype, self.model.quantization
        if asked is None or (stored is not None and stored.weight_dtype == asked):
            return stored
        return None if asked in UNQUANTIZED_DTYPES else Quantization(method=asked, weight_dtype=asked)

    @property
    def matrix_dtype(self) -> str:
        """Format of the projections of attention and MLP."""
        quantization = self.quantization
        is_quantized = quantization is not None and quantization.scope == "linear"
        return quantization.weight_dtype if is_quantized else self.activation_dtype

    @property
    def expert_dtype(self) -> str:
        """Format of the projections of routed experts."""
        return self.quantization.weight_dtype if self.quantization else self.activation_dtype

    def format_notes(self) -> list[str]:
        """Return which formats the accelerator computes in another one.

        int4 is not among them: its weights are unpacked wherever they are multiplied.
        """
        dtypes = dict.fromkeys((self.matrix_dtype, self.expert_dtype, self.activation_dtype))
        computed = {dtype: self.accelerator.compute_dtype(dtype) for dtype in dtypes}
        return [f"{self.accelerator.name} computes no {dtype}: products of {dtype} weights are priced as {instead}"
                for dtype, instead in computed.items() if dtype not in (instead, "int4")]

    @property
    def activation_bytes(self) -> float:
        """Bytes of one activation, and of one weight that is not quantised."""
        return dtype_bytes(self.activation_dtype)

    @property
    def matrix_bytes(self) -> float:
        """Bytes of one weight of attention and MLP, its share of scales included."""
        quantization = self.quantization
        is_quantized = quantization is not None and quantization.scope == "linear"
        return quantization.bits_per_weight / 8 if is_quantized else self.activation_bytes

    @property
    def expert_bytes(self) -> float:
        """Bytes of one weight of the routed experts, its share of scales included."""
        return self.quantization.bits_per_weight / 8 if self.quantization else self.activation_bytes

    @property
    def num_expert_slots(self) -> int:
        """Experts of a layer, copies included, that all ranks hold together."""
        redundant = self.experts.num_redundant if self.experts else 0
        return self.model.moe.num_experts + redundant if self.model.moe else 0

    @property
    def kv_cache_bytes(self) -> float:
        """Bytes of one element of the KV cache."""
        if self.kv_cache_dtype == "auto":
            return self.activation_bytes
        return DTYPE_BITS[KV_CACHE_FORMATS.get(self.kv_cache_dtype, self.kv_cache_dtype)] / 8
