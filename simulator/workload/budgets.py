"""Requests without a declared limit of their output: the engine's window is the limit.

vLLM fills in max_model_len less the prompt, and so does BLIS, which then compares the prompt alone with max_model_len.
Source: inference-sim (BLIS), sim/simulator.go, EnqueueRequest; vLLM, vllm/entrypoints/utils.py, get_max_tokens.
"""
from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from simulator.workload.columns import Columns

NO_BUDGET = "no_budget"         # of `Columns.facts`: 1 where nothing was declared
UNDECLARED = 0                  # in the column max_tokens


def with_budgets(columns: Columns, longest_text: Callable[[], int] | None) -> Columns:
    """Return requests of which all have a limit.

    longest_text : returns the smallest max_model_len of all pools; None: it is not known, and the limit is the output.
    """
    if columns.max_tokens is None or not np.any(undeclared := columns.max_tokens == UNDECLARED):
        return columns
    room = columns.output_tokens if longest_text is None else longest_text() - columns.prompt_tokens
    return replace(columns, max_tokens=np.where(undeclared, np.maximum(room, 1), columns.max_tokens),
                   facts=columns.facts | {NO_BUDGET: undeclared.astype(np.int64)})


def is_declared(facts: dict[str, np.ndarray], rows: slice = slice(None)) -> np.ndarray | bool:
    """Return whether each request declared a limit, bool (n,); True: all requests did."""
    return facts[NO_BUDGET][rows] == 0 if NO_BUDGET in facts else True
