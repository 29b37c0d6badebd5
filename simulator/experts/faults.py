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
    experts, ways = deployment.experts, deployment.parallelism
    ranks, all_ranks = ways.expert_parallel, ways.tensor_parallel * ways.data_parallel
    exchange = experts.all2all_backend
    if (moe.num_experts + experts.num_redundant) % ranks:
        yield ".eplb.num_redundant_experts", (
            f"{moe.num_experts} experts and {experts.num_redundant} redundant ones cannot be spread evenly over "
            f"topology.expert_parallel = {ranks} ranks; expected {-moe.num_experts % ranks} or that and a multiple of "
            f"{ranks}")
    if exchange not in (None, GATHER) and ways.data_parallel > 1 and ranks != all_ranks:
        yield ".all2all_backend", (
            f'"{exchange}" needs topology.expert_parallel = tensor_parallel x data_parallel = {all_ranks}, found '
            f"{ranks}")
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
