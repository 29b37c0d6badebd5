"""Dispatch and combine of wide expert parallelism by DeepEP: aiconfigurator's wideep_deepep tables.

A row of either table is one kernel for `num_token` tokens on each rank, of `hidden_size`, to `num_topk` of
`num_experts` experts over `node_num` nodes. The bandwidths in the table of the low-latency mode imply its bytes:
7168 wide, one token to 8 experts, dispatched in fp8 with a float32 scale per 128 elements and 16 bytes of head, makes
8 (7168 + 224 + 16) bytes a rank, combined in bfloat16 8 x 14,336. Times are microseconds. In the normal mode, vLLM's
"deepep_high_throughput", a kernel is the sum of `transmit` and `notify`; only rows of 20 multiprocessors are used,
DeepEP's default (Buffer.num_sms, deepseek-ai/DeepEP).

Ranks fill whole nodes, of 8 accelerators, or 4 for GB200 and GB300 (num_gpus_per_node of the system files). Other
numbers of ranks were not measured and have no times. Version 0.5.12 holds one node, 0.5.6.post2 up to 8.
"""
import numpy as np

from simulator.latency.operators.curves import Curve, Times, at_site

GATHER = "allgather_reducescatter"
TABLES = {"deepep_high_throughput": "wideep_deepep_normal", "deepep_low_latency": "wideep_deepep_ll"}
TIMES = {"wideep_deepep_normal": ("transmit_us", "notify_us"), "wideep_deepep_ll": ("avg_t_us",)}
MULTIPROCESSORS = 20


def exchange_times(database, mode: str, ranks: int, site: tuple, tokens: np.ndarray) -> dict[str, Times] | None:
    """Return the times of "dispatch" and "combine"; None: not measured.

    Parameters
    ----------
    mode : a key of TABLES.
    site : (hidden size, experts of a token, experts).
    tokens : tokens on each rank.
    """
    found = {}
    for what in ("dispatch", "combine"):
        curves = exchange_curves(database, mode, ranks, what)
        found[what] = at_site(curves, tuple(map(float, site)), tokens, light)
        if found[what] is not None:
            database.hear(f"expert_{what}", found[what], (TABLES[mode], curves, tuple(map(float, site)), light))
    return None if None in found.values() else found


def exchange_curves(database, mode: str, ranks: int, what: str) -> dict[tuple, Curve]:
    """Return the curves over tokens of a rank, by (hidden, chosen, experts)."""
    nodes, rest = divmod(ranks, database.node_size)
    if rest:
        return {}
    table = TABLES[mode]
    return database.curves(("exchange", table, nodes, what), lambda: _read(database, table, nodes, what))


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
