"""Collectives of an iteration, and their bytes per token."""
from typing import NamedTuple

from simulator.domain.deployment import Deployment


class Exchange(NamedTuple):
    """One collective, repeated over the layers of an iteration.

    group, kind : as in collective.pxd, in lower case.
    count : how often in an iteration.
    token_bytes : per token of the iteration, as the kind counts them.
    sent_bytes : bytes per token that leave each rank.
    span : accelerators over which the ranks of the group are spread.
    """

    group: str
    kind: str
    count: int
    token_bytes: float
    sent_bytes: float
    span: int


def exchanges(deployment: Deployment) -> list[Exchange]:
    """Return the exchanges among the ranks of a replica, per token.

    Tensor parallelism: one all-reduce of tokens x hidden size after each token mixer and each network (arXiv
    1909.08053, section 3). Pipeline: one transfer between stages. A batch is spread evenly over `token_ranks`. The
    gather of the output head is left out.
    """
    model, ways = deployment.model, deployment.parallelism
    token_bytes = model.hidden_size * deployment.activation_bytes / ways.token_ranks
    tensor, hops = ways.tensor_parallel, ways.pipeline_parallel - 1
    found = []
    if tensor > 1:
        count = sum(layer.num_sublayers for layer in model.layers)
        found.append(Exchange("tensor", "all_reduce", count, token_bytes, 2 * (1 - 1 / tensor) * token_bytes, tensor))
    if ways.token_ranks > 1 and model.moe:
        found += _expert_exchanges(deployment, token_bytes * model.moe.expert_width(model.hidden_size)
                                   / model.hidden_size)
    if hops:
        found.append(Exchange("pipeline", "send_recv", hops, token_bytes, token_bytes, ways.num_accelerators))
    return found


def _expert_exchanges(deployment: Deployment, token_bytes: float) -> list[Exchange]:
    """Return dispatch and combine over the ranks of a stage.

    token_bytes : of each token on a data-parallel rank, in the width of the experts.

    A token is sent to the ranks of its k experts, each tensor-parallel rank sending its part of the tokens; or, where
    every rank holds a slice of every expert, or ranks divide prompts, to all ranks (vLLM 0.32.0,
    vllm/model_executor/layers/fused_moe/runner/moe_runner.py: it gathers and scatters over their group).
    """
    moe, layers, ways = deployment.model.moe, deployment.model.num_moe_layers, deployment.parallelism
    data, ranks = ways.token_ranks, ways.expert_ranks
    if ways.expert_parallel > 1 and ways.prefill_context_parallel == 1:
        copies = moe.experts_per_token / ways.tensor_parallel * token_bytes
        return [Exchange("expert", "all_to_all", 2 * layers, copies, (1 - 1 / ranks) * copies, ranks)]
    return [Exchange("data", kind, layers, data * token_bytes, (data - 1) * token_bytes, ranks)
            for kind in ("all_gather", "reduce_scatter")]
