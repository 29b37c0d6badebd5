"""Description of a language model: its shape, and the counts that follow from it.

`ModelSpec` is also the schema of models/*.toml: one field is one key there.
"""
from collections import Counter
from functools import cached_property
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.domain.dtypes import DTYPE_BITS, WeightDtype
from simulator.domain.layer_list import Layer, LayerParts, NamedPart, PlacedMixer, listed_faults
from simulator.domain.layer_spec import Attention, Embedding, LinearAttention
from simulator.domain.layers.base import MAX_LAYERS, Count, Part, Positive
from simulator.domain.layers.networks import Mlp, Moe
from simulator.domain.matrix_formats import HEAD, Layers, MainFormats, StoredMatrices, main_formats
from simulator.domain.stored_format import Format
from simulator.domain.towers import Tower
from simulator.errors import InputErrors, KeyFault

LAYER_LETTERS = {"F": "full_attention", "S": "sliding_attention", "L": "linear_attention", "-": "feed_forward"}


class SlidingAttention(Part):
    """How sliding layers differ from [attention]; 0 keeps its value."""

    window: Positive
    chunked: bool = False                       # Llama-4: the aligned chunk a token is in, not the last tokens
    num_heads: Count = 0
    num_kv_heads: Count = 0
    head_dim: Count = 0
    key_is_value: bool = False
    sinks: bool = False



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
    multiplied_as: WeightDtype | None = None    # of products, where activations differ; None: as stored
    kv_cache_dtype: Literal["fp8", "fp4"] | None = None     # of the checkpoint; None: the model's dtype
    unquantized: Unquantized | None = None      # parts in the scope that nevertheless stay in the model's dtype
    # Formats of all quantised matrices, in place of scope and unquantized; the keys above then are of most weights.
    matrices: tuple[StoredMatrices, ...] = ()

    def __post_init__(self):
        if self.matrices and self.unquantized:
            raise ValueError("unquantized: [[quantization.matrices]] list all matrices that are quantised")

    @classmethod
    def of_format(cls, stored: Format | None) -> "Quantization | None":
        """Return the quantisation of all matrices in one format."""
        return stored and cls(method=stored.method, weight_dtype=stored.weight_dtype, group_size=stored.group_size,
                              scale_bits=stored.scale_bits if stored.group_size else 0,
                              multiplied_as=stored.multiplied_as)

    def leaves(self, part: str, layer: int) -> bool:
        """Return whether a part of a layer stays in the model's dtype."""
        if self.unquantized is None:
            return False
        layers = getattr(self.unquantized, part, ())
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

    parameters: Annotated[int, Meta(ge=1, le=2**50)]
    # exact: an integer of hub or report. counted: by another program, with or without router biases. rounded: a figure
    # of few digits. name: only in the model's name.
    kind: Literal["exact", "counted", "rounded", "name"]
    includes: tuple[Literal["vision", "mtp"], ...] = ()     # counted beside the decoder
    active: Count = 0                           # parameters one token uses, as advertised; 0: not given
    source: str = ""


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """A decoder-only language model.

    Its layers follow `layer_pattern` and the tables attention, sliding_attention, linear_attention, mlp and moe; or
    [[layer_kinds]] list the parts of each, from these tables and [parts].
    """

    name: str = ""                              # default: the file's name
    hf_id: str = ""                             # repository on the Hugging Face hub
    aliases: tuple[str, ...] = ()               # repositories of models of the same shape and formats
    architecture: str = ""                      # of config.json, as model_type
    model_type: str = ""
    source: str = ""                            # source of the facts
    date: str = ""                              # YYYY-MM: month in which they were restated
    note: str = ""
    checkpoint_note: str = ""                   # of a config.json: assumptions, and how files beside it differ

    num_layers: Annotated[int, Meta(ge=1, le=MAX_LAYERS)]
    hidden_size: Positive
    vocab_size: Positive
    max_position_embeddings: Positive           # longest context, tokens
    dtype: Literal["float32", "bfloat16", "float16"]    # of activations, and of weights that are not quantised
    tie_word_embeddings: bool = False           # the output head is the input embedding
    norms_per_layer: Annotated[int, Meta(ge=0, le=8)] = 2
    norm_bias: bool = False                     # LayerNorm with bias; else one vector a norm
    embedding_norm: bool = False                # a norm right after the embedding
    learned_positions: Count = 0                # rows of a table of positions, added to the embedding
    lm_head_bias: bool = False
    has_head: bool = True                       # False: pooling, no token is sampled
    pooler_parameters: Count = 0                # weights behind the last layer, for one vector of a text; on every rank
    dense_mlp_beside_moe: bool = False          # MoE layers run the dense MLP too
    first_dense_layers: Count = 0               # leading layers with the dense MLP instead of experts
    moe_layer_interval: Positive = 1            # the last of every n layers has experts, the others the MLP
    num_mtp_layers: Count = 0                   # multi-token prediction modules, for speculative decoding
    # Their layer: like the model's last, or a window in front of the dense network, as MiMo-V2 and Step-3.x have it.
    mtp_layer: Literal["last", "windowed_dense"] = "last"
    vision_parameters: Count = 0                # vision tower and projector
    unknown_towers: tuple[str, ...] | None = None   # encoders of unknown weights, counted as 0

    # One letter a layer, repeated to num_layers: F full, S sliding, L linear attention. With a "-" in it, every layer
    # is one sublayer: the letter's attention, or for "-" a feed-forward network.
    layer_pattern: Annotated[str, Meta(pattern="^[FSL-]+$")] = "F"

    attention: Attention | None = None
    sliding_attention: SlidingAttention | None = None
    linear_attention: LinearAttention | None = None
    mlp: Mlp | None = None
    moe: Moe | None = None
    parts: dict[str, NamedPart] = {}            # more parts of layers, for layer_kinds
    layer_kinds: tuple[LayerParts, ...] = ()    # empty: layer_pattern gives the layers
    embeddings: tuple[Embedding, ...] = ()      # beside that of tokens
    quantization: Quantization | None = None
    vision: Tower | None = None                 # shape of the vision tower; None: none, or not known
    published: Published | None = None

    def __post_init__(self):
        faults = self._listed_faults() if self.layer_kinds else self._pattern_faults()
        if faults:
            raise ValueError("; ".join(faults))

    def _pattern_faults(self) -> list[str]:
        no_mlp, no_moe = self.mlp is None, self.moe is None
        no_sliding, no_linear = self.sliding_attention is None, self.linear_attention is None
        num_dense = self.feed_forward_types.count("dense") if no_mlp and not no_moe else 0
        faults = {
            "attention: required key is missing": self.attention is None,
            "layer_pattern has S but [sliding_attention] is missing": "S" in self.layer_pattern and no_sliding,
            "layer_pattern has L but [linear_attention] is missing": "L" in self.layer_pattern and no_linear,
            "one of [mlp] and [moe] is needed": no_mlp and no_moe,
            f"[mlp] is missing: {num_dense} layers are dense": num_dense,
            "dense_mlp_beside_moe needs [mlp] and [moe]": self.dense_mlp_beside_moe and (no_mlp or no_moe),
            "first_dense_layers is above num_layers": self.first_dense_layers > self.num_layers,
            "[parts] are of [[layer_kinds]], which are missing": self.parts,
        }
        return [what for what, is_fault in faults.items() if is_fault]

    def _listed_faults(self) -> list[str]:
        rules = {"layer_pattern": "F", "first_dense_layers": 0, "moe_layer_interval": 1, "dense_mlp_beside_moe": False}
        faults = [f"{rule}: [[layer_kinds]] give the layers" for rule, value in rules.items()
                  if getattr(self, rule) != value]
        faults += listed_faults(self.layer_kinds, list(self._named()), self.num_layers)
        return faults or self._table_faults()

    def _table_faults(self) -> list[str]:
        """Return the tables that are missing, of parts that some layers have."""
        mixers = {mixer.kind == "linear_attention" for mixer, _ in self.placed_mixers}
        missing = {"attention": False in mixers and self.attention is None,
                   "linear_attention": True in mixers and self.linear_attention is None,
                   "moe": self.moe is None and any(layer.moe for layer in self.layers)}
        return [f"[{table}] is missing: the part of this kind that most layers have" for table, is_fault in
                missing.items() if is_fault]

    def _named(self) -> dict[str, PlacedMixer | Mlp | Moe]:
        """Return the parts of layers by their names in `LayerParts.parts`."""
        change = self.sliding_attention
        found = {"attention": self.attention and PlacedMixer(self.attention),
                 "sliding_attention": self.attention and change and PlacedMixer(
                     self.attention.windowed(change), change.window, change.chunked),
                 "linear_attention": self.linear_attention and PlacedMixer(self.linear_attention),
                 "mlp": self.mlp, "moe": self.moe}
        found |= {name: PlacedMixer(part.mixer, part.window, part.chunked) if part.mixer else part.other
                  for name, part in self.parts.items()}
        return {name: part for name, part in found.items() if part is not None}

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The parts of each layer; equal layers are equal."""
        named, found = self._named(), [None] * self.num_layers
        if not self.layer_kinds:
            kinds = {pair: self._layer_of(named, *pair)
                     for pair in dict.fromkeys(zip(self._pattern_types, self.feed_forward_types, strict=True))}
            return tuple(kinds[pair] for pair in zip(self._pattern_types, self.feed_forward_types, strict=True))
        for kind in self.layer_kinds:
            parts = [named[name] for name in kind.parts]
            mixers = tuple(part for part in parts if isinstance(part, PlacedMixer))
            others = [part for part in parts if not isinstance(part, PlacedMixer)]
            layer = Layer(mixers, tuple(part for part in others if not part.is_around),
                          self.norms_per_layer if kind.norms is None else kind.norms,
                          tuple(part for part in others if part.is_around))
            for number in kind.layers:
                found[number] = layer
        return tuple(found)

    def _layer_of(self, named: dict, mixer: str, network: str) -> Layer:
        mixers = {"full_attention": ("attention",), "feed_forward": ()}.get(mixer, (mixer,))
        networks = {"dense": ("mlp",), "moe": ("moe",), "both": ("mlp", "moe"), "none": ()}[network]
        return Layer(tuple(named[name] for name in mixers), tuple(named[name] for name in networks),
                     self.norms_per_layer)

    @cached_property
    def kinds(self) -> dict[Layer, tuple[int, ...]]:
        """Layers with equal parts, and their numbers."""
        found: dict[Layer, list[int]] = {}
        for number, layer in enumerate(self.layers):
            found.setdefault(layer, []).append(number)
        return {layer: tuple(numbers) for layer, numbers in found.items()}

    @property
    def _pattern_types(self) -> tuple[str, ...]:
        pattern = self.layer_pattern
        return tuple(LAYER_LETTERS[pattern[i % len(pattern)]] for i in range(self.num_layers))

    @property
    def layer_types(self) -> tuple[str, ...]:
        """Kind of each layer by its first mixer: a value of LAYER_LETTERS."""
        return tuple(layer.mixer_kind for layer in self.layers) if self.layer_kinds else self._pattern_types

    @cached_property
    def feed_forward_types(self) -> tuple[str, ...]:
        """Networks of each layer: dense, moe, both, or none."""
        if self.layer_kinds:
            return tuple(layer.network_kind for layer in self.layers)
        return tuple(self._feed_forward_type(i, kind) for i, kind in enumerate(self._pattern_types))

    def _feed_forward_type(self, layer: int, layer_type: str) -> str:
        if "-" in self.layer_pattern and layer_type != "feed_forward":
            return "none"
        if self.moe is None or layer < self.first_dense_layers:
            return "dense"
        if self.moe_layer_interval > 1 and (layer + 1) % self.moe_layer_interval:
            return "dense"
        return "both" if self.dense_mlp_beside_moe else "moe"

    # Whether tokens attend to those before them alone; else a text is computed whole, and nothing of it is kept.
    is_causal = property(lambda self: all(mixer.is_causal for mixer, _ in self.mixers))

    # Mixers that keep the KV of the whole context, of a window, or a fixed state.
    num_full_attention_layers = property(lambda self: self._num_mixers("full_attention"))
    num_sliding_attention_layers = property(lambda self: self._num_mixers("sliding_attention"))
    num_linear_attention_layers = property(lambda self: self._num_mixers("linear_attention"))

    def _num_mixers(self, kind: str) -> int:
        return sum(count for mixer, count in self.placed_mixers if mixer.kind == kind)

    # Layers with routed experts, and with dense networks alone.
    num_moe_layers = property(lambda self: sum(kind in ("moe", "both") for kind in self.feed_forward_types))
    num_dense_layers = property(lambda self: self.feed_forward_types.count("dense"))

    @property
    def windowed_attention(self) -> Attention | None:
        """The attention of sliding layers: [attention] as changed for them."""
        return self.attention.windowed(self.sliding_attention) if self.sliding_attention else self.attention

    @cached_property
    def placed_mixers(self) -> tuple[tuple[PlacedMixer, int], ...]:
        """Each token mixer at its place, and the number of its layers.

        In this order: full, windowed, linear attention.
        """
        counts = Counter(mixer for layer in self.layers for mixer in layer.mixers)
        order = ("full_attention", "sliding_attention", "linear_attention")
        return tuple(sorted(counts.items(), key=lambda each: order.index(each[0].kind)))

    @property
    def attentions(self) -> list[tuple[Attention, int, int]]:
        """Attention, number of layers and window (0: none), of full and sliding layers."""
        return [(mixer.part, count, mixer.window) for mixer, count in self.placed_mixers
                if mixer.kind != "linear_attention"]

    @property
    def kernel_cache(self) -> str | None:
        """Format in which kernels of attention keep the cache; None: the model's."""
        return next((part.auto_cache for part, _, _ in self.attentions if part.auto_cache), None)

    @property
    def mixers(self) -> list[tuple]:
        """Each token mixer and the number of its layers."""
        return [(mixer.part, count) for mixer, count in self.placed_mixers]

    @cached_property
    def main_formats(self) -> MainFormats | None:
        """The formats of most weights; None: the checkpoint has one for all."""
        rows = self.quantization.matrices if self.quantization else ()
        return main_formats(self.layers, rows, self.hidden_size) if rows else None

    @property
    def head_format(self) -> Format | None:
        """The format of the output head; None: the model's dtype."""
        rows = self.quantization.matrices if self.quantization else ()
        return next((row.format for row in rows if HEAD in row.names), None)

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
    position_parameters = property(lambda self: self.learned_positions * self.hidden_size)

    @property
    def lm_head_parameters(self) -> int:
        """Weights of the output head beyond the input embedding: 0 where tied."""
        if not self.has_head:
            return 0
        matrix = 0 if self.tie_word_embeddings else self.vocab_size * self.hidden_size
        return matrix + self.vocab_size * self.lm_head_bias

    def layer_parameters(self, layer: int) -> int:
        """Count the weights of one layer."""
        return self.layers[layer].num_parameters(self.hidden_size, self.norm_parameters)

    @property
    def num_parameters(self) -> int:
        """Weights of the decoder, without vision tower and MTP modules."""
        norms = self.norm_parameters * (1 + self.embedding_norm) + self.position_parameters
        layers = sum(len(numbers) * layer.num_parameters(self.hidden_size, self.norm_parameters)
                     for layer, numbers in self.kinds.items())
        beside = sum(each.num_parameters(self.hidden_size) for each in self.embeddings)
        return (self.embedding_parameters + self.lm_head_parameters + norms + layers + beside
                + self.around_head_parameters + self.pooler_parameters)

    @property
    def around_head_parameters(self) -> int:
        """Weights that parts around layers have once in the model."""
        around = dict.fromkeys(part for layer in self.kinds for part in layer.around)
        return sum(part.head_parameters(self.hidden_size) for part in around)
