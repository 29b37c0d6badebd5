"""Times of an iteration over all layers and pipeline stages, from times of operators in one layer.

Source: microsoft/vidur @ 7d47513, vidur/execution_time_predictor/base_execution_time_predictor.py and
vidur/entities/execution_time.py: two all-reduces a layer, one send-recv between stages, host times once a stage.
"""
from dataclasses import dataclass

import numpy as np

from simulator.domain.deployment import Deployment
from simulator.latency.forest.profiles import ROUNDED_OPERATORS
from simulator.latency.forest.tables import ROUNDING, ForestTables

NS_PER_MS = 1e6
EXACT = ("attn_kv_cache_save",)  # operators with exact token counts; the others have rounded ones
ALL_REDUCES_PER_LAYER = 2       # after attention and after the MLP
SKEW_EXPONENT = 1.25            # the delay at the start of a collective grows with the number of ranks


@dataclass(frozen=True)
class IterationTables:
    """Nanoseconds of an iteration, all layers and stages together.

    Coverage has the codes of ForestTables.

    tokens_ns : by operator, (tokens + 1,), by tokens of the iteration.
    host_ns : by step, (sequences + 1,).
    decode_ns, prefill_ns : attention; as in ForestTables.
    tokens_covered, host_covered, decode_covered, prefill_covered : uint8, the worst of the operators.
    prefill_batching : factor on attention when an iteration computes several chunks.
    """

    tokens_ns: dict[str, np.ndarray]
    host_ns: dict[str, np.ndarray]
    decode_ns: np.ndarray
    prefill_ns: np.ndarray
    tokens_covered: np.ndarray
    host_covered: np.ndarray
    decode_covered: np.ndarray
    prefill_covered: np.ndarray
    prefill_batching: float


def compose(tables: ForestTables, parameters, deployment: Deployment, with_network: bool = True) -> IterationTables:
    """Return the times of whole iterations.

    Parameters
    ----------
    parameters : ForestParameters
    with_network : bool
        False if a collective model times all-reduces and send-recvs.
    """
    attention = deployment.model.attention
    layers, stages = deployment.model.num_layers, deployment.parallelism.pipeline_parallel
    is_grouped = attention.num_heads > attention.num_kv_heads   # Vidur charges only these for batching attention
    decode_ns = tables.decode * (layers * NS_PER_MS)
    decode_ns[2:] *= 1 + parameters.attention_decode_batching_overhead_fraction * is_grouped
    rounded, known = _rounded(tables), tables.coverage_of
    network_ns = _communication(tables, parameters, deployment) if with_network else {}
    return IterationTables(
        tokens_ns=_layer_terms(tables, deployment) | network_ns,
        host_ns={name: tables.host[name] * (stages * NS_PER_MS) for name in tables.host},
        decode_ns=decode_ns,
        prefill_ns=tables.prefill * (layers * NS_PER_MS),
        tokens_covered=_worst([known(name) if name in EXACT else known(name)[rounded] for name in tables.tokens]),
        host_covered=_worst([known(name) for name in tables.host]),
        decode_covered=known("attn_decode"),
        prefill_covered=known("attn_prefill"),
        prefill_batching=1 + parameters.attention_prefill_batching_overhead_fraction * is_grouped)


def _layer_terms(tables: ForestTables, deployment: Deployment) -> dict[str, np.ndarray]:
    """Return the time of each operator in all layers, by tokens of the iteration."""
    layers_ns, rounded = deployment.model.num_layers * NS_PER_MS, _rounded(tables)
    operators = [name for name in ROUNDED_OPERATORS
                 if name != "post_attention_layernorm" or deployment.model.norms_per_layer > 1]
    return ({name: tables.tokens[name][rounded] * layers_ns for name in operators}
            | {name: tables.tokens[name] * layers_ns for name in EXACT})


def _communication(tables: ForestTables, parameters, deployment: Deployment) -> dict[str, np.ndarray]:
    """Return the time of all collectives of an iteration, by its tokens."""
    ways, rounded = deployment.parallelism, _rounded(tables)
    ranks, hops = ways.tensor_parallel, ways.pipeline_parallel - 1
    terms = {}
    if ranks > 1:
        terms["all_reduce"] = deployment.model.num_layers * ALL_REDUCES_PER_LAYER * (
            tables.tokens["all_reduce"][rounded] * NS_PER_MS + launch_us(parameters, deployment) * 1e3)
    if hops:
        terms["send_recv"] = hops * tables.tokens["send_recv"][rounded] * NS_PER_MS
    return terms


def launch_us(parameters, deployment: Deployment) -> float:
    """Return the host time that is added to each all-reduce."""
    ranks = deployment.parallelism.tensor_parallel
    return parameters.nccl_cpu_launch_overhead_us + parameters.nccl_cpu_skew_overhead_us * ranks ** SKEW_EXPONENT


def is_launched(exchange) -> bool:
    """Return whether the time of launch_us is added to an exchange."""
    return (exchange.group, exchange.kind) == ("tensor", "all_reduce")


def _rounded(tables: ForestTables) -> np.ndarray:
    """Return the entry of rounded operators for each number of tokens."""
    last = len(tables.tokens["attn_pre_proj"]) - 1
    return np.minimum(-(-np.arange(last + 1) // ROUNDING) * ROUNDING, last)


def _worst(covered: list[np.ndarray]) -> np.ndarray:
    """Return the worst coverage at each entry."""
    return np.max(covered, axis=0) if covered else np.zeros(0, dtype=np.uint8)
