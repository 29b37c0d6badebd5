"""Coordination of data-parallel ranks, from [topology] and [engine.data_parallel]."""
from simulator import registry
from simulator.config.experiment import Experiment
from simulator.domain.data_parallel import DataParallel
from simulator.domain.model_spec import ModelSpec
from simulator.domain.vllm_versions import NEWEST, behaviour_of
from simulator.engine.ranks import RankFront
from simulator.errors import InputErrors, KeyFault

QUEUE_LIMITS = ("max_num_queued_reqs", "max_num_queued_tokens")     # of [engine], for an API server


def lock_step(site):
    """Return the rules of the pool's ranks in lock step; None: it has none.

    site : assembly.site.Site of the pool.
    """
    if not site.is_in_lock_step:
        return None
    pool = site.pool
    behaviour = behaviour_of(getattr(pool.engine.parameters, "vllm_version", None))
    return (pool.engine.data_parallel or DataParallel()).rules(behaviour)


def needs_lock_step(pool, model: ModelSpec | None) -> bool:
    """Return whether the ranks of a pool, if there are any, are in lock step.

    Source: vLLM 0.32.0, vllm/v1/engine/core.py: DPEngineCoreProc asserts that the model has experts; ranks of
    dense models are independent engines.

    Raises
    ------
    InputErrors
        The experiment contradicts the model.
    """
    asked = pool.engine.data_parallel and pool.engine.data_parallel.lockstep
    if model is None:
        return asked is not False
    if asked is not None and asked != (model.moe is not None):
        why = ("has no experts, and vLLM's ranks are engines by themselves then" if asked else
               "has experts, which the ranks share")
        raise InputErrors([KeyFault(f"engine.data_parallel.lockstep: expected {str(not asked).lower()}, found "
                                    f"{str(asked).lower()}: {model.name} {why}")])
    return model.moe is not None


def ranks_per_choice(pool, per_node: int) -> int:
    """Return the number of ranks among which a replica's own router chooses.

    per_node : number of ranks that fit on a node.

    Raises
    ------
    InputErrors
        The ranks do not divide evenly over nodes.
    """
    ranks, mode = pool.topology.data_parallel, (pool.engine.data_parallel or DataParallel()).load_balancing
    if pool.topology.node and ranks > 1 and (ranks % per_node and per_node % ranks):
        raise InputErrors([KeyFault(
            f"topology.data_parallel: {ranks} ranks of {pool.topology.tensor_parallel} accelerators neither fill whole "
            f"nodes nor share one evenly: a {pool.topology.node} has room for {per_node}")])
    if mode == "hybrid":
        return min(ranks, per_node)
    return ranks if mode == "internal" else 1


def queue_limits(pool, per_node: int) -> tuple[int | None, ...]:
    """Return the limits of an API server on requests and prompt tokens; (): none.

    per_node : as of `ranks_per_choice`.

    Raises
    ------
    InputErrors
        Several API servers count the tokens, each of its own requests: vLLM shares the number of requests alone.
        Source: vLLM 0.33.0, vllm/v1/engine/admission_control.py, SharedAdmissionStats.
    """
    requests, tokens = (getattr(pool.engine.parameters, name, None) for name in QUEUE_LIMITS)
    servers = pool.latency.host.api_server_count or ranks_per_choice(pool, per_node)
    if tokens is not None and servers > 1:
        raise InputErrors([KeyFault(
            f"engine.max_num_queued_tokens: expected none with {servers} API servers, found {tokens}: each counts the "
            "prompts that it has itself, and the choice of an API server is not modelled; give "
            "latency.host.api_server_count = 1, or max_num_queued_reqs, which they count together")])
    return () if requests is tokens is None else (requests, tokens)


def limit_notes(pool) -> tuple[str, ...]:
    """Return a note on requests that an API server refuses."""
    given = [name for name in QUEUE_LIMITS if getattr(pool.engine.parameters, name, None) is not None]
    return (f"{', '.join(given)}: no gateway sends a refused request elsewhere; its client sends it again with "
            "[workload.client_retry]",) if given else ()


def rank_front(experiment: Experiment) -> RankFront | None:
    """Return the router of requests to the ranks of a replica; None: none is needed.

    With external balancing [cluster.routing] chooses ranks, as if they were replicas.
    """
    chosen = [pool for pool in experiment.all_pools() if pool.topology.data_parallel > 1
              and (pool.engine.data_parallel or DataParallel()).load_balancing != "external"]
    if not chosen:
        return None
    from simulator.routing.ranks.two_routers import TwoRouters  # imported only when needed

    router, engine = registry.load("router", "vllm_dp"), chosen[0].engine
    parameters = router.Parameters(vllm_version=getattr(engine.parameters, "vllm_version", NEWEST))
    interval_s = (engine.data_parallel or DataParallel()).stats_interval_s
    return RankFront(TwoRouters, router, parameters, round(interval_s * 1e9))
