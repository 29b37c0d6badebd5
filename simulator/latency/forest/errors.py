"""What forests know of their own error: each sub-model's, where a fold of its samples was left out.

Beyond its samples a forest says what it says at their border, and nothing is known of the error there: that within
stands for it, which is too little. What a collective model answers has no known error.
"""
from dataclasses import replace

import numpy as np

from simulator.latency.forest.cache import errors_of, tables_of
from simulator.latency.forest.measured import measured_ranges, profile_facts
from simulator.latency.forest.profiles import HOST_TIMES, files_needed, subject_of
from simulator.latency.forest.tables import EXTRAPOLATED, ForestTables
from simulator.latency.uncertainty.spread import OperatorError, measured_spread

FILE_OF = (dict.fromkeys(("attn_decode", "attn_prefill", "attn_kv_cache_save"), "attention_file")
           | dict.fromkeys(HOST_TIMES, "cpu_overhead_file")
           | {"all_reduce": "all_reduce_file", "send_recv": "send_recv_file"})      # others: compute_file
ATTENTION = {"attn_decode": "decode", "attn_prefill": "prefill"}       # operator -> field of ForestTables


def operator_errors(parameters, deployment, collective) -> tuple[dict[str, OperatorError], dict[str, dict]]:
    """Return error and profile of each operator, by the names of `breakdown`.

    Profiles are told by file, version, sha256 and measured: the range of each axis.

    Raises
    ------
    InputErrors
        Profiles are missing or wrong.
    """
    sizes = errors_of(parameters, deployment, collective is None)
    tables, _ = tables_of(parameters, deployment, collective is None)
    found = {name: OperatorError(measured_spread(each, "folds of its samples left out"), None,
                                 tables.coverage_of(name) == EXTRAPOLATED, (name,))
             for name, each in sizes.items()}
    files = files_needed(parameters, subject_of(parameters, deployment), collective is None)
    facts, ranges = profile_facts(files, parameters.cache_directory), measured_ranges(tables)
    profiles = {name: facts[FILE_OF.get(name, "compute_file")] | {"measured": ranges.get(name, {})} for name in found}
    if collective is not None:
        found |= {kind: OperatorError(None) for kind in ("all_reduce", "send_recv")}
    return found, profiles


def varied(tables: ForestTables, errors: dict[str, OperatorError], factors: dict[str, tuple[float, float]],
           launch_ms: float) -> ForestTables:
    """Return tables with the times of operators multiplied.

    factors : within what was measured, and beyond it, by operator; others stay as they are.
    launch_ms : that is added to each all-reduce, and belongs to it.
    """
    def of(name: str, times: np.ndarray) -> np.ndarray:
        if name not in factors:
            return times
        inside, beyond = factors[name]
        factor = np.where(errors[name].is_outside, beyond, inside)
        added = launch_ms if name == "all_reduce" else 0.0
        return (times + added) * factor - added

    return replace(tables, tokens={name: of(name, times) for name, times in tables.tokens.items()},
                   host={name: of(name, times) for name, times in tables.host.items()},
                   **{field: of(name, getattr(tables, field)) for name, field in ATTENTION.items()})
