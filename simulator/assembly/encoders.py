"""The engine's plan of encoders, from encode pools, [embeddings] and [cluster.encode]."""
from collections.abc import Callable

from simulator import registry
from simulator.config.experiment import Experiment
from simulator.domain.embeddings import embedding_bytes
from simulator.errors import InputErrors, KeyFault


def encode_plan(experiment: Experiment, deployment_of: Callable):
    """Return engine.encoders.plan.EncodePlan; None without encode pools.

    deployment_of : called with a pool, returns its Deployment, of which only the model is used, or None.

    Raises
    ------
    InputErrors
        The size of an embedding is neither given nor known from a model.
    """
    pools, moved = experiment.encode_pools(), experiment.embeddings
    if not pools:
        return None
    from simulator.engine.encoders.plan import EncodePlan  # imported only when needed

    chosen = experiment.cluster.encode
    router = registry.load("router", chosen.policy if chosen else "round_robin")
    return EncodePlan(
        pools=tuple(_pool(pool, moved.bytes_per_embedding, deployment_of) for pool in pools), router=router,
        router_parameters=chosen.parameters if chosen else registry.parameters_of(router)(),
        bytes_per_s=moved.bandwidth_gb_per_s * 1e9, latency_ns=round(moved.latency_us * 1e3))


def _pool(pool, given_bytes: float | None, deployment_of: Callable):
    """Return a pool as the engine takes it."""
    from simulator.engine.encoders.plan import EncodePool

    parameters = pool.engine.parameters
    encoder, tokens = parameters.encoder, parameters.max_num_batched_tokens
    deployment = deployment_of(pool) if given_bytes is None else None
    if given_bytes is None and deployment is None:
        raise InputErrors([KeyFault(
            "embeddings.bytes_per_embedding: missing; expected a number, or [model]")])
    return EncodePool(
        name=pool.name, model=pool.serves, replicas=pool.at_start, embedding_ns=encoder.embedding_us * 1e3,
        iteration_ns=pool.latency.host.iteration_us * 1e3,
        max_embeddings=encoder.max_num_encoder_input_tokens or tokens, max_jobs=parameters.max_num_seqs,
        cache_embeddings=encoder.cache_tokens or tokens, embedding_bytes=given_bytes or embedding_bytes(deployment),
        cost_per_hour=pool.cost_per_hour,
        node=pool.topology.node or (pool.hardware.name if pool.hardware else ""))
