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

OF_ALL_ELSE = 'does not price the exchange of tokens separately, as "roofline" and "operators" do'
WHY_NOT = {
    ("aicb", "all2all_backend"): "reads the bytes of the exchange from its tables, and latency.expert_exchange is "
                                 "their link",
    ("aicb", "dbo"): "has tables of whole batches, without times of half batches",
    ("trained_physics", "dbo"): "has coefficients fitted to iterations without overlap",
}


def with_exchange(experiment: Experiment, backend: type):
    """Return the backend's parameters with the exchange of [engine.experts].

    Raises
    ------
    InputErrors
        The backend does not price [engine.experts], or its own keys contradict it.
    """
    latency, experts = experiment.latency, experiment.engine.experts
    if backend.takes_experts is None:
        raise InputErrors([KeyFault(
            f'engine.experts: latency.backend = "{latency.backend}" does not price experts separately: '
            'expected no such table, or one of the backends "roofline", "operators", "trained_physics" and "aicb"')])
    faults = []
    for key, is_asked in (("all2all_backend", experts.all2all_backend is not None), ("dbo", experts.dbo.enabled)):
        if is_asked and key not in backend.takes_experts:
            faults.append(f'engine.experts.{key}: latency.backend = "{latency.backend}" '
                          + WHY_NOT.get((latency.backend, key), OF_ALL_ELSE))
    if getattr(latency.parameters, "expert_load", None) not in (None, "balanced"):
        faults.append('latency.expert_load: expected "balanced" with [engine.experts], which distributes tokens '
                      f'over experts, found "{latency.parameters.expert_load}"')
    parameters = latency.parameters
    if hasattr(parameters, "expert_load"):
        parameters = replace(parameters, expert_load="balanced")
    for key, words in ALL2ALL_WORDS.items():
        if experts.all2all_backend is None or not hasattr(parameters, key):
            continue
        meant = words.get(experts.all2all_backend, experts.all2all_backend)
        if getattr(parameters, key) not in (None, meant):
            faults.append(f'latency.{key}: expected "{meant}", or none, with engine.experts.all2all_backend = '
                          f'"{experts.all2all_backend}", found "{getattr(parameters, key)}"')
        parameters = replace(parameters, **{key: meant})
    if faults:
        raise InputErrors(map(KeyFault, faults))
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
    if experts.dbo.enabled and backend == GATHER:
        raise InputErrors([KeyFault(
            f'engine.experts.dbo.enabled: expected false with all2all_backend = "{GATHER}", found true: vLLM splits '
            'batches with "deepep_high_throughput" and "deepep_low_latency" alone')])
    return ExpertPricing(load=timeline.load_of(arrangement or Arrangement()), all2all_backend=backend, dbo=experts.dbo)
