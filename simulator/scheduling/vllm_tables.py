"""Tables below [engine] of the scheduler `vllm`: LoRA, structured outputs, encoders of images, held KV."""
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.domain.drawn_times import DrawnTime, drawn
from simulator.domain.encoder_profile import UNLIMITED
from simulator.domain.grammar_times import USUAL_VOCABULARY, Grammar, Kind, compile_time

Tokens = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Slots = Annotated[int, Meta(ge=1, le=2**16)]
Rate = Annotated[float, Meta(gt=0, le=1e9)]
Time = Annotated[float, Meta(ge=0, le=1e12)]
# Measured on 10,000 JSON schemas, one thread; a lognormal distribution with these medians and means has their 99th
# percentiles of compilation within 5 %, but yields fewer very long masks. Source: guidance-ai/jsonschemabench,
# maskbench/README.md, at 00c3d018: xgrammar 0.1.10 and llguidance.
PUBLISHED = {
    "xgrammar": (DrawnTime(distribution="lognormal", median=540.0, mean=4140.0),
                 DrawnTime(distribution="lognormal", median=8.0, mean=292.0)),
    "guidance": (DrawnTime(value=1.6), DrawnTime(distribution="lognormal", median=36.0, mean=47.0)),
}


class LoraParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """LoRA adapters, [engine.lora].

    A request is passed over while its adapter has no slot, and others overtake it; running requests keep theirs. An
    adapter that the worker lacks is loaded before the first iteration that needs it, while all requests wait.
    Source: vLLM 0.32.0, vllm/config/lora.py, vllm/v1/core/sched/scheduler.py, vllm/lora/worker_manager.py.
    """

    max_loras: Annotated[Slots, Meta(description="adapters in a batch, and on the accelerator")] = 1
    max_cpu_loras: Annotated[Slots | None, Meta(description="adapters in host memory; default max_loras")] = None
    rank: Annotated[int, Meta(ge=1, le=4096, extra={"unit": "of matrices"}, description=(
        "rank of each adapter, which determines its size"))] = 16
    adapter_mb: Annotated[Rate | None, Meta(extra={"unit": "MB"}, description=(
        "size of each adapter; default: all projections of attention and MLP in 16 bits"))] = None
    disk_gb_per_s: Annotated[Rate | None, Meta(description=(
        "read rate of an adapter that is not in host memory; absent: reads take no time"))] = None
    h2d_gb_per_s: Annotated[Rate | None, Meta(description=(
        "copy rate of an adapter to the accelerator; absent: copies take no time"))] = None
    step_factor: Annotated[float, Meta(ge=1, le=100, description=(
        "factor on the time of an iteration with any adapter"))] = 1.1
    per_adapter_us: Annotated[Time, Meta(description="time added to an iteration per adapter in it")] = 0.0

    def __post_init__(self):
        if self.max_cpu_loras is not None and self.max_cpu_loras < self.max_loras:
            raise ValueError(f"max_cpu_loras = {self.max_cpu_loras} is below max_loras = {self.max_loras}: host memory "
                             "holds what the accelerator does")

    @property
    def takes_time_to_load(self) -> bool:
        """Return whether the size of adapters matters."""
        return self.disk_gb_per_s is not None or self.h2d_gb_per_s is not None


class StructuredOutputParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Grammars of structured outputs, [engine.structured_outputs].

    A grammar is compiled when its first request arrives, beside the engine; requests that need it are passed over until
    then. In each iteration the host masks the logits of all requests with grammars, beside the forward pass.
    Source: vLLM 0.32.0, vllm/v1/structured_output/__init__.py, vllm/v1/engine/core.py.
    """

    fraction: Annotated[float, Meta(ge=0, le=1, extra={"unit": "share"}, description=(
        "share of requests with a grammar, drawn; 0: requests have the values of the trace's column grammar"))] = 0.0
    num_grammars: Annotated[int, Meta(ge=0, le=2**20, description=(
        "different grammars among drawn ones, equally likely; 0: each request has its own"))] = 0
    failing_fraction: Annotated[float, Meta(ge=0, le=1, description=(
        "share of grammars that do not compile, drawn; their requests fail"))] = 0.0
    failing: Annotated[tuple[str, ...], Meta(description="names of grammars of the trace that do not compile")] = ()
    backend: Annotated[Literal["xgrammar", "guidance"], Meta(description=(
        "compiler of grammars; its published times are the defaults of compile_ms and mask_us"))] = "xgrammar"
    compile_ms: Annotated[Time | DrawnTime | None, Meta(description="time to compile a grammar, drawn for each")] = None
    kind: Annotated[Kind | None, Meta(description=(
        "kind of each grammar, for compile_ms as measured with xgrammar 0.2.8 and llguidance 1.9. json: any object; "
        "json_schema: types and enums; constrained_schema: with lengths, patterns, formats and ranges; absent: the "
        "published times of 10,000 JSON schemas, of xgrammar 0.1.10 and llguidance 0.6.7"))] = None
    size: Annotated[Annotated[int, Meta(ge=1, le=10**6)] | None, Meta(extra={"unit": "parts"}, description=(
        "with kind: properties of the schema, atoms of the regular expression, rules of the EBNF grammar; default: "
        "16"))] = None
    new_lengths: Annotated[int, Meta(ge=0, le=10**4, description=(
        "with a schema as kind: its strings with a maxLength that no earlier grammar had, nor, up to 128, a longer "
        "one; xgrammar compiles each of their characters"))] = 0
    max_length: Annotated[int, Meta(ge=1, le=2**31 - 1, extra={"unit": "characters"}, description=(
        "maxLength of these strings"))] = 64
    vocabulary: Annotated[Annotated[int, Meta(ge=1, le=2**31 - 1)] | None, Meta(extra={"unit": "tokens"}, description=(
        "with kind: entries of the tokenizer; default: the model's, without [model] 131,072"))] = None
    mask_us: Annotated[Time | DrawnTime | None, Meta(description=(
        "time to fill a mask, drawn for each; a sequence has one, and one more per draft"))] = None
    draft_valid_rate: Annotated[float, Meta(ge=0, le=1, extra={"unit": "share"}, description=(
        "share of drafted tokens that the grammar of a request admits, drawn for each position of its text if all "
        "drafts before it are admitted; the first draft not admitted and those behind it are not verified"))] = 1.0
    cpus: Annotated[int, Meta(ge=0, le=4096, description=(
        "CPUs of the host: half of them compile, and up to 8 mask if more than 128 requests have grammars; 0: no limit "
        "on compilations"))] = 16

    def __post_init__(self):
        if self.kind is None and (self.size, self.new_lengths, self.max_length, self.vocabulary) != (None, 0, 64, None):
            raise ValueError("size, new_lengths, max_length and vocabulary describe a grammar: kind is missing")
        if self.kind is not None and self.compile_ms is not None:
            raise ValueError("kind and compile_ms both give the time to compile; give one of them")
        if self.new_lengths and self.kind not in ("json_schema", "constrained_schema"):
            raise ValueError(f'new_lengths: expected 0 with kind = "{self.kind}": only schemas have lengths')
        if self.kind == "json" and self.size is not None:
            raise ValueError('size: expected none with kind = "json", one grammar for any object')

    @property
    def grammar(self) -> Grammar | None:
        """Each grammar, as compilers see it; None: its time is given or published."""
        if self.kind is None:
            return None
        return Grammar(self.kind, self.size or 16, self.new_lengths, self.max_length,
                       self.vocabulary or USUAL_VOCABULARY)

    @property
    def compile_time(self) -> DrawnTime:
        """Milliseconds of one worker to compile a grammar."""
        if self.grammar is not None:
            return compile_time(self.grammar, self.backend, self.cpus)
        return PUBLISHED[self.backend][0] if self.compile_ms is None else drawn(self.compile_ms)

    @property
    def mask_time(self) -> DrawnTime:
        """Microseconds to fill a mask."""
        return PUBLISHED[self.backend][1] if self.mask_us is None else drawn(self.mask_us)


WHY_NO_OLD_ENCODER = "what vLLM 0.10 keeps of images is by request, and not built; leave vllm_version at \"0.32\""


class ItemParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Items that a prompt may have, as vLLM's --limit-mm-per-prompt has them.

    Without images and videos the encoder is not loaded. The profile run before KV blocks are counted encodes as many of
    the largest as its budget has room for.
    """

    image: Annotated[int, Meta(ge=0, le=2**31 - 1, description="images of a prompt; 0: none are taken")] = UNLIMITED
    video: Annotated[int, Meta(ge=0, le=2**31 - 1, description="videos of a prompt; 0: none are taken")] = UNLIMITED


class EncoderParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Encoders of images and the like, [engine.encoder].

    They compute embeddings on the accelerators of the model, before it; or, in a pool with role = "encode", on those of
    the pool, before requests are routed. A step, or a batch of that pool, encodes at most its budget, and the cache of
    embeddings is limited: both limits are at least the largest item. vLLM has no flag for either.
    Source: vLLM 0.32.0, vllm/v1/core/encoder_cache_manager.py, vllm/config/scheduler.py.
    """

    us_per_embedding: Annotated[Time | None, Meta(description=(
        "time that an embedding adds to the step that computes it; default: the roofline's time of each item, if "
        "[model] has a vision tower of known shape and [hardware] is named, else 0"))] = None
    tokens_per_s: Annotated[Annotated[float, Meta(ge=1e-3, le=1e15)] | None, Meta(
        extra={"unit": "embeddings/s"}, description="us_per_embedding as a rate")] = None
    cache_tokens: Annotated[Tokens | None, Meta(extra={"unit": "embeddings"}, description=(
        "embeddings that the cache holds; default max_num_batched_tokens"))] = None
    max_num_encoder_input_tokens: Annotated[Tokens | None, Meta(extra={"unit": "embeddings"}, description=(
        "most embeddings that a step computes; default max_num_batched_tokens"))] = None
    disable_chunked_mm_input: Annotated[bool, Meta(description=(
        "no chunk of a prompt ends inside an item unless it begins inside that item"))] = False

    def __post_init__(self):
        if self.us_per_embedding is not None and self.tokens_per_s is not None:
            raise ValueError("us_per_embedding and tokens_per_s say the same; give one of them")

    @property
    def is_priced(self) -> bool:
        """Whether the time of an embedding is given."""
        return self.us_per_embedding is not None or self.tokens_per_s is not None

    @property
    def embedding_us(self) -> float:
        """Time per embedding, in us."""
        return 1e6 / self.tokens_per_s if self.tokens_per_s is not None else self.us_per_embedding or 0.0


class KvRetentionParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """KV blocks held for programs while tools run, [engine.kv_retention].

    A program is a session; its client declares that a turn follows. Held blocks are reused only when no other block is
    free. Sources: arXiv 2511.02230 (Continuum: ttl), 2402.01869 (InferCept: preserve), 2507.07400 (KVFlow: predicted).
    """

    policy: Annotated[Literal["lru", "ttl", "pin", "predicted"], Meta(description=(
        "lru: no block is held, as in vLLM; ttl: blocks of a turn are held for ttl_s after its end, and those that "
        "would be held least long are given back first; pin: until the program's next turn, and those held longest "
        "are given back first; predicted: as pin, but those with the farthest expected next turn are given back "
        "first"))] = "lru"
    ttl_s: Annotated[Annotated[float, Meta(ge=0, le=1e6)] | None, Meta(description=(
        "longest time for which blocks are held after a turn's end; needed by ttl, and of it alone"))] = None
    max_share: Annotated[float, Meta(gt=0, le=1, description=(
        "share of the KV blocks that is held and in use by no request, at most"))] = 1.0
    error_sigma: Annotated[float, Meta(ge=0, le=10, extra={"unit": "log"}, description=(
        "of predicted: sigma of the log-normal factor, of mean 1, between the expected and the true duration of a "
        "tool"))] = 0.0

    def __post_init__(self):
        if (self.ttl_s is None) == (self.policy == "ttl"):
            raise ValueError('ttl_s and policy = "ttl" take each other, '
                             f'found policy = "{self.policy}" {"with" if self.ttl_s is not None else "without"} ttl_s')
        if self.error_sigma > 0 and self.policy != "predicted":
            raise ValueError(f'error_sigma takes policy = "predicted", found "{self.policy}"')
        if self.max_share < 1 and self.policy == "lru":
            raise ValueError(f'max_share takes a policy that holds blocks, found {self.max_share} with "lru"')
