"""Token mixers: the questions that engines, memory plans and latency backends ask of a kind.

The work of a mixer is numbers (`passes`, `state_flops_per_token`), which the roofline prices; tables and trained models
price the kinds that they have, by key, and refuse others by name.
"""
from typing import ClassVar, NamedTuple

from msgspec.structs import replace

from simulator.domain.layers.base import STATE_BYTES, Part, Product, Small


class Pass(NamedTuple):
    """A pass of queries over their context in one layer; FLOPs: 2 a multiply-add.

    window : tokens of context that a query reads; 0: all.
    pair_flops, decode_flops : per query and context token, of a prompt, of a decode.
    kv_bytes : read of the cache, per context token.
    expand_flops : per context token of a prompt: keys and values made from the cache; 0: the cache holds them.
    latent_flops : as pair_flops, where queries of a prompt read the cache as decodes do; 0: they do not.
    """

    window: float
    pair_flops: int
    decode_flops: int
    kv_bytes: float
    expand_flops: int = 0
    latent_flops: int = 0


class Mixer(Part):
    """Base of all token mixers.

    output_width : that the output projection reads.
    title : in messages. kind : name in the files of models.
    price_key, error_key, profile_key : the kind, or one with equal kernels, that tables and trained models have, that
        laws and errors of the roofline hold for, that profiles of kernels measure.
    backend : family of kernels that engines choose for it: flash, mla (multi-head latent attention), or state.
    kernels : that one layer starts one after another, attention excluded, fused ones counted once.
    launches, prompt_launches : kernels without a CUDA graph, quantising excluded, None: unknown; and how many of these
        decodes alone do without.
    num_inputs : of products, which fp8 weights need quantised.
    cached_widths : of the tensors of a token in one layer's KV cache; read_widths : that attention reads of a token,
        perhaps of another layer's.
    state_elements, state_flops_per_token : that a sequence keeps in one layer; FLOPs of a token that updates them.
    packs_pages : a layer has several caches, with pages of their own in a block: `pages`.
    is_causal : a token attends to those before it; False: to the whole text, of which nothing is kept.
    auto_cache : format that kv_cache_dtype = "auto" is; None: the model's.
    block_size : tokens of a block of KV that its kernels ask for; None: they leave it open.
    kv_is_whole : all ranks hold equal KV of a token, which a host keeps once.
    absorbed_elements : weights of the up-projections that decodes absorb, of which latent attention keeps copies.
    norms_all_heads : one norm is over all heads of queries, one over all of keys.
    lora_widths : projections from or to the hidden state and the sum of their other widths, of adapters; None: unknown.
    """

    title: ClassVar[str]
    backend: ClassVar[str]
    kernels: ClassVar[int]
    launches: ClassVar[int | None] = None
    prompt_launches: ClassVar[int] = 0
    num_inputs: ClassVar[int] = 0
    cached_widths: ClassVar[tuple[int, ...]] = ()
    read_widths = property(lambda self: self.cached_widths)
    state_elements: ClassVar[int] = 0
    state_flops_per_token: ClassVar[int] = 0
    packs_pages = False
    is_causal = True
    auto_cache: ClassVar[str | None] = None
    block_size: ClassVar[int | None] = None
    kv_is_whole: ClassVar[bool] = False
    absorbed_elements: ClassVar[int] = 0
    norms_all_heads: ClassVar[bool] = False
    lora_widths: ClassVar[tuple[int, int] | None] = None
    price_key = error_key = profile_key = kind = property(lambda self: self.__struct_config__.tag)

    @property
    def kv_elements_per_token(self) -> int:
        """Elements a token leaves in one layer's KV cache."""
        return sum(self.cached_widths)

    def token_bytes(self, element_bytes: float, is_packed: bool = False) -> float:
        """Return the bytes of a token in one layer's KV cache.

        is_packed : fp8 elements have their scales beside them, where the kind has such a format.
        """
        return self.kv_elements_per_token * element_bytes

    def aligned_token_bytes(self, element_bytes: float, is_packed: bool = False) -> float:
        """Return the bytes of a token by which hybrids choose the size of a block.

        An indexer's keys are not among them.
        """
        return self.token_bytes(element_bytes, is_packed)

    def state_bytes(self, element_bytes: float, drafts: int = 0) -> float:
        """Return the bytes of a state in one layer.

        element_bytes : of activations. drafts : tokens drafted at a time.
        """
        return 0.0

    def own_windows(self, element_bytes: float) -> list[tuple[int, float]]:
        """Return the windows of the part itself in one layer's KV cache.

        Each is (tokens, bytes of a token).
        """
        return []

    @property
    def rings(self) -> list[tuple[int, float]]:
        """Rings in one layer of the last tokens of a sequence, not compressed yet.

        Each is (tokens, bytes of a token).
        """
        return []

    @property
    def drafting(self) -> "Mixer":
        """The mixer of a multi-token prediction module of a model with layers of this one."""
        return self

    def inner_elements(self, hidden: int) -> float:
        """Return the elements of a token that its projections give."""
        return self.matrix_parameters(hidden) / hidden

    def moved_elements(self, hidden: int) -> float:
        """Return the elements that a token moves: projected, then read by attention."""
        return 3 * self.matrix_parameters(hidden) / hidden

    def products(self, hidden: int) -> list[Product]:
        """Return the products with inputs and outputs, the former as one."""
        inputs = self.matrix_parameters(1) - self.output_width
        return [Product("qkv", inputs, hidden), Product("attention_out", hidden, self.output_width)]


class SoftmaxAttention(Mixer):
    """Base of kinds that attend to a cache of all tokens.

    head_dim, value_dim : of the keys and values that prompts attend to, in num_kv_heads heads.
    flops_per_context_token, decode_flops_per_context_token : q.k and p.v, of a query per token it attends to.
    kernels : norm, products, positions with the write to the cache. between_kernels : norm, positions and write;
        launches : qkv, positions, write, attention, output; norms of queries and keys: two more in either.
    indexer : chooses the tokens that a query attends to. sinks : each head has a learned logit.
    normed_elements : of a token's queries and keys. config_kv_heads : by the model's config.json.
    decode_widths : of query and output of a head where decodes attend.
    expand_flops_per_context_token : of keys and values made for prompts from the cache of a token.
    """

    backend = "flash"
    kernels, num_inputs = 4, 2
    quantizes_output = True
    indexer, sinks, normed_elements, expand_flops_per_context_token = None, False, 0, 0
    config_kv_heads = property(lambda self: self.num_kv_heads)
    output_width = property(lambda self: self.num_heads * self.value_dim)
    cached_widths = property(lambda self: (self.num_kv_heads * self.head_dim, self.num_kv_heads * self.value_dim))
    decode_widths = property(lambda self: (self.head_dim, self.value_dim))

    flops_per_context_token = property(lambda self: 2 * self.num_heads * (self.head_dim + self.value_dim))
    decode_flops_per_context_token = property(lambda self: 2 * self.num_heads * sum(self.decode_widths))
    launches = property(lambda self: 5 + 2 * bool(self.normed_elements))
    between_kernels = property(lambda self: 2 + 2 * bool(self.normed_elements))

    @property
    def small_operators(self) -> list[Small]:
        """Rotary embedding with KV write, and norms of queries and keys."""
        rotated = (self.num_heads + self.num_kv_heads) * self.head_dim + self.kv_elements_per_token
        norms = [Small("qk_norm", 2 * self.normed_elements, 2)] if self.normed_elements else []
        return [Small("rope_kv_write", 2 * rotated), *norms]

    def input_parameters(self, hidden: int) -> int:
        """Count the weights of the projections that read the hidden state."""
        return hidden * (self.num_heads * self.head_dim + self.num_kv_heads * (self.head_dim + self.value_dim))

    def passes(self, element_bytes: float, window: float = 0) -> list[Pass]:
        """Return the passes over the context; `window` of the layers, 0: none."""
        expand, decode = self.expand_flops_per_context_token, self.decode_flops_per_context_token
        return [Pass(window, self.flops_per_context_token, decode, sum(self.read_widths) * element_bytes,
                     expand, decode if expand else 0)]

    def windowed(self, change) -> "SoftmaxAttention":
        """Return the attention of sliding layers, as `change`, a SlidingAttention, has it."""
        return self

    def group_kind(self, change=None) -> str:
        """Return the kind of its groups of KV blocks; `change` as in `windowed`."""
        return "full_attention" if change is None else "chunked_attention" if change.chunked else "sliding_attention"

    def split_widths(self):
        """Yield one width: projections of inputs are one product, which passes."""
        yield "attention's output", self.output_width


class RecurrentState(Mixer):
    """Base of kinds that keep a state of fixed size per sequence: linear attention.

    kernels : those of attention, convolution, gates, recurrence, gated norm. between_kernels : norm, the latter, state.
    convolution : channels that its convolution keeps tokens of, and its taps.
    recurrence_elements : of the state less these tokens. state_dtype : their format; None: the model's.
    writes_states : its kernels also write a state where a block ends inside a chunk.
    flops_per_state_element : of a token, per element of the recurrence: decay and read, rank-one update, read out, 2
        each (arXiv 2412.06464, equation 10). The convolution's are in the time of `small_operators`.
    """

    title = "linear attention"
    backend = "state"
    kernels, between_kernels = 8, 6
    convolution = (0, 1)
    state_dtype, writes_states = None, False
    flops_per_state_element: ClassVar[int] = 6
    state_flops_per_token = property(lambda self: self.flops_per_state_element * self.recurrence_elements)
    state_elements = property(lambda self: self.recurrence_elements + self.convolved_elements(0))

    @property
    def small_operators(self) -> list[Small]:
        """Convolution, gates and gated norm."""
        return [Small("convolution_gates", 3 * self.matrix_parameters(1), 4)]

    def convolved_elements(self, drafts: int) -> int:
        """Return the elements of the tokens that the convolution keeps.

        drafts : tokens drafted at a time, each of which is one more.
        """
        channels, taps = self.convolution
        return channels * (taps - 1 + drafts)

    def state_bytes(self, element_bytes: float, drafts: int = 0) -> float:
        """Return the bytes of a state in one layer.

        element_bytes : of activations. drafts : tokens drafted at a time.

        Source: vLLM 0.33, vllm/model_executor/layers/mamba/mamba_utils.py (MambaStateShapeCalculator).
        """
        own_bytes = STATE_BYTES.get(self.state_dtype, element_bytes)
        return self.recurrence_elements * own_bytes + self.convolved_elements(drafts) * element_bytes

    def with_state_dtype(self, dtype: str) -> "RecurrentState":
        """Return the part with `dtype` for its recurrence, unless it names a format."""
        return replace(self, state_dtype=dtype) if self.recurrence_elements and self.state_dtype is None else self

    def group_kind(self, change=None) -> str:
        """Return the kind of its groups of KV blocks."""
        return "linear_attention"
