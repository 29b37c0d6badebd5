"""Exchanges of decode context parallelism, in which each rank attends to its share of the context.

Queries are gathered, each rank attends with the heads of all n ranks to its share, and partial outputs are combined by
the logarithms of their sums: "ag_rs" gathers the logarithms and scatters the outputs, "a2a" sends both at once. With
GQA, vLLM does so for all tokens of a batch, with latent attention (MLA) for decodes; prompts of MLA gather the latents
of their context instead. Source: vLLM 0.32.0, vllm/v1/attention/ops/common.py (cp_lse_ag_out_rs),
dcp_alltoall.py, vllm/v1/attention/backends/flash_attn.py (_forward_with_dcp) and mla/common.py.
"""
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from simulator.domain.deployment import Deployment
from simulator.latency.roofline.costs import link_bytes_per_s

LSE_BYTES = 4                   # of the logarithm of a sum, float32: one per token and head


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """A collective of each layer of full attention.

    kind : of collective, in the words of collective/groups.py.
    layers : in which it happens.
    token_bytes : as collective/base.pxd counts bytes, for each token: of decodes, or of the whole batch
        (`of_prompts`), or of the cached context of prompts (`of_context`).
    latency_ns, link_token_ns : its time without a collective model: fixed, and per token.
    """

    kind: str
    layers: int
    token_bytes: float
    of_prompts: bool = False
    of_context: bool = False
    latency_ns: float = 0.0
    link_token_ns: float = 0.0


def context_exchanges(deployment: Deployment, backend: str, collective_us: float,
                      link_efficiency: float) -> tuple[Exchange, ...]:
    """Return the exchanges of a deployment.

    backend : of topology.dcp_comm_backend.
    collective_us, link_efficiency : fixed time of each collective, and the share of link bandwidth reached.

    Raises
    ------
    ValueError
        No link between the ranks is known.
    """
    degree = deployment.parallelism.decode_context_parallel
    link = link_bytes_per_s(deployment, degree) * 1e-9 * link_efficiency
    return tuple(replace(each, latency_ns=collective_us * 1e3,
                         link_token_ns=each.token_bytes * (1 - 1 / degree) / link)
                 for each in _exchanges(deployment, backend))


def _exchanges(deployment: Deployment, backend: str) -> Iterator[Exchange]:
    model, ways, element = deployment.model, deployment.parallelism, deployment.activation_bytes
    part = model.attention.shard(ways.tensor_parallel // ways.decode_context_parallel)
    layers, (query, output) = model.num_full_attention_layers, part.decode_widths
    of_prompts = not part.expand_flops_per_context_token
    yield Exchange(kind="all_gather", layers=layers, token_bytes=part.num_heads * query * element,
                   of_prompts=of_prompts)
    if backend == "a2a":
        yield Exchange(kind="all_to_all", layers=layers, of_prompts=of_prompts,
                       token_bytes=part.num_heads * (output * element + LSE_BYTES))
    else:
        yield Exchange(kind="all_gather", layers=layers, of_prompts=of_prompts,
                       token_bytes=part.num_heads * LSE_BYTES * ways.decode_context_parallel)
        yield Exchange(kind="reduce_scatter", layers=layers, of_prompts=of_prompts,
                       token_bytes=part.num_heads * output * element)
    if not of_prompts:
        yield Exchange(kind="all_gather", layers=layers, of_context=True,
                       token_bytes=part.kv_elements_per_token * element)
