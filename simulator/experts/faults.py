"""Impossible combinations of [engine.experts] with a model and its layout."""
from collections.abc import Iterator

from simulator.domain.deployment import Deployment
from simulator.experts.popularity import chosen_frac, loads_of
from simulator.experts.traffic import GATHER

Fault = tuple[str, str]         # key below engine.experts, message


def expert_faults(deployment: Deployment) -> Iterator[Fault]:
    """Find impossible combinations, all at once.

    Raises
    ------
    InputErrors
        The file with loads cannot be used.
    """
    moe = deployment.model.moe
    if moe is None:
        yield "", f"expected no such table: {deployment.model.name} has no experts"
        return
    yield from _layout_faults(deployment)
    yield from _exchange_faults(deployment)
    if deployment.experts.popularity.distribution != "uniform":
        try:
            chosen_frac(loads_of(deployment.experts.popularity, moe.num_experts, 1 if _is_alike(deployment)
                                 else deployment.model.num_moe_layers), moe.experts_per_token)
        except ValueError as error:
            if not hasattr(error, "faults"):
                yield ".popularity", str(error)
                return
            raise


def _is_alike(deployment: Deployment) -> bool:
    return deployment.experts.popularity.distribution != "file"


def _layout_faults(deployment: Deployment) -> Iterator[Fault]:
    experts, ranks, moe = deployment.experts, deployment.parallelism.expert_parallel, deployment.model.moe
    for key, is_given in ((".eplb", experts.eplb is not None), (".placement", experts.placement == "round_robin")):
        if is_given and ranks == 1:
            yield key, "needs topology.expert_parallel above 1: every rank holds a part of every expert"
    if experts.placement == "round_robin" and experts.eplb is not None:
        yield ".placement", 'expected "linear" with eplb, as vLLM has it then, found "round_robin"'
    if (moe.num_experts + experts.num_redundant) % ranks:
        yield ".eplb.num_redundant_experts", (
            f"{moe.num_experts} experts and {experts.num_redundant} redundant ones cannot be spread evenly over "
            f"topology.expert_parallel = {ranks} ranks; expected {-moe.num_experts % ranks} or that and a multiple of "
            f"{ranks}")


def _exchange_faults(deployment: Deployment) -> Iterator[Fault]:
    experts, ways = deployment.experts, deployment.parallelism
    ranks = ways.tensor_parallel * ways.data_parallel
    backend = experts.all2all_backend
    if backend is not None and ways.data_parallel == 1:
        why = ("ranks that divide prompts gather and scatter" if ways.prefill_context_parallel > 1
               else "only data-parallel ranks exchange tokens for their experts")
        yield ".all2all_backend", f'expected none with topology.data_parallel = 1, found "{backend}": {why}'
    elif backend not in (None, GATHER) and ways.expert_parallel != ranks:
        yield ".all2all_backend", (
            f'"{backend}" needs topology.expert_parallel = tensor_parallel x data_parallel = {ranks}, found '
            f"{ways.expert_parallel}")
    if experts.dbo.enabled and ways.data_parallel == 1:
        yield ".dbo.enabled", ("expected false with topology.data_parallel = 1, found true: there is no exchange of "
                               "tokens to hide")
    if experts.dbo.enabled and ways.pipeline_parallel > 1:
        yield ".dbo.enabled", (f"expected false with topology.pipeline_parallel = {ways.pipeline_parallel}, found "
                               "true: how stages overlap halves is not settled")
