"""The coefficients of experts that are not loaded evenly, and of their exchange, with [engine.experts]."""
import msgspec
import numpy as np

from simulator.domain.deployment import Deployment
from simulator.domain.rank_weights import rank_weights
from simulator.experts.imbalance import MOST_TOKENS
from simulator.experts.pricing import PHASES, ExpertPricing, asked_ns, exchange_ns
from simulator.latency.roofline.costs import Rates, expert_bytes, link_bytes_per_s

NOTHING = np.zeros(MOST_TOKENS + 1)


class ExpertCosts(msgspec.Struct, frozen=True, kw_only=True):
    """By tokens of all ranks, (MOST_TOKENS + 1,); of all layers."""

    imbalance: np.ndarray               # work of the busiest rank / mean work
    weights_ns: np.ndarray              # reading the experts of the rank that needs most
    dispatch_ns: np.ndarray
    combine_ns: np.ndarray


def expert_costs(deployment: Deployment, rate: Rates, experts: ExpertPricing, collective=None) -> ExpertCosts:
    """Return the coefficients.

    collective : CollectiveModel that times the exchange; None: link bandwidth, or DeepEP's published times.
    """
    each_ns = expert_bytes(rank_weights(deployment), deployment) / rate.memory_bytes
    ways, layers = deployment.parallelism, deployment.model.num_moe_layers
    found = dict.fromkeys(PHASES, NOTHING)
    if ways.token_ranks > 1:
        tokens, ranks = np.arange(MOST_TOKENS + 1.0), ways.expert_ranks
        if collective is not None:
            found = asked_ns(deployment, experts.all2all_backend, tokens, collective.predict)
        else:
            link = link_bytes_per_s(deployment, ranks) * 1e-9 * rate.link_efficiency
            found = exchange_ns(deployment, experts.all2all_backend, tokens, link, rate.collective_ns)
    return ExpertCosts(
        imbalance=experts.load.imbalance, weights_ns=experts.load.activated * ways.expert_parallel * each_ns,
        dispatch_ns=layers * found["dispatch"], combine_ns=layers * found["combine"])
