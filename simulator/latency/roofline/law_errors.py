"""Errors of the roofline on tables of single operators: hardware/efficiency/roofline_errors.toml.

Mean relative errors; their distribution is taken to be normal in logarithms. If the laws were fitted to tables of the
system: the error of the laws in use; else: the mean over all systems of the error of laws fitted to the other systems.
"""
from functools import cache

import numpy as np
import tomli

from simulator.domain.facts import folder
from simulator.domain.hardware_spec import AcceleratorSpec
from simulator.latency.uncertainty.spread import Spread, normal_spread

FILE = "efficiency/roofline_errors.toml"
BY_SHARE, LEFT_OUT, IN_USE = range(3)           # columns behind operator and system
SYSTEMS = {
    "a100-sxm-80gb": "a100_sxm", "h100-sxm-80gb": "h100_sxm", "h200-sxm-141gb": "h200_sxm", "l40s": "l40s",
    "b200-sxm-180gb": "b200_sxm", "b300-sxm-288gb": "b300_sxm", "gb200": "gb200", "gb300": "gb300",
    "rtx-pro-6000-server": "rtx_pro_6000_server"}
FORMATS = {"float16": "bfloat16", "float32": "bfloat16", "int8": "fp8"}


def law_spread(operator: str, dtype: str, accelerator: AcceleratorSpec, by_share: bool = False) -> Spread:
    """Return the error of an operator on an accelerator.

    Parameters
    ----------
    As in `law_error`; errors are taken to be normal.
    """
    return normal_spread(*law_error(operator, dtype, accelerator, by_share))


def law_error(operator: str, dtype: str, accelerator: AcceleratorSpec, by_share: bool = False) -> tuple[float, str]:
    """Return the mean relative error of an operator, and a description of its source.

    Parameters
    ----------
    operator : products, experts, prefill, decode or all_reduce.
    dtype : of its weights as stored, or of the KV cache; all_reduce has none. A format without rows has the largest
        error of all formats.
    by_share : by one share of peak rates, not by laws.
    """
    system, rows = SYSTEMS.get(accelerator.name), _rows()
    name = operator if operator == "all_reduce" else f"{operator} {_format(operator, dtype, accelerator)}"
    named = [name] if name in rows else [each for each in rows if each.split()[0] == operator]
    how = "one share of peak" if by_share else "laws"
    text = f"roofline by {how}, {name if name in rows else f'{operator} of the worst format'}, " + (
        system if all(system in rows[each] for each in named) else "the mean of systems left out")
    return max(_error(rows[each], system, by_share) for each in named), text


def _format(operator: str, dtype: str, accelerator: AcceleratorSpec) -> str:
    """Return the compute format of a stored format, by the names in tables, chosen as laws are (curves.py)."""
    if operator in ("prefill", "decode"):
        return FORMATS.get(dtype, dtype)
    computed = accelerator.compute_dtype(dtype)
    is_unpacked = operator == "experts" and dtype in ("fp4", "int4") and computed != dtype
    return "weight_only" if is_unpacked else FORMATS.get(computed, computed)


def _error(by_system: dict[str, tuple], system: str | None, by_share: bool) -> float:
    if system in by_system:
        return by_system[system][BY_SHARE if by_share else IN_USE]
    return float(np.mean([errors[BY_SHARE if by_share else LEFT_OUT] for errors in by_system.values()]))


@cache
def _rows() -> dict[str, dict[str, tuple]]:
    content = tomli.loads((folder("hardware") / FILE).read_text(encoding="utf-8"))
    found: dict[str, dict[str, tuple]] = {}
    for operator, system, *errors in content["rows"]:
        found.setdefault(operator, {})[system] = tuple(errors)
    return found
