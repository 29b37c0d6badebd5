"""Files of profiled durations: {"metadata": .., "results": [row, ..]}; the p50 of each row is used."""
import json
import math
from collections.abc import Iterable
from typing import Any

from simulator.errors import InputErrors
from simulator.routing.llumnix.profiles import ProfileTable

TTFT_COLUMNS = ("tokens_num",)
TPOT_COLUMNS = ("batch_size", "tokens_per_request")
# The keys of the tables that a metric needs; a prefill shares its iterations with decodes.
_KEYS_OF = {"predicted_ttft": ("ttft_profiling_data_path", "tpot_profiling_data_path"),
            "predicted_tpot": ("tpot_profiling_data_path",)}


def missing_tables(parameters: Any, metrics: Iterable[str]) -> list[str]:
    """Return a fault for each key without which a metric cannot be computed."""
    needs = {key: name for name in metrics for key in _KEYS_OF.get(name, ()) if not getattr(parameters, key)}
    return [f"{key}: missing; {name} needs it" for key, name in needs.items()]


def read_tables(parameters: Any) -> tuple[ProfileTable | None, ProfileTable | None]:
    """Return the tables of prefills and of decodes; None: the key is empty.

    Raises
    ------
    InputErrors
        A file that cannot be read or holds something else.
    """
    return tuple(ProfileTable(read_profile(path, columns)) if path else None for path, columns in (
        (parameters.ttft_profiling_data_path, TTFT_COLUMNS), (parameters.tpot_profiling_data_path, TPOT_COLUMNS)))


def read_profile(path: str, columns: tuple[str, ...]) -> list[tuple[float, float, float]]:
    """Return (row, column, median in ms) of each result; column 0 if there is none.

    Raises
    ------
    InputErrors
        Every fault of the file.
    """
    try:
        with open(path, encoding="utf-8") as file:
            results = json.load(file)["results"]
        rows = list(results) if isinstance(results, list) else None
    except OSError as error:
        raise InputErrors([f"{path}: cannot be read: {error.strerror}"]) from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputErrors([f"{path}: expected a JSON object with a list \"results\": {error}"]) from None
    if not rows:
        raise InputErrors([f"{path}: results: expected a list with at least one row"])
    faults, samples = [], []
    for i, row in enumerate(rows):
        values = [row.get(name) if isinstance(row, dict) else None for name in (*columns, "p50")]
        faults += [f"{path}: results[{i}].{name}: expected a number >= 0, found {json.dumps(value)}"
                   for name, value in zip((*columns, "p50"), values, strict=True) if not _is_amount(value)]
        samples.append((values[0], values[1] if len(columns) > 1 else 0, values[-1]))
    if faults:
        raise InputErrors(faults)
    return samples


def _is_amount(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf
