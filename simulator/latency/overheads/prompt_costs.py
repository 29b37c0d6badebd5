"""Gathers of prefill context parallelism, in which ranks divide the prompts.

In each layer of attention the keys and the values of the slices of all n ranks, or of latent attention (MLA) the
latents and the rotated keys, one all-gather each; with an indexer (DSA) its keys besides. Decodes are computed by every
rank and gathered by none. Once an iteration hidden states of all rows, so that each rank samples. Source: vLLM 0.32.0,
vllm/v1/attention/ops/pcp.py (_gather_prefill_cache_inputs and its callers), vllm/v1/worker/gpu/pcp_manager.py
(restore_hidden_states). An all-gather over n ranks sends (n - 1) / n of the gathered buffer over each link: ring bound.
The gathers of experts are in collective/exchanges.py, as for data-parallel ranks.
"""
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from simulator.domain.deployment import Deployment
from simulator.latency.roofline.costs import link_bytes_per_s


class Gather(msgspec.Struct, frozen=True, kw_only=True):
    """An all-gather that an iteration performs `count` times.

    token_bytes : of one row of one rank.
    of_decodes : it gathers all rows; else only rows of prompts.
    latency_ns, link_token_ns : its time without a collective model: fixed, and per row of all ranks.
    """

    count: int
    token_bytes: float
    of_decodes: bool = False
    latency_ns: float = 0.0
    link_token_ns: float = 0.0


def prompt_gathers(deployment: Deployment, collective_us: float, link_efficiency: float) -> tuple[Gather, ...]:
    """Return the gathers in an iteration of a deployment.

    collective_us, link_efficiency : fixed time of each collective, and the share of link bandwidth reached.

    Raises
    ------
    ValueError
        No link between the ranks is known.
    """
    ways = deployment.parallelism
    link = link_bytes_per_s(deployment, ways.expert_ranks) * 1e-9 * link_efficiency
    return tuple(replace(each, latency_ns=collective_us * 1e3,
                         link_token_ns=each.token_bytes * (1 - 1 / ways.prefill_context_parallel) / link)
                 for each in _gathers(deployment))


def _gathers(deployment: Deployment) -> Iterator[Gather]:
    model, element = deployment.model, deployment.activation_bytes
    for attention, layers, _ in model.attentions:
        part = attention.shard(deployment.parallelism.tensor_parallel)
        for width in (*part.cached_widths, *([part.indexer.head_dim] if part.indexer else [])):
            yield Gather(count=layers, token_bytes=width * element)
    yield Gather(count=1, token_bytes=model.hidden_size * element, of_decodes=True)
