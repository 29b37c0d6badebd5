"""Description of a language model: its shape, and the counts that follow from it.

`ModelSpec` is also the schema of models/*.toml: one field is one key there.
"""
from collections import Counter
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.domain.dtypes import DTYPE_BITS, WeightDtype
from simulator.domain.layer_spec import Attention, LinearAttention
from simulator.domain.layers.base import MAX_LAYERS, Count, Part, Positive
from simulator.domain.layers.networks import Mlp, Moe
from simulator.errors import InputErrors, KeyFault

LAYER_LETTERS = {"F": "full_attention", "S": "sliding_attention", "L": "linear_attention", "-": "feed_forward"}


class SlidingAttention(Part):
    """How sliding layers differ from [attention]; 0 keeps its value."""

    window: Positive
    chunked: bool = False                       # Llama-4: the aligned chunk a token is in, not the last tokens
    num_kv_heads: Count = 0
    head_dim: Count = 0
    key_is_value: bool = False
    sinks: bool = False


Layers = Literal["all"] | tuple[Count, ...]


class Unquantized(Part):
    """Parts with matrices in the model's dtype: in all layers, or in the listed ones."""

    attention: Layers = ()                      # token mixers of any kind
    mlp: Layers = ()                            # dense networks
    shared_experts: Layers = ()
    experts: Layers = ()

    def parts(self) -> dict[str, Layers]:
        """Return the layers of each part that has any."""
        return {part: layers for part in self.__struct_fields__ if (layers := getattr(self, part))}


class Quantization(Part):
    """How weight matrices are stored; embeddings, head, norms, router are not."""

    method: str                                 # fp8, gptq, awq, mxfp4, compressed-tensors, bitsandbytes, ...
    weight_dtype: WeightDtype
    scope: Literal["linear", "experts"] = "linear"    # which matrices of the layers: all, or only the routed experts'
    group_size: Count = 0                       # weights that share one scale; 0: scales are too few to count
    scale_bits: Count = 0                       # bits of scale (and zero point) per group
    kv_cache_dtype: Literal["fp8", "fp4"] | None = None     # of the checkpoint; None: the model's dtype
    unquantized: Unquantized | None = None      # parts in the scope that nevertheless stay in the model's dtype

    def leaves(self, part: str, layer: int) -> bool:
        """Return whether a part of a layer stays in the model's dtype."""
        if self.unquantized is None:
            return False
        layers = getattr(self.unquantized, part)
        return layers == "all" or layer in layers

    @property
    def bits_per_weight(self) -> float:
        """Bits of one weight, its share of the scale included: 4.25 for MXFP4."""
        return DTYPE_BITS[self.weight_dtype] + (self.scale_bits / self.group_size if self.group_size else 0.0)

    def is_format(self, name: str) -> bool:
        """Return whether `name` names this format; a plain dtype leaves scales open."""
        named = NAMED_FORMATS.get(name)
        if named is None:
            return self.weight_dtype == name
        return (self.weight_dtype, self.scope, self.group_size, self.scale_bits) == (
            named.weight_dtype, named.scope, named.group_size, named.scale_bits)


# Weights that share a scale, and its bits. Sources: fp8_block: weight_block_size = [128, 128] and float32
# weight_scale_inv, DeepSeek-V3 (arXiv 2412.19437, 3.3.2) and Qwen3-*-FP8. nvfp4: 16 weights an e4m3 scale, NVIDIA's
# ModelOpt. mxfp4: 32 weights an e8m0 scale, OCP Microscaling 1.0, of experts alone as gpt-oss stores it. awq, gptq: 128
# weights a float16 scale and a 4-bit zero point. int4_wo: the same without a zero point.
NAMED_FORMATS = {
    "fp8_block": Quantization(method="fp8", weight_dtype="fp8", group_size=128 * 128, scale_bits=32),
    "nvfp4": Quantization(method="nvfp4", weight_dtype="fp4", group_size=16, scale_bits=8),
    "mxfp4": Quantization(method="mxfp4", weight_dtype="fp4", scope="experts", group_size=32, scale_bits=8),
    "awq": Quantization(method="awq", weight_dtype="int4", group_size=128, scale_bits=20),
    "gptq": Quantization(method="gptq", weight_dtype="int4", group_size=128, scale_bits=20),
    "int4_wo": Quantization(method="int4_wo", weight_dtype="int4", group_size=128, scale_bits=16),
}


def named_format(name: str) -> Quantization:
    """Return the format of this name; a plain dtype has no scales to count."""
    return NAMED_FORMATS.get(name) or Quantization(method=name, weight_dtype=name)


class Published(Part):
    """A parameter count that the model's authors or its hub page print."""

    parameters: Positive
    kind: Literal["exact", "rounded", "name"]   # an integer of hub or report; rounded; only in the name
    includes: tuple[Literal["vision", "mtp"], ...] = ()     # counted beside the decoder
    active: Count = 0                           # parameters one token uses, as advertised; 0: not given
    source: str = ""


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A decoder-only language model."""

    name: str = ""                              # default: the file's name
    hf_id: str = ""                             # repository on the Hugging Face hub
    source: str = ""                            # source of the facts
    note: str = ""
    checkpoint_note: str = ""                   # how the files beside a config.json differ from it

    num_layers: Annotated[int, Meta(ge=1, le=MAX_LAYERS)]
    hidden_size: Positive
    vocab_size: Positive
    max_position_embeddings: Positive           # longest context, tokens
    dtype: Literal["float32", "bfloat16", "float16"]    # of activations, and of weights that are not quantised
    tie_word_embeddings: bool = False           # the output head is the input embedding
    norms_per_layer: Annotated[int, Meta(ge=0, le=8)] = 2
    norm_bias: bool = False                     # LayerNorm with bias; else one vector a norm
    embedding_norm: bool = False                # a norm right after the embedding
    lm_head_bias: bool = False
    dense_mlp_beside_moe: bool = False          # MoE layers run the dense MLP too
    first_dense_layers: Count = 0               # leading layers with the dense MLP instead of experts
    moe_layer_interval: Positive = 1            # the last of every n layers has experts, the others the MLP
    num_mtp_layers: Count = 0                   # multi-token prediction modules, for speculative decoding
    vision_parameters: Count = 0                # vision tower and projector, loaded but not simulated

    # One letter a layer, repeated to num_layers: F full, S sliding, L linear attention. With a "-" in it, every layer
    # is one sublayer: the letter's attention, or for "-" a feed-forward network.
    layer_pattern: Annotated[str, Meta(pattern="^[FSL-]+$")] = "F"

    attention: Attention
    sliding_attention: SlidingAttention | None = None
    linear_attention: LinearAttention | None = None
    mlp: Mlp | None = None
    moe: Moe | None = None
    quantization: Quantization | None = None
    published: Published | None = None

    def __post_init__(self):
        no_mlp, no_moe = self.mlp is None, self.moe is None
        no_sliding, no_linear = self.sliding_attention is None, self.linear_attention is None
        num_dense = self.num_dense_layers
        faults = {
            "layer_pattern has S but [sliding_attention] is missing": "S" in self.layer_pattern and no_sliding,
            "layer_pattern has L but [linear_attention] is missing": "L" in self.layer_pattern and no_linear,
            "one of [mlp] and [moe] is needed": no_mlp and no_moe,
            f"[mlp] is missing: {num_dense} layers are dense": no_mlp and not no_moe and num_dense,
            "dense_mlp_beside_moe needs [mlp] and [moe]": self.dense_mlp_beside_moe and (no_mlp or no_moe),
            "first_dense_layers is above num_layers": self.first_dense_layers > self.num_layers,
        }
        if any(faults.values()):
            raise ValueError("; ".join(what for what, is_fault in faults.items() if is_fault))

    @property
    def layer_types(self) -> tuple[str, ...]:
        """Kind of each layer: a value of LAYER_LETTERS."""
        pattern = self.layer_pattern
        return tuple(LAYER_LETTERS[pattern[i % len(pattern)]] for i in range(self.num_layers))

    @property
    def feed_forward_types(self) -> tuple[str, ...]:
        """Feed-forward network of each layer: dense, moe, both, or none."""
        return tuple(self._feed_forward_type(i, kind) for i, kind in enumerate(self.layer_types))

    def _feed_forward_type(self, layer: int, layer_type: str) -> str:
        if "-" in self.layer_pattern and layer_type != "feed_forward":
            return "none"
        if self.moe is None or layer < self.first_dense_layers:
            return "dense"
        if self.moe_layer_interval > 1 and (layer + 1) % self.moe_layer_interval:
            return "dense"
        return "both" if self.dense_mlp_beside_moe else "moe"

    # Layers that keep the KV of the whole context, of the last `sliding_attention.window` tokens, or a fixed state.
    num_full_attention_layers = property(lambda self: self.layer_types.count("full_attention"))
    num_sliding_attention_layers = property(lambda self: self.layer_types.count("sliding_attention"))
    num_linear_attention_layers = property(lambda self: self.layer_types.count("linear_attention"))

    # Layers with routed experts, and with the dense MLP alone.
    num_moe_layers = property(lambda self: sum(kind in ("moe", "both") for kind in self.feed_forward_types))
    num_dense_layers = property(lambda self: self.feed_forward_types.count("dense"))

    @property
    def windowed_attention(self) -> Attention:
        """The attention of sliding layers: [attention] as changed for them."""
        return self.attention.windowed(self.sliding_attention) if self.sliding_attention else self.attention

    def mixer(self, layer_type: str):
        """Return the part that mixes tokens in layers of this type, None for feed_forward."""
        return {"full_attention": self.attention, "sliding_attention": self.windowed_attention,
                "linear_attention": self.linear_attention, "feed_forward": None}[layer_type]

    @property
    def attentions(self) -> list[tuple[Attention, int, int]]:
        """Attention, number of layers and window (0: none), of full and sliding layers."""
        window = self.sliding_attention.window if self.sliding_attention else 0
        kinds = ((self.attention, self.num_full_attention_layers, 0),
                 (self.windowed_attention, self.num_sliding_attention_layers, window))
        return [kind for kind in kinds if kind[1]]

    @property
    def mixers(self) -> list[tuple]:
        """Each token mixer and the number of its layers."""
        linear = self.num_linear_attention_layers
        return [kind[:2] for kind in self.attentions] + ([(self.linear_attention, linear)] if linear else [])

    def refuse_unpriced(self, backend: str, priced: tuple[str, ...]) -> None:
        """Raise InputErrors for token mixers with price keys that a latency backend lacks."""
        if unknown := {mixer.kind: mixer.title for mixer, _ in self.mixers if mixer.price_key not in priced}:
            raise InputErrors([KeyFault(f'latency.backend: "{backend}" has no price of {title}, kind = "{kind}", of '
                                        f"{self.name}; it has prices of {', '.join(priced)}")
                               for kind, title in unknown.items()])

    @property
    def kv_elements_per_token(self) -> int:
        """Elements a token adds to all layers' KV caches while windows cover it."""
        return sum(layers * mixer.kv_elements_per_token for mixer, layers in self.mixers)

    # Weights of one norm over the hidden size, and of the input embedding.
    norm_parameters = property(lambda self: self.hidden_size * (2 if self.norm_bias else 1))
    embedding_parameters = property(lambda self: self.vocab_size * self.hidden_size)

    @property
    def lm_head_parameters(self) -> int:
        """Weights of the output head beyond the input embedding: 0 where tied."""
        matrix = 0 if self.tie_word_embeddings else self.vocab_size * self.hidden_size
        return matrix + self.vocab_size * self.lm_head_bias

    def layer_parameters(self, layer: int) -> int:
        """Count the weights of one layer."""
        return self._layers([layer]) + self.norms_per_layer * self.norm_parameters

    def _layers(self, layers) -> int:
        # One layer of each kind is counted once: models have few kinds and many layers.
        layer_types, feed_forward_types = self.layer_types, self.feed_forward_types
        kinds = Counter((layer_types[i], feed_forward_types[i]) for i in layers)
        total = 0
        for (layer_type, feed_forward_type), count in kinds.items():
            has_mlp, has_moe = feed_forward_type in ("dense", "both"), feed_forward_type in ("moe", "both")
            parts = self.mixer(layer_type), has_mlp and self.mlp, has_moe and self.moe
            total += count * sum(part.num_parameters(self.hidden_size) for part in parts if part)
        return total

    @property
    def _norms_and_vocabulary(self) -> int:
        norms = self.norm_parameters * (self.num_layers * self.norms_per_layer + 1 + self.embedding_norm)
        return self.embedding_parameters + self.lm_head_parameters + norms

    @property
    def num_parameters(self) -> int:
        """Weights of the decoder, without vision tower and MTP modules."""
        return self._norms_and_vocabulary + self._layers(range(self.num_layers))
