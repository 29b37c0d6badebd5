"""Tables below [engine] of the scheduler `vllm`: LoRA, structured outputs, encoders of images, held KV."""
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.domain.encoder_profile import UNLIMITED
from simulator.scheduling.adapter_prices import AdapterKeys, Rate
from simulator.scheduling.grammar_tables import BACKEND, Cpus, GrammarKeys

Tokens = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Slots = Annotated[int, Meta(ge=1, le=2**16)]
Time = Annotated[float, Meta(ge=0, le=1e12)]


class LoraParameters(AdapterKeys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """LoRA adapters, [engine.lora].

    A request is passed over while its adapter has no slot, and others overtake it; running requests keep theirs. An
    adapter that the worker lacks is loaded before the first iteration that needs it, while all requests wait.
    Source: vLLM 0.32.0, vllm/config/lora.py, vllm/v1/core/sched/scheduler.py, vllm/lora/worker_manager.py.
    """

    max_loras: Annotated[Slots, Meta(description="adapters in a batch, and on the accelerator")] = 1
    max_cpu_loras: Annotated[Slots | None, Meta(description="adapters in host memory; default max_loras")] = None
    disk_gb_per_s: Annotated[Rate | None, Meta(description=(
        "read rate of an adapter that is not in host memory; absent: reads take no time"))] = None

    def __post_init__(self):
        if self.max_cpu_loras is not None and self.max_cpu_loras < self.max_loras:
            raise ValueError(f"max_cpu_loras = {self.max_cpu_loras} is below max_loras = {self.max_loras}: host memory "
                             "holds what the accelerator does")

    @property
    def slots(self) -> int:
        """Adapters on the accelerator."""
        return self.max_loras


class StructuredOutputParameters(GrammarKeys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Grammars of structured outputs, [engine.structured_outputs].

    A grammar is compiled when its first request arrives, beside the engine; requests that need it are passed over until
    then. In each iteration the host masks the logits of all requests with grammars, beside the forward pass.
    Source: vLLM 0.32.0, vllm/v1/structured_output/__init__.py, vllm/v1/engine/core.py.
    """

    backend: Annotated[Literal["xgrammar", "guidance"], Meta(description=BACKEND)] = "xgrammar"
    draft_valid_rate: Annotated[float, Meta(ge=0, le=1, extra={"unit": "share"}, description=(
        "share of drafted tokens that the grammar of a request admits, drawn for each position of its text if all "
        "drafts before it are admitted; the first draft not admitted and those behind it are not verified"))] = 1.0
    cpus: Annotated[Cpus, Meta(description=(
        "CPUs of the host: half of them compile, and up to 8 mask if more than 128 requests have grammars; 0: no limit "
        "on compilations"))] = 16


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
