"""One replica of a model on accelerators: input of memory plans and latency backends."""
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.domain.dtypes import (
    DTYPE_BITS,
    KV_CACHE_FORMATS,
    UNQUANTIZED_DTYPES,
    KvCacheDtype,
    WeightFormat,
    dtype_bytes,
)
from simulator.domain.experts import Experts
from simulator.domain.hardware_spec import AcceleratorSpec, NodeSpec
from simulator.domain.matrix_formats import MainFormats
from simulator.domain.model_spec import NAMED_FORMATS, ModelSpec, Quantization, named_format
from simulator.domain.parallelism import Parallelism

BLACKWELL = ("Blackwell", "Blackwell Ultra")    # architectures; with a scale-up link compute capability 10.x


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """A model, the accelerators it runs on, and how its numbers are stored."""

    model: ModelSpec
    accelerator: AcceleratorSpec | None         # None: only stored sizes are needed
    node: NodeSpec | None = None
    parallelism: Parallelism = Parallelism()
    weight_dtype: WeightFormat | None = None    # None: as the checkpoint stores it
    kv_cache_dtype: KvCacheDtype = "auto"       # auto: as the checkpoint declares, else the model's dtype
    gpu_memory_utilization: Annotated[float, Meta(gt=0, le=1)] = 0.9
    experts: Experts | None = None              # None: evenly loaded, each held once

    @property
    def activation_dtype(self) -> str:
        """Format of activations and of weights that are not quantised."""
        return self.weight_dtype if self.weight_dtype in UNQUANTIZED_DTYPES else self.model.dtype

    @property
    def quantization(self) -> Quantization | None:
        """Quantisation of matrices: as stored, or as `weight_dtype` sets it."""
        asked, stored = self.weight_dtype, self.model.quantization
        if asked is None or (stored is not None and stored.is_format(asked)):
            return stored
        return None if asked in UNQUANTIZED_DTYPES else named_format(asked)

    def format_faults(self) -> list[str]:
        """Return why the weights cannot be stored in the given format."""
        named = NAMED_FORMATS.get(self.weight_dtype)
        if named is None or named.scope != "experts" or self.model.moe is not None:
            return []
        return [f"dtype: {self.weight_dtype} is a format of routed experts, {self.model.name} has none; for weights of "
                "4 bits: nvfp4, awq, gptq, int4_wo"]

    @property
    def _main_formats(self) -> MainFormats | None:
        """The formats of most weights, of a checkpoint with formats of single matrices."""
        quantization = self.quantization
        return self.model.main_formats if quantization is not None and quantization.matrices else None

    @property
    def matrix_quantization(self) -> Quantization | None:
        """Quantisation of the projections of attention and MLP.

        Of most, where they differ.
        """
        if mains := self._main_formats:
            return Quantization.of_format(mains.dense)
        quantization = self.quantization
        return quantization if quantization is not None and quantization.scope == "linear" else None

    @property
    def expert_quantization(self) -> Quantization | None:
        """Quantisation of the projections of routed experts."""
        mains = self._main_formats
        return Quantization.of_format(mains.experts) if mains else self.quantization

    @property
    def matrix_dtype(self) -> str:
        """Format of the projections of attention and MLP."""
        quantization = self.matrix_quantization
        return quantization.weight_dtype if quantization else self.activation_dtype

    @property
    def matrix_product_dtype(self) -> str:
        """Format in which these projections are multiplied, if the accelerator has it."""
        quantization = self.matrix_quantization
        return (quantization and quantization.multiplied_as) or self.matrix_dtype

    @property
    def expert_product_dtype(self) -> str:
        """Format in which routed experts are multiplied, if the accelerator has it."""
        quantization = self.expert_quantization
        return (quantization and quantization.multiplied_as) or self.expert_dtype

    @property
    def multiplies_fp8(self) -> bool:
        """Whether the accelerator multiplies in fp8.

        Others unpack such weights, and quantise no activations.
        """
        return self.accelerator is not None and self.accelerator.dense_flops_per_s.fp8 > 0.0

    @property
    def expert_dtype(self) -> str:
        """Format of the projections of routed experts."""
        quantization = self.expert_quantization
        return quantization.weight_dtype if quantization else self.activation_dtype

    def format_notes(self) -> list[str]:
        """Return notes on converted formats.

        Formats that the accelerator computes in another format, and a KV cache that `auto` quantises.

        int4 is not among them: its weights are unpacked wherever they are multiplied.
        """
        dtypes = dict.fromkeys((self.matrix_product_dtype, self.expert_product_dtype, self.activation_dtype))
        computed = {dtype: self.accelerator.compute_dtype(dtype) for dtype in dtypes}
        return [f"{self.accelerator.name} computes no {dtype}: products of {dtype} weights are priced as {instead}"
                for dtype, instead in computed.items() if dtype not in (instead, "int4")] + (
                    self.product_notes() + self.checkpoint_notes() + self._left_notes())

    def product_notes(self) -> list[str]:
        """Return notes on weights that are multiplied in another than their own format."""
        pairs = dict.fromkeys(((self.matrix_dtype, self.matrix_product_dtype),
                               (self.expert_dtype, self.expert_product_dtype)))
        return [f"products of {stored} weights with activations in {other} are in {other}; tables of operators have "
                f"none, and stand in by their products of {stored} weights"
                for stored, other in pairs if stored != other]

    def _unquantized(self) -> dict:
        quantization = self.quantization
        return quantization.unquantized.parts() if quantization and quantization.unquantized else {}

    def _left_notes(self) -> list[str]:
        """Return which parts are priced in another format than that of some of their layers."""
        if mains := self._main_formats:
            formats = {part: stored.weight_dtype if stored else self.activation_dtype
                       for part, stored in mains.parts.items()}
            return [f"{part} is stored in {dtype}, and priced as {self.matrix_dtype}"
                    for part, dtype in formats.items() if dtype not in (self.matrix_dtype, self.activation_dtype)]
        return [f"{part} of {len(layers)} of {self.model.num_layers} layers stays in {self.activation_dtype}, and is "
                f"priced as {self.activation_dtype if self.leaves(part) else self.matrix_dtype} in all"
                for part, layers in self._unquantized().items() if layers != "all" and layers]

    def checkpoint_notes(self) -> list[str]:
        """Return notes on the checkpoint: its files, and the KV cache that `auto` follows."""
        notes = [self.model.checkpoint_note] if self.model.checkpoint_note else []
        if self.kv_cache_dtype != "auto" or self.declared_kv_cache_dtype == "auto":
            return notes
        has_declared = self.quantization is not None and self.quantization.kv_cache_dtype
        by = self.model.name + " declares" if has_declared else f"the attention of {self.model.name} has"
        return [*notes, f"{by} a KV cache in {self.kv_cache_format}: kv_cache_dtype = \"auto\" stores it so, as vLLM "
                        "does"]

    def leaves(self, part: str) -> bool:
        """Return whether a part stays in the model's dtype in most layers.

        part : a name of `Quantization.unquantized`.
        """
        if mains := self._main_formats:
            return mains.parts.get(part) is None
        layers = self._unquantized().get(part, ())
        return layers == "all" or 2 * len(layers) > self.model.num_layers

    @property
    def activation_bytes(self) -> float:
        """Bytes of one activation, and of one weight that is not quantised."""
        return dtype_bytes(self.activation_dtype)

    @property
    def matrix_bytes(self) -> float:
        """Bytes of one weight of attention and MLP, its share of scales included."""
        quantization = self.matrix_quantization
        return quantization.bits_per_weight / 8 if quantization else self.activation_bytes

    @property
    def expert_bytes(self) -> float:
        """Bytes of one weight of the routed experts, its share of scales included."""
        quantization = self.expert_quantization
        return quantization.bits_per_weight / 8 if quantization else self.activation_bytes

    @property
    def num_expert_slots(self) -> int:
        """Experts of a layer, copies included, that all ranks hold together."""
        redundant = self.experts.num_redundant if self.experts else 0
        return self.model.moe.num_experts + redundant if self.model.moe else 0

    @property
    def declared_kv_cache_dtype(self) -> str:
        """Resolved kv_cache_dtype: `auto` is the checkpoint's dtype, if it declares one.

        Source: vllm-project/vllm, vllm/utils/torch_utils.py at 959009b402c3 (resolve_kv_cache_dtype_string) for
        ModelOpt, vllm/model_executor/layers/attention/attention.py for kv_cache_scheme of compressed-tensors; the
        draft model of speculative decoding shares the cache's format.
        """
        declared = self.quantization.kv_cache_dtype if self.quantization else None
        return (declared or self.model.kernel_cache or "auto") if self.kv_cache_dtype == "auto" else self.kv_cache_dtype

    @property
    def kv_cache_format(self) -> str:
        """Format of the elements of the KV cache."""
        dtype = self.declared_kv_cache_dtype
        return self.activation_dtype if dtype == "auto" else KV_CACHE_FORMATS.get(dtype, dtype)

    @property
    def kv_cache_bytes(self) -> float:
        """Bytes of one element of the KV cache."""
        return DTYPE_BITS[self.kv_cache_format] / 8
