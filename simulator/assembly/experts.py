"""Expert placement and exchange of [engine.experts], as latency backends and the engine take them."""
from msgspec.structs import replace

from simulator.config.experiment import Experiment
from simulator.domain.deployment import Deployment
from simulator.domain.experts import Experts
from simulator.errors import InputErrors, KeyFault
from simulator.experts.pricing import ExpertPricing
from simulator.experts.timeline import Arrangement, ExpertTimeline
from simulator.experts.traffic import GATHER

# Keys of latency backends with the meaning of engine.experts.all2all_backend, and their values for it.
ALL2ALL_WORDS = {"all2all_backend": {}, "expert_exchange": {
    GATHER: "all_gather", "deepep_high_throughput": "all_to_all", "deepep_low_latency": "all_to_all"}}


def with_exchange(experiment: Experiment, parameters):
    """Return the backend's parameters with the exchange of [engine.experts]."""
    exchange = experiment.engine.experts.all2all_backend
    if hasattr(parameters, "expert_load"):
        parameters = replace(parameters, expert_load="balanced")
    for key, words in ALL2ALL_WORDS.items():
        if exchange is not None and hasattr(parameters, key):
            parameters = replace(parameters, **{key: words.get(exchange, exchange)})
    return parameters


def exchanging(experiment: Experiment, deployment: Deployment) -> Deployment:
    """Return a deployment with the exchange of tokens that [latency] names.

    Its buffers take memory. experiment : or one of its pools.
    """
    named, experts = getattr(experiment.latency.parameters, "all2all_backend", None), deployment.experts or Experts()
    if named is None or experts.all2all_backend is not None or deployment.parallelism.data_parallel == 1:
        return deployment
    return replace(deployment, experts=replace(experts, all2all_backend=named))


def expert_pricing(experiment: Experiment, deployment: Deployment | None, arrangement: Arrangement | None):
    """Return how a backend prices experts."""
    if deployment is None:
        raise InputErrors([KeyFault("engine.experts: needs [model] and [hardware]")])
    experts, timeline = deployment.experts, ExpertTimeline(deployment)
    backend = experts.all2all_backend or getattr(experiment.latency.parameters, "all2all_backend", None) or GATHER
    return ExpertPricing(load=timeline.load_of(arrangement or Arrangement()), all2all_backend=backend, dbo=experts.dbo)
