"""Context parallelism of [topology], as latency models take it."""
from msgspec.structs import replace

from simulator import registry
from simulator.domain.deployment import Deployment
from simulator.domain.efficiency import COLLECTIVE_LATENCY_US, LINK_EFFICIENCY
from simulator.domain.parallelism import Parallelism
from simulator.errors import InputErrors, KeyFault

LATENT_ALONE = ("prefill context parallelism: vLLM 0.32 supports it only for models with latent attention; for other "
                "models times are those of an equal division of prompts")
SUMS_ALONE = ("decode context parallelism: only the sum of the contexts of a batch is known; each of several sequences "
              "is priced with the mean excess of the rank with the largest share, at most interleave x (n - 1) / (2 n) "
              "tokens per sequence off")


def block_tokens(pool, layer_groups=None) -> int:
    """Return the tokens of a KV block of a replica.

    With layer groups, the engine's block_size: each group has its own blocks.

    pool : or an Experiment.
    """
    degree = pool.topology.decode_context_parallel
    return pool.engine.block_size * (1 if layer_groups is not None else degree)


def with_context_parallel(site, model):
    """Return a model of decodes in which ranks attend to shares of the context.

    Without decode context parallelism, `model` itself is returned.

    site : assembly.site.Site of the pool, also in the functions below.

    Raises
    ------
    InputErrors
        The exchange between the ranks cannot be priced.
    """
    topology, deployment, backend = site.pool.topology, site.deployment, site.pool.latency.backend
    degree = topology.decode_context_parallel
    if degree == 1:
        return model
    from simulator.latency.overheads.context import ContextParallel  # imported only when needed

    notes, exchanges, collective = [], (), None
    if topology.cp_kv_cache_interleave_size > 1:
        notes.append(SUMS_ALONE)
    if deployment is None or not site.backend.takes_collective:
        notes.append(f"{backend}: decode context parallelism: the exchange between ranks has no price of its "
                     "own: the given prices include it")
    else:
        exchanges, collective = _exchanges(site)
        if collective is None:
            notes.append(f"{backend}: decode context parallelism: the exchange between ranks is priced as "
                         "bytes over the link and a latency")
    shared = ContextParallel(
        model, degree, topology.cp_kv_cache_interleave_size, exchanges,
        attention_of_stages(deployment, topology.pipeline_parallel),
        deployment.parallelism.data_parallel if deployment else 1, collective)
    shared.notes += notes
    return shared


def with_free_exchanges(site, model):
    """Return a model of ranks that share contexts and prompts, and exchange nothing."""
    topology, deployment = site.pool.topology, site.deployment
    if topology.decode_context_parallel > 1:
        from simulator.latency.overheads.context import ContextParallel  # imported only when needed

        model = ContextParallel(
            model, topology.decode_context_parallel, topology.cp_kv_cache_interleave_size, (),
            attention_of_stages(deployment, topology.pipeline_parallel), deployment.parallelism.data_parallel, None)
    if topology.prefill_context_parallel > 1:
        from simulator.latency.overheads.prompts import PromptParallel  # imported only when needed

        model = PromptParallel(model, topology.prefill_context_parallel, (), None)
    return model


def attention_of_stages(deployment: Deployment | None, num_stages: int) -> list[int]:
    """Return the numbers of full-attention layers per stage; without a model, 1 each."""
    if deployment is None:
        return [1] * num_stages
    ways, kinds = deployment.parallelism, deployment.model.layer_types
    return [sum(kinds[layer] == "full_attention" for layer in ways.layers_of_stage(deployment.model, stage))
            for stage in range(num_stages)]


def _exchanges(site):
    """Return the exchanges between ranks, and the model of their collectives; None: exchanges hold their times."""
    from simulator.latency.overheads.context_costs import context_exchanges  # imported only when needed

    topology, latency, deployment = site.pool.topology, site.pool.latency, site.deployment
    try:
        exchanges = context_exchanges(deployment, topology.dcp_comm_backend, *_link_terms(latency.parameters))
        if latency.collective is None:
            return exchanges, None
        ranks = Parallelism(tensor_parallel=topology.decode_context_parallel)    # neighbours, as a group
        model = registry.load("collective", latency.collective.backend)
        return exchanges, model(latency.collective.parameters, replace(deployment, parallelism=ranks))
    except InputErrors:
        raise
    except ValueError as error:         # no link bandwidth
        raise InputErrors([KeyFault(f"topology.decode_context_parallel: {error}")]) from None


def with_prompt_parallel(site, model):
    """Return a latency model of prompts that are divided among ranks.

    Without prefill context parallelism, `model` itself is returned.

    Raises
    ------
    InputErrors
        The gathers of the ranks cannot be priced.
    """
    degree, deployment = site.pool.topology.prefill_context_parallel, site.deployment
    if degree == 1:
        return model
    from simulator.latency.overheads.prompts import PromptParallel  # imported only when needed

    name, gathers, collective, notes = f"{site.pool.latency.backend}: prefill context parallelism", (), None, []
    if deployment is None or not site.backend.takes_collective:
        notes.append(f"{name}: gathers of the ranks have no price of their own: the given prices include them")
    else:
        gathers, collective = _gathers(site)
        if collective is None:
            notes.append(f"{name}: gathers of the ranks are priced as bytes over the link and a latency")
    if deployment is not None and deployment.model.attention.backend != "mla":
        notes.append(LATENT_ALONE)
    if model.knows_kernels:
        notes.append(f"{name}: rows are not padded to the sizes of CUDA graphs")
    divided = PromptParallel(model, degree, gathers, collective)
    divided.notes += notes
    return divided


def _gathers(site):
    """Return the gathers of the ranks, and the model of their collectives; None: gathers hold their times."""
    from simulator.latency.overheads.prompt_costs import prompt_gathers  # imported only when needed

    latency, deployment = site.pool.latency, site.deployment
    try:
        gathers = prompt_gathers(deployment, *_link_terms(latency.parameters))
        if latency.collective is None:
            return gathers, None
        model = registry.load("collective", latency.collective.backend)
        return gathers, model(latency.collective.parameters, deployment)
    except InputErrors:
        raise
    except ValueError as error:         # no link bandwidth
        raise InputErrors([KeyFault(f"topology.prefill_context_parallel: {error}")]) from None


def _link_terms(parameters) -> tuple[float, float]:
    """Return the fixed time of a collective, us, and the share of link bandwidth that it reaches."""
    latency_us = getattr(parameters, "collective_latency_us", None)
    share = getattr(parameters, "link_efficiency", None)
    return (COLLECTIVE_LATENCY_US if latency_us is None else latency_us, LINK_EFFICIENCY if share is None else share)
