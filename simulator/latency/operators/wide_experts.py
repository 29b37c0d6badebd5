"""Wide expert parallelism: tables of the experts, and of the parts beside them, of servers that exchange tokens.

SGLang's `wideep_context_moe` and `wideep_generation_moe` hold the experts of DeepSeek-V3 behind DeepEP's normal and
low-latency modes, `wideep_*_mlp` its shared expert, on 2 to 256 ranks. TensorRT-LLM's `wideep_moe` holds experts behind
NVLink exchanges; only rows without redundant slots are used. Tokens are those of all ranks, but of the shared expert
those of one. Other mixtures are looked up in `moe`.
"""
import numpy as np

from simulator.latency.operators.curves import Curve, Times
from simulator.latency.operators.exchanges import SIDES
from simulator.latency.operators.rows import default, formats

# Framework and mode of the exchange -> the phase in the tables' names.
PHASES = {("sglang", "deepep_high_throughput"): "context", ("sglang", "deepep_low_latency"): "generation"}
SITE = ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")
EVEN = {"balanced": "uniform"}          # names of loads in SGLang's tables


def phase_of(parameters) -> str | None:
    """Return the phase with tables of a deployment; None: not of wide experts.

    parameters : OperatorsParameters
    """
    return PHASES.get((parameters.framework, parameters.all2all_backend))


def experts_table(parameters) -> str | None:
    """Return the table of experts behind an exchange; None: there is none."""
    phase = phase_of(parameters)
    if phase:
        return f"wideep_{phase}_moe"
    is_nvlink = parameters.framework == "trtllm" and parameters.all2all_backend in SIDES
    return "wideep_moe" if is_nvlink else None


def expert_curves(database, table: str, dtype: str, mixture: tuple, load: str) -> dict[tuple, Curve]:
    """Return the curves of a mixture over tokens of all ranks, by site."""
    found = database.curves((table, dtype, load), lambda: _read_experts(database, table, dtype, load))
    return {site: curve for site, curve in found.items() if site[:len(mixture)] == mixture}


def shared_expert_times(database, parameters, hidden: int, part, dtype: str, tokens: np.ndarray) -> Times | None:
    """Return the times of a shared expert with its activation; None: not measured.

    part : Mlp, whole. dtype : of its weights, as tables name it.
    """
    phase = phase_of(parameters)
    if phase is None or not part.gated:
        return None
    table, site = f"wideep_{phase}_mlp", (float(hidden), float(part.intermediate_size))
    curves = database.curves((table, dtype), lambda: _read_shared(database, table, dtype))
    if site not in curves:
        return None
    return database.ask(table, curves, site, tokens, lambda site, at: np.maximum(at, 1.0))


def _read_experts(database, table: str, dtype: str, load: str) -> dict[tuple, Curve]:
    columns = database.columns(table, lambda each: bool((formats(each, "moe_dtype") == dtype).any()))
    if columns is None:
        return {}
    loads = default(columns, "distribution", "balanced")
    kept = (formats(columns, "moe_dtype") == dtype) & np.isin(loads, (load, EVEN.get(load, load)))
    kept &= default(columns, "num_slots", columns["num_experts"]) == columns["num_experts"]
    rows = database.pick(table, columns, kept)
    ways = {name: default(rows, name, 1.0) for name in SITE[4:]}
    return database.split(rows | ways, SITE, "num_tokens")


def _read_shared(database, table: str, dtype: str) -> dict[tuple, Curve]:
    columns = database.columns(table)
    if columns is None:
        return {}
    rows = database.pick(table, columns, formats(columns, "moe_dtype") == dtype)
    return database.split(rows, ("hidden_size", "inter_size"), "num_token")
