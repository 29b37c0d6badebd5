"""Coordination of data-parallel ranks, from [topology] and [engine.data_parallel]."""
from simulator import registry
from simulator.config.experiment import Experiment
from simulator.config.ranks import hand_over_faults_in_lock_step
from simulator.domain.data_parallel import DataParallel
from simulator.domain.model_spec import ModelSpec
from simulator.domain.vllm_versions import NEWEST, behaviour_of
from simulator.engine.plan import RankFront
from simulator.errors import InputErrors, KeyFault

STAGES = "expected 1, found {}: pipeline stages with ranks in lock step are not supported"
TIERS = "expected none: KV tiers with ranks in lock step are not supported"
MOVES = "expected none: migration between ranks in lock step is not supported"


def lock_step(site):
    """Return the rules of the pool's ranks in lock step; None: it has none.

    site : assembly.site.Site of the pool, also in the functions below.

    Raises
    ------
    InputErrors
        A setting that is not supported with ranks in lock step.
    """
    if not site.is_in_lock_step:
        return None
    pool = site.pool
    unsettled = {"topology.pipeline_parallel: " + STAGES.format(pool.topology.pipeline_parallel):
                 pool.topology.pipeline_parallel > 1, f"kv_tiers: {TIERS}": pool.kv_tiers is not None}
    if any(unsettled.values()):
        raise InputErrors([KeyFault(fault) for fault, is_there in unsettled.items() if is_there])
    behaviour = behaviour_of(getattr(pool.engine.parameters, "vllm_version", None))
    return (pool.engine.data_parallel or DataParallel()).rules(behaviour)


def marches(pool, model: ModelSpec | None) -> bool:
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


def refuse_moves_in_lock_step(sites) -> None:
    """Refuse [cluster.rescheduling] with ranks in lock step.

    Raises
    ------
    InputErrors
        A pool has ranks in lock step.
    """
    if any(site.is_in_lock_step for site in sites):
        raise InputErrors([KeyFault(f"cluster.rescheduling: {MOVES}")])


def settled_hand_over(experiment: Experiment, sites) -> None:
    """Refuse KV transfer settings that are not supported with ranks in lock step.

    Raises
    ------
    InputErrors
        One fault for each such key.
    """
    faults = [KeyFault(f"{key}: {message}") for site in sites if site.is_in_lock_step
              for key, message in hand_over_faults_in_lock_step(site.pool, experiment.kv_transfer)]
    if faults:
        raise InputErrors(faults)
