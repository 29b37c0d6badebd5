"""vLLM's defaults by card: the largest batch of an API server, and the sizes of CUDA graphs.

Sources: vLLM 0.33.0, 0.32.0 and 0.10.1, vllm/engine/arg_utils.py (get_batch_defaults and its caller; in 0.10.1
_set_default_args_v1), vllm/config/vllm.py (_set_cudagraph_sizes).
"""
from typing import NamedTuple

from simulator.domain.deployment import Deployment
from simulator.domain.model_spec import ModelSpec
from simulator.domain.server_defaults.cards import GIB, Card
from simulator.domain.vllm_versions import VllmBehaviour

TOKENS_OF_BATCHED_EXPERTS = 256     # of the kernels that BATCHED_EXPERTS call
BATCHED_EXPERTS = ("deepep_low_latency", "nixl_ep")
GPT_OSS_GRAPHS = 1024
THROUGHPUT_EXCHANGE = "deepep_high_throughput"      # kernels that no CUDA graph can hold
TOKENS_OF_TPUS = {"tpu-v6e": 1024, "tpu-v5e": 512, "tpu-v5p": 256}


class Limits(NamedTuple):
    """The largest batch in tokens and in sequences, with the rule in words."""

    tokens: int
    seqs: int
    rule: str


class Asked(NamedTuple):
    """The options of a server that its batch limits depend on.

    tokens, seqs : as given; None: left out. max_model_len : None: not known. batched : experts' tokens are exchanged
    by kernels of BATCHED_EXPERTS. twice : performance_mode is throughput. largest_item : tokens of the largest item
    of prompts with items that are computed whole; 0: none.
    """

    tokens: int | None = None
    seqs: int | None = None
    max_model_len: int | None = None
    chunked: bool = True
    batched: bool = False
    twice: bool = False
    largest_item: int = 0


def drops_graphs(exchange: str | None, data_parallel: int, has_experts: bool) -> bool:
    """Return whether DeepEP's kernels for throughput leave vLLM without CUDA graphs.

    torch.compile stays on. Source: vLLM 0.33.0 and 0.32.0, vllm/config/compilation.py, set_splitting_ops_for_v1;
    0.10.1, vllm/platforms/cuda.py.

    exchange : all2all_backend; None: left out.
    """
    return exchange == THROUGHPUT_EXCHANGE and data_parallel > 1 and has_experts


def goes_without_graphs(deployment: Deployment | None) -> bool:
    """Return `drops_graphs` of a deployment; None: it is not known."""
    return deployment is not None and drops_graphs(
        deployment.experts and deployment.experts.all2all_backend, deployment.parallelism.data_parallel,
        deployment.model.moe is not None)


def limits_of(card: Card, behaviour: VllmBehaviour) -> Limits:
    """Return the limits of an API server on a card, before other options change them."""
    limits = _by_memory(card, behaviour)
    if card.name in TOKENS_OF_TPUS:
        return limits._replace(tokens=TOKENS_OF_TPUS[card.name], rule=f"{limits.rule}; the tokens of a TPU")
    return limits


def _by_memory(card: Card, behaviour: VllmBehaviour) -> Limits:
    if behaviour.knows_largest_cards and card.memory_bytes >= 160 * GIB:
        return Limits(16384, 1024, "160 GiB or more")
    if card.memory_bytes >= 70 * GIB and "a100" not in card.title.lower() and not (
            behaviour.gb10_is_small and card.capability == (12, 1)):
        return Limits(8192, 1024, "70 GiB or more, not an A100")
    return Limits(2048, 256, "less than 70 GiB, or an A100")


def batch_limits(limits: Limits, asked: Asked, behaviour: VllmBehaviour) -> tuple[int, int, list[str], bool]:
    """Return tokens and sequences of the largest batch.

    Then the rules, in words, that changed those of the card, and whether the tokens cut the sequences.
    """
    twice, why = 2 if asked.twice else 1, []
    seqs = limits.seqs * twice if asked.seqs is None else asked.seqs
    tokens = asked.tokens
    if tokens is None:
        why += ["256 with batched experts"] if asked.batched else []
        tokens, more = _widened(asked, (TOKENS_OF_BATCHED_EXPERTS if asked.batched else limits.tokens) * twice)
        why += more
        if behaviour.cuts_default_batch and asked.max_model_len is not None and seqs * asked.max_model_len < tokens:
            tokens, why = seqs * asked.max_model_len, [*why, "no more than all sequences hold"]
    why += ["twice in throughput mode"] if asked.twice else []
    is_cut = asked.seqs is None and tokens < seqs
    return tokens, tokens if is_cut else seqs, why, is_cut


def _widened(asked: Asked, tokens: int) -> tuple[int, list[str]]:
    why = []
    if not asked.chunked and asked.max_model_len is not None and asked.max_model_len > tokens:
        tokens, why = asked.max_model_len, ["a whole text without chunked prefill"]
    if tokens < asked.largest_item:
        tokens, why = asked.largest_item, [*why, "the largest image or video"]
    return tokens, why


def is_gpt_oss(model: ModelSpec) -> bool:
    """Return whether a model is of gpt-oss.

    Without an architecture, a model with sinks in full attention is.
    """
    if model.architecture:
        return model.architecture == "GptOssForCausalLM"
    return model.attention is not None and model.attention.sinks


def is_glm_5(model: ModelSpec) -> bool:
    """Return whether a model is of GLM-5."""
    return model.architecture == "GlmMoeDsaForCausalLM"


class Captured(NamedTuple):
    """The options of a server that the sizes of its CUDA graphs depend on.

    query_tokens : of a decoding sequence, 1 + drafts. most : the largest size, where it is given. fine : each size up
    to 32, of performance_mode interactivity.
    """

    tokens: int
    seqs: int
    query_tokens: int = 1
    most: int | None = None
    fine: bool = False


def largest_graph(asked: Captured, behaviour: VllmBehaviour, is_newest_card: bool) -> int:
    """Return the tokens of the largest batch with a graph.

    is_newest_card : compute capability 10.x.
    """
    if asked.most is not None:
        return min(asked.most, asked.tokens)
    query_tokens = asked.query_tokens if behaviour.graphs_count_drafts else 1
    return min(2 * asked.seqs * query_tokens, _cap(behaviour, is_newest_card), asked.tokens)


def graph_sizes(asked: Captured, behaviour: VllmBehaviour, is_newest_card: bool) -> list[int]:
    """Return the sizes that vLLM captures, ascending.

    1, 2, 4, multiples of 8 up to 248, and of 16 from 256 on; in 0.10 all multiples of 8. The largest batch has a
    graph of its own size. So has a batch of all sequences, but in 0.10; with drafts there are also the sizes of
    equally many sequences.
    """
    largest = largest_graph(asked, behaviour, is_newest_card)
    sizes = set(_grid(largest, behaviour, asked.fine))
    if asked.most is None:
        sizes |= {asked.query_tokens * count for count in _counts(asked, behaviour, is_newest_card)}
    if asked.tokens == largest:
        sizes.add(largest)
    return sorted(size for size in sizes if size <= largest)


def _cap(behaviour: VllmBehaviour, is_newest_card: bool) -> int:
    return behaviour.largest_graph_newest if is_newest_card else behaviour.largest_graph


def _counts(asked: Captured, behaviour: VllmBehaviour, is_newest_card: bool) -> list[int]:
    """Return the numbers of sequences with graphs of their own."""
    if not behaviour.graphs_count_drafts:
        return _grid(_cap(behaviour, is_newest_card), behaviour) if asked.query_tokens > 1 else []
    if asked.query_tokens == 1:
        return [asked.seqs]
    most = min(asked.seqs, _cap(behaviour, is_newest_card))
    return [*_grid(most, behaviour), most]


def _grid(most: int, behaviour: VllmBehaviour, fine: bool = False) -> list[int]:
    first = range(1, 33) if fine else (1, 2, 4)
    return [size for size in (*first, *range(8, 256, 8), *range(256, most + 1, behaviour.graph_step)) if size <= most]
