"""Dispatch and combine of expert parallelism by DeepEP and NVLink kernels: the tables of exchanges.

A row of `wideep_deepep_*` (SGLang's) is one kernel for `num_token` tokens on each rank, of `hidden_size`, to `num_topk`
of `num_experts` experts over `node_num` nodes. The bandwidths in the table of the low-latency mode imply its bytes:
7168 wide, one token to 8 experts, dispatched in fp8 with a float32 scale per 128 elements and 16 bytes of head, makes
8 (7168 + 224 + 16) bytes a rank, combined in bfloat16 8 x 14,336. Times are microseconds. In the normal mode, vLLM's
"deepep_high_throughput", a kernel is the sum of `transmit` and `notify`; only rows of 20 multiprocessors are used,
DeepEP's default (Buffer.num_sms, deepseek-ai/DeepEP). Version 0.5.12 holds one node, 0.5.6.post2 up to 8.

`moe_a2a` has the same exchanges as vLLM and TensorRT-LLM run them, over the ranks of one node, a row for each phase;
it comes first. `trtllm_alltoall` has the kernels that exchange over NVLink across a rack, for 2 to 64 ranks, by the
format of dispatched tokens; vLLM reaches them through FlashInfer (vLLM 0.33, all2all_backend).

Ranks of DeepEP fill whole nodes, of 8 accelerators, or 4 for GB200 and GB300 (num_gpus_per_node of the system files).
More ranks of the low-latency mode in one scale-up domain, as in a rack of GB200, use the same links as those of a node:
beyond the time of one token, times grow with the share of the experts on other ranks, 1 - 1/ranks, as each expert gets
a copy of its own. NVLink's own dispatch in `trtllm_alltoall` grows by 1.09 from 8 to 32 ranks (512 tokens); by this,
1.11.
Other numbers of ranks were not measured and have no times.
"""
from typing import Literal

import numpy as np

from simulator.latency.operators.curves import EXTRAPOLATED, Curve, Times, at_site
from simulator.latency.operators.rows import default

GATHER = "allgather_reducescatter"
NvLink = Literal["flashinfer_nvlink_two_sided", "flashinfer_nvlink_one_sided"]      # vLLM's names
LOW_LATENCY = "deepep_low_latency"
TABLES = {"deepep_high_throughput": "wideep_deepep_normal", LOW_LATENCY: "wideep_deepep_ll"}
TIMES = {"wideep_deepep_normal": ("transmit_us", "notify_us"), "wideep_deepep_ll": ("avg_t_us",)}
SHORT = {"deepep_high_throughput": "deepep_ht", "deepep_low_latency": "deepep_ll"}      # in moe_a2a
MULTIPROCESSORS = 20
SIDES = {"flashinfer_nvlink_two_sided": "NVLinkTwoSided", "flashinfer_nvlink_one_sided": "NVLinkOneSided"}
# Kernels of trtllm_alltoall; one-sided exchanges need no preparation.
NVLINK_PARTS = {"dispatch": ("alltoall_prepare", "alltoall_dispatch"), "combine": ("alltoall_combine",)}
RACK = "trtllm_alltoall"
SENT_FORMATS = {"fp4": "nvfp4", "fp8": "fp8"}           # of dispatched tokens, by that of the experts; else bfloat16


def exchange_times(database, mode: str, ranks: int, site: tuple, tokens: np.ndarray,
                   expert_dtype: str = "bfloat16") -> dict[str, Times] | None:
    """Return the times of "dispatch" and "combine"; None: not measured.

    Parameters
    ----------
    mode : a key of TABLES or SIDES.
    site : (hidden size, experts of a token, experts).
    tokens : tokens on each rank.
    expert_dtype : of the weights of experts.
    """
    found = {}
    for what in ("dispatch", "combine"):
        kernels = _kernels(database, mode, ranks, what, SENT_FORMATS.get(expert_dtype, "bfloat16"))
        asked = [(table, curves, tuple(map(float, site)), light) for table, curves in kernels]
        times = [at_site(curves, place, tokens, light) for _, curves, place, _ in asked]
        if not times or None in times:
            return None
        found[what] = Times(sum(each.ns for each in times), np.max([each.origins for each in times], axis=0))
        for each, lookup in zip(times, asked, strict=True):
            database.hear(f"expert_{what}", each, lookup)
    return found


def _kernels(database, mode: str, ranks: int, what: str, sent: str) -> list[tuple[str, dict[tuple, Curve]]]:
    """Return table and curves of each kernel of an exchange."""
    if mode in SIDES:
        kernels = [(RACK, nvlink_curves(database, mode, ranks, part, sent)) for part in NVLINK_PARTS[what]]
        return [(table, curves) for table, curves in kernels if curves or len(kernels) == 1]
    own = phase_curves(database, mode, ranks, what)
    return [("moe_a2a", own)] if own else [(TABLES[mode], exchange_curves(database, mode, ranks, what))]


def domain_times(database, mode: str, ranks: int, site: tuple, tokens: np.ndarray) -> dict[str, Times] | None:
    """Return the times of more ranks than a node's in one scale-up domain.

    As `exchange_times`; None: not measured.
    """
    few = database.node_size
    found = exchange_times(database, mode, few, site, tokens) if mode == LOW_LATENCY and ranks > few else None
    if found is None:
        return None
    growth, least = (1 - 1 / ranks) / (1 - 1 / few), exchange_times(database, mode, few, site, np.ones(1))
    return {what: Times(least[what].ns[0] + np.maximum(times.ns - least[what].ns[0], 0.0) * growth,
                        np.full(len(tokens), EXTRAPOLATED, dtype=np.uint8)) for what, times in found.items()}


def exchange_curves(database, mode: str, ranks: int, what: str) -> dict[tuple, Curve]:
    """Return the curves over tokens of a rank, by (hidden, chosen, experts)."""
    nodes, rest = divmod(ranks, database.node_size)
    if rest:
        return {}
    table = TABLES[mode]
    return database.curves(("exchange", table, nodes, what), lambda: _read(database, table, nodes, what))


def phase_curves(database, mode: str, ranks: int, what: str) -> dict[tuple, Curve]:
    """Return the curves of `moe_a2a`, as `exchange_curves`."""
    return database.curves(("exchange", "moe_a2a", mode, ranks, what),
                           lambda: _read_phase(database, SHORT[mode], ranks, what))


def nvlink_curves(database, mode: str, ranks: int, part: str, sent: str) -> dict[tuple, Curve]:
    """Return the curves of a kernel of `trtllm_alltoall`, as `exchange_curves`."""
    return database.curves(("exchange", RACK, mode, ranks, part, sent),
                           lambda: _read_nvlink(database, SIDES[mode], ranks, part, sent))


def light(site: tuple, tokens: np.ndarray) -> np.ndarray:
    """Return a time in proportion to the sent bytes, for comparison of sites."""
    hidden, chosen, _ = site
    return tokens * hidden * chosen


def _read(database, table: str, nodes: int, what: str) -> dict[tuple, Curve]:
    columns = database.columns(table, lambda columns: bool((columns["node_num"] == nodes).any()))
    if columns is None:
        return {}
    kept = columns["node_num"] == nodes
    if f"{what}_sms" in columns:
        kept = kept & (columns[f"{what}_sms"] == MULTIPROCESSORS)
    us = sum(columns[f"{what}_{name}"] for name in TIMES[table])
    site = ("hidden_size", "num_topk", "num_experts")
    rows = {name: columns[name][kept] for name in (*site, "num_token")}
    return database.split(rows | {"latency_ms": us[kept] * 1e-3}, site, "num_token")


def _read_phase(database, backend: str, ranks: int, what: str) -> dict[tuple, Curve]:
    columns = database.columns("moe_a2a", lambda columns: bool((columns["moe_ep_size"] == ranks).any()))
    if columns is None:
        return {}
    kept = (columns["moe_ep_size"] == ranks) & (columns["phase"] == what)
    kept &= np.char.endswith(columns["comm_backend"], backend)
    kept &= np.isin(default(columns, "sms", 0.0), (0.0, MULTIPROCESSORS))
    return _by_mixture(database, "moe_a2a", columns, kept)


def _read_nvlink(database, kernel: str, ranks: int, part: str, sent: str) -> dict[tuple, Curve]:
    columns = database.columns(RACK, lambda columns: bool((columns["moe_ep_size"] == ranks).any()))
    if columns is None:
        return {}
    kept = (columns["moe_ep_size"] == ranks) & (columns["op_name"] == part) & (columns["kernel_source"] == kernel)
    return _by_mixture(database, RACK, columns, kept & (default(columns, "moe_dtype", "bfloat16") == sent))


def _by_mixture(database, table: str, columns: dict, kept: np.ndarray) -> dict[tuple, Curve]:
    rows = database.pick(table, columns, kept)
    return database.split(rows, ("hidden_size", "topk", "num_experts"), "num_tokens")
