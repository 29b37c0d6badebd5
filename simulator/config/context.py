"""Context parallelism: what does not go together with it, and what says nothing without it."""
from collections.abc import Iterator, Mapping
from typing import Any

from simulator import registry
from simulator.config.layers import Path

Fault = tuple[Path, str]
KEY = ("topology", "decode_context_parallel")
OF_IT = {"cp_kv_cache_interleave_size": 1, "dcp_comm_backend": "ag_rs"}


def context_faults(topology, engine, kv_tiers, latency) -> Iterator[Fault]:
    """Yield what a pool cannot have together with decode context parallelism.

    Source: vLLM 0.32.0, vllm/config/parallel.py and vllm/config/vllm.py.
    """
    if topology.prefill_context_parallel > 1:
        yield ("topology", "prefill_context_parallel"), (
            f"expected 1, found {topology.prefill_context_parallel}: accelerators that divide the prompts of a "
            "replica, and the exchange of their keys and values, are not built")
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
        yield KEY, (f'expected 1, found {degree}: latency.backend = "{latency.backend}" does not tell the context of '
                    'decodes from what else an iteration takes, as "roofline", "operators" and "linear" do')
    if kv_tiers is not None:
        yield ("kv_tiers",), (f"expected none with topology.decode_context_parallel = {degree}: what a tier keeps of "
                              "blocks whose tokens are on several ranks is not settled")
    for i, group in enumerate(getattr(engine.parameters, "kv_cache_groups", None) or ()):
        if group.window:
            yield ("engine", "kv_cache_groups", i, "kind"), (
                f'expected "full_attention" or "linear_attention" with topology.decode_context_parallel = {degree}, '
                f'found "{group.kind}": vLLM shares no windows')


def conflicts_of_context(pools, sections: Mapping[str, Any], missing: object) -> Iterator[Fault]:
    """Yield what an experiment cannot have together with shared contexts in any pool.

    missing : stands for a section that could not be read.
    """
    topology, cluster, kv_transfer = (sections[name] for name in ("topology", "cluster", "kv_transfer"))
    if any(section is missing for section in (topology, cluster, kv_transfer)):
        return
    if not any(each.decode_context_parallel > 1 for each in ([pool.topology for pool in pools] or [topology])):
        return
    why = "where topology.decode_context_parallel is above 1: which rank sends what to which is not settled"
    if kv_transfer is not None:
        yield ("kv_transfer",), f"expected none {why}"
    moving = cluster.rescheduling
    if moving is not None and moving.mode != "recompute":
        yield ("cluster", "rescheduling", "mode"), f'expected "recompute", found "{moving.mode}", {why}'
