"""Requests with structured outputs, drawn if an experiment gives their fraction."""
import numpy as np
from msgspec.structs import replace

from simulator.errors import InputErrors, KeyFault
from simulator.workload.base import Workload
from simulator.workload.own_draws import uniforms

KEY = "engine.structured_outputs"


def with_grammars(workload: Workload, tables: list, seed: int) -> Workload:
    """Return the requests with grammars, by [engine.structured_outputs].

    tables : StructuredOutputParameters of each pool; None: it has none.

    Raises
    ------
    InputErrors
        The trace already assigns grammars, or pools do not agree.
    """
    asked = {(table.fraction, table.num_grammars) for table in tables if table is not None}
    if not asked and "grammar" in workload.labels:
        return replace(workload, notes=(*workload.notes, "the column grammar acts on nothing: there is no table "
                                                         "[engine.structured_outputs]"))
    if not any(fraction for fraction, _ in asked):
        return workload
    if len(asked) > 1 or None in tables:
        raise InputErrors([KeyFault(f"{KEY}.fraction: expected the same in all pools, and the same num_grammars: it is "
                                    "settled for each request before it is known who serves it")])
    if "grammar" in workload.labels:
        raise InputErrors([KeyFault(f"{KEY}.fraction: expected 0, the trace has a column grammar")])
    (fraction, num_grammars), = asked
    keys = workload.numbers()
    has_one = uniforms(seed, "grammars/share", keys) < fraction
    codes = np.cumsum(has_one) - 1
    if num_grammars > 0:
        codes = (uniforms(seed, "grammars", keys) * num_grammars).astype(np.int64)
    names = [str(i) for i in range(num_grammars or int(has_one.sum()))]
    demands = workload.demands.copy()
    demands["grammar"] = np.where(has_one, codes, -1)
    return replace(workload, demands=demands, labels=workload.labels | {"grammar": names})
