"""Faults of context parallelism: unsupported combinations, and keys that have no effect without it."""
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from simulator import registry
from simulator.config.layers import Path
from simulator.domain.experts import All2All

Fault = tuple[Path, str]
KEY = ("topology", "decode_context_parallel")
GATHER = get_args(All2All)[0]
OF_PROMPTS = ("topology", "prefill_context_parallel")
ALONE = {
    "decode_context_parallel": "sharing of the gathered KV over ranks is not supported",
    "pipeline_parallel": "vLLM does not divide prompts over ranks of a stage",
    "data_parallel": "vLLM 0.32 does not start such ranks",
}
OF_IT = {"cp_kv_cache_interleave_size": 1, "dcp_comm_backend": "ag_rs"}


def context_faults(topology, engine, kv_tiers, latency) -> Iterator[Fault]:
    """Yield the settings of a pool that decode context parallelism does not support.

    Source: vLLM 0.32.0, vllm/config/parallel.py and vllm/config/vllm.py.
    """
    degree, interleave = topology.decode_context_parallel, topology.cp_kv_cache_interleave_size
    if degree == 1:
        for name, default in OF_IT.items():
            if getattr(topology, name) != default:
                yield ("topology", name), "expected none with decode_context_parallel = 1: nothing is shared"
        return
    if topology.tensor_parallel % degree:
        yield KEY, f"expected a divisor of tensor_parallel = {topology.tensor_parallel}, found {degree}"
    if engine.block_size % interleave:
        yield ("topology", "cp_kv_cache_interleave_size"), (
            f"expected a divisor of engine.block_size = {engine.block_size}, found {interleave}")
    if not registry.load("latency", latency.backend).prices_context_parallel:
        yield KEY, (f'expected 1, found {degree}: latency.backend = "{latency.backend}" does not price the context of '
                    'decodes separately, as "roofline", "operators" and "linear" do')
    if kv_tiers is not None:
        yield ("kv_tiers",), (f"expected none with topology.decode_context_parallel = {degree}: tiers do not support "
                              "blocks with tokens on several ranks")
    for i, group in enumerate(getattr(engine.parameters, "kv_cache_groups", None) or ()):
        if group.window:
            yield ("engine", "kv_cache_groups", i, "kind"), (
                f'expected "full_attention" or "linear_attention" with topology.decode_context_parallel = {degree}, '
                f'found "{group.kind}": vLLM shares no windows')


def prompt_faults(topology, engine, kv_tiers, latency) -> Iterator[Fault]:
    """Yield the settings of a pool that prefill context parallelism does not support.

    Source of vLLM's restrictions: 0.32.0, vllm/v1/worker/gpu/pcp_manager.py (validate_config).
    """
    degree, ways = topology.prefill_context_parallel, topology.tensor_parallel * topology.prefill_context_parallel
    if degree == 1:
        return
    beside = f"with topology.prefill_context_parallel = {degree}"
    if not registry.load("latency", latency.backend).prices_context_parallel:
        yield OF_PROMPTS, (f'expected 1, found {degree}: latency.backend = "{latency.backend}" does not price parts of '
                           'a prompt, as "roofline", "operators" and "linear" do')
    for name, why in ALONE.items():
        if getattr(topology, name) > 1:
            yield ("topology", name), f"expected 1 {beside}, found {getattr(topology, name)}: {why}"
    if topology.expert_parallel not in (1, ways):
        yield ("topology", "expert_parallel"), (
            f"expected 1, or tensor_parallel x prefill_context_parallel = {ways}, found {topology.expert_parallel}")
    if kv_tiers is not None:
        yield ("kv_tiers",), f"expected none {beside}: tiers do not support KV that all ranks keep"
    parameters = engine.parameters
    for name in ("lora", "speculative", "encoder"):
        if getattr(parameters, name, None) is not None:
            yield ("engine", name), f"expected none {beside}: vLLM refuses it"
    graphs = getattr(parameters, "cuda_graphs", None)
    if graphs is not None and graphs.mode != "none":
        yield ("engine", "cuda_graphs", "mode"), (
            f'expected "none" {beside}, found "{graphs.mode or "the default"}": padding of the rows of a rank is not '
            "supported")
    for i, group in enumerate(getattr(parameters, "kv_cache_groups", None) or ()):
        if group.kind == "linear_attention":
            yield ("engine", "kv_cache_groups", i, "kind"), (
                f'expected none of kind "linear_attention" {beside}: a state passes from token to token')
    if (sent := getattr(latency.parameters, "all2all_backend", None)) not in (None, GATHER):
        yield ("latency", "all2all_backend"), f'expected "{GATHER}" {beside}, found "{sent}": vLLM gathers and scatters'


def conflicts_of_context(pools, sections: Mapping[str, Any], missing: object) -> Iterator[Fault]:
    """Yield settings of an experiment that context parallelism does not support.

    missing : marks a section that could not be read.
    """
    topology, cluster, kv_transfer = (sections[name] for name in ("topology", "cluster", "kv_transfer"))
    if any(section is missing for section in (topology, cluster, kv_transfer)):
        return
    for key in (KEY[1], OF_PROMPTS[1]):
        if not any(getattr(each, key) > 1 for each in ([pool.topology for pool in pools] or [topology])):
            continue
        why = f"with topology.{key} above 1: transfer of KV between such ranks is not supported"
        if kv_transfer is not None:
            yield ("kv_transfer",), f"expected none {why}"
        moving = cluster.rescheduling
        if moving is not None and moving.mode != "recompute":
            yield ("cluster", "rescheduling", "mode"), f'expected "recompute", found "{moving.mode}", {why}'
