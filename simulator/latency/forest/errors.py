"""Errors of forests: of each sub-model, on a fold of its samples that was left out.

Beyond its samples a forest repeats the prediction at their border, and the error there is unknown: the error within is
used, which is too small. Results of a collective model have no known error.
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
    """Return error and profile of each operator, by the names in `breakdown`.

    A profile has file, version, sha256 and measured, the range of each axis.

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
    """Return tables with factors on the times of operators.

    factors : by operator, within and outside the measured range; other operators are unchanged.
    launch_ms : host time that is added to each all-reduce, and varied with it.
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
