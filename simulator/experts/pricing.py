"""Inputs of a latency backend that prices experts."""
from collections.abc import Callable

import msgspec
import numpy as np

from simulator.domain.deployment import Deployment
from simulator.domain.experts import Dbo
from simulator.experts.deepep import Links, is_beyond, kernel_ns
from simulator.experts.eplb import is_hierarchical
from simulator.experts.imbalance import ExpertLoad
from simulator.experts.placement import num_nodes
from simulator.experts.traffic import GATHER, Site, sent_bytes

PHASES = ("dispatch", "combine")


class ExpertPricing(msgspec.Struct, frozen=True, kw_only=True):
    """How experts of a deployment are fed and how evenly they are loaded.

    load : of the busiest rank; changes with the arrangement.
    all2all_backend : how tokens get to their experts, where there are data-parallel ranks.
    """

    load: ExpertLoad
    all2all_backend: str = GATHER
    dbo: Dbo = Dbo()

    def provenance(self) -> dict:
        """Return the entries on experts in the results' provenance."""
        return {"all2all_backend": self.all2all_backend, "imbalance_at_start": round(self.load.expected, 6),
                "dbo": self.dbo.enabled}

    def warnings(self, deployment: Deployment, name: str) -> list[str]:
        """Return the assumptions made; `name` : of the backend."""
        notes = []
        if deployment.experts.popularity.distribution != "uniform" or deployment.parallelism.expert_parallel > 1:
            notes.append(f"{name}: experts: imbalance is expected from popularity, placement and the noise of a "
                         "multinomial by a formula of our own, which no published measurement checks")
        if deployment.experts.eplb is not None and deployment.model.moe.num_groups > 1:
            notes += [f"{name}: experts: {note}" for note in _group_notes(deployment)]
        if self.dbo.enabled:
            notes.append(f"{name}: experts: two-batch overlap takes what a formula of our own says, which no published "
                         "measurement checks")
        return notes


def _group_notes(deployment: Deployment) -> list[str]:
    """Return why the balancer does not keep groups of experts on nodes; nothing where it does."""
    groups, nodes = deployment.model.moe.num_groups, num_nodes(deployment)
    ranks = deployment.parallelism.expert_parallel
    if deployment.node is None:
        return [f"eplb: no topology.node is named: to the balancer all ranks are one node, and the {groups} groups of "
                f"experts of {deployment.model.name} make no difference"]
    if is_hierarchical(ranks, groups, nodes):
        return []
    return [f"eplb: {groups} groups of experts or {ranks} ranks do not divide by {nodes} nodes: to the balancer all "
            "ranks are one node"]


def links_of(deployment: Deployment, default_domain: int = 8) -> Links:
    """Return the links between the ranks of a deployment; 0 where no link is known."""
    node, accelerator = deployment.node, deployment.accelerator
    if node is None:
        return Links(default_domain, accelerator.scaleup_bytes_per_s * 1e-9, accelerator.scaleout_bytes_per_s * 1e-9)
    return Links(node.joined, node.scaleup_bytes_per_s * 1e-9,
                 (node.scaleout_bytes_per_s or accelerator.scaleout_bytes_per_s) * 1e-9)


def exchange_ns(deployment: Deployment, backend: str, tokens: np.ndarray, link_bytes_per_ns: float,
                collective_ns: float) -> dict[str, np.ndarray]:
    """Return how long "dispatch" and "combine" of one layer take.

    tokens : of all ranks together.

    DeepEP as in deepep.py; gathered and scattered: bytes by the bandwidth of a link, and a start-up.

    Raises
    ------
    ValueError
        No link is known.
    """
    model, ways = deployment.model, deployment.parallelism
    ranks = ways.expert_ranks
    each = np.asarray(tokens) / ranks
    site = Site(model.hidden_size, model.moe.experts_per_token, ranks, element_bytes=deployment.activation_bytes)
    if backend == GATHER:
        found = {what: collective_ns + sent_bytes(backend, what, each, site) / link_bytes_per_ns for what in PHASES}
    else:
        links = links_of(deployment)
        if min(links.scaleup_bytes_per_ns, 1.0 if links.num_domains(ranks) == 1 else links.scaleout_bytes_per_ns) <= 0:
            raise ValueError(f"no link is known between {ranks} accelerators {deployment.accelerator.name}; name a "
                             "node in [topology]")
        found = {what: kernel_ns(backend, what, each, site, links) for what in PHASES}
    return {what: np.where(np.asarray(tokens) > 0, ns, 0.0) for what, ns in found.items()}


def asked_ns(deployment: Deployment, backend: str, tokens: np.ndarray, predict: Callable) -> dict[str, np.ndarray]:
    """Return dispatch and combine times by a collective model, from some sizes.

    DeepEP's bytes as an all-to-all; gathered and scattered bytes as such, with the size of the gathered buffer.

    predict : of the model: (group, kind, bytes) -> seconds.
    """
    model, ways = deployment.model, deployment.parallelism
    ranks = ways.expert_ranks
    site = Site(model.hidden_size, model.moe.experts_per_token, ranks, links_of(deployment).num_domains(ranks),
                deployment.activation_bytes)
    nodes = np.unique(np.round(np.append(2 ** np.arange(0, np.log2(tokens[-1]), 1 / 4), tokens[-1])))
    kinds = dict.fromkeys(PHASES, "all_to_all")
    if backend == GATHER:
        kinds = {"dispatch": "all_gather", "combine": "reduce_scatter"}
    found = {}
    for what, kind in kinds.items():
        whole = ranks / (ranks - 1) if backend == GATHER else 1.0
        sizes = sent_bytes(backend, what, nodes / ranks, site) * whole
        group = "expert" if ways.expert_parallel > 1 else "data"
        ns = np.interp(tokens, nodes, [predict(group, kind, float(size)) * 1e9 for size in sizes])
        found[what] = np.where(tokens > 0, ns, 0.0)
    return found


def exchange_notes(deployment: Deployment, backend: str) -> list[str]:
    """Return the assumptions of an exchange that DeepEP's published rows price."""
    ways, links = deployment.parallelism, links_of(deployment)
    ranks = ways.expert_ranks
    if backend == GATHER or ways.token_ranks == 1:
        return []
    notes = [f"experts: dispatch and combine are DeepEP's published times on H800, its bytes over links of "
             f"{links.scaleup_bytes_per_ns:g} and {links.scaleout_bytes_per_ns:g} GB/s instead of 200 and 50"]
    if is_beyond(backend, ranks, links):
        notes.append(f"experts: {backend} over {ranks} ranks in domains of {links.domain_size} was not published: the "
                     "nearest number of ranks speaks")
    return notes
