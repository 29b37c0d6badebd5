"""What can be chosen by name: kind -> name -> "module:Class", imported when it is first used.

One line here adds a built-in. Users reach their own class through the same key of the experiment file, written as
`"module:Class"`. A class may carry `Parameters`, a frozen msgspec.Struct: the keys that stand beside its name.
"""
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import NamedTuple

import msgspec

from simulator.errors import InputErrors, did_you_mean


class Kind(NamedTuple):
    """A sort of thing that is chosen by name."""

    title: str                  # what one is called in a message
    key: str                    # the key of its table that holds the name
    entries: dict[str, str]     # name -> "module:Class"


KINDS = {
    "scheduler": Kind("scheduler", "scheduler", {
        "vllm": "simulator.scheduling.vllm:Vllm",
    }),
    "latency": Kind("latency backend", "backend", {
        "linear": "simulator.latency.linear:Linear",
        "roofline": "simulator.latency.roofline:Roofline",
    }),
    "router": Kind("router", "policy", {
        "round_robin": "simulator.routing.round_robin:RoundRobin",
    }),
    "workload": Kind("workload", "type", {
        "synthetic": "simulator.workload.synthetic:Synthetic",
        "trace": "simulator.workload.trace:Trace",
    }),
    "trace_format": Kind("trace format", "format", {
        "azure": "simulator.workload.azure:Azure",
        "csv": "simulator.workload.native_csv:NativeCsv",
        "mooncake": "simulator.workload.mooncake:Mooncake",
    }),
    "arrival": Kind("arrival process", "process", {
        "burst": "simulator.workload.arrivals:Burst",
        "constant": "simulator.workload.arrivals:Constant",
        "gamma": "simulator.workload.arrivals:Gamma",
        "poisson": "simulator.workload.arrivals:Poisson",
        "weibull": "simulator.workload.arrivals:Weibull",
    }),
    "length_distribution": Kind("length distribution", "distribution", {
        "constant": "simulator.workload.lengths:Constant",
        "empirical": "simulator.workload.lengths:Empirical",
        "exponential": "simulator.workload.lengths:Exponential",
        "lognormal": "simulator.workload.lengths:Lognormal",
        "normal": "simulator.workload.lengths:Normal",
        "uniform": "simulator.workload.lengths:Uniform",
        "zipf": "simulator.workload.lengths:Zipf",
    }),
}


class NoParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No keys beside the name."""


def load(kind: str, name: str, search: Iterable[str] = ()) -> type:
    """Import the class that `name` stands for.

    Parameters
    ----------
    kind : a key of `KINDS`.
    name : a built-in name, or "module:Class".
    search : folders in which a user's module may lie; they stay at the end of `sys.path`, since the module may import
        its neighbours later.

    Raises
    ------
    InputErrors
        Unknown name, or a user's module that cannot be imported; without file and key, which the caller knows.
    """
    target = KINDS[kind].entries.get(name)
    if target is not None:
        module, _, attribute = target.partition(":")
        return getattr(import_module(module), attribute)
    if ":" not in name:
        raise InputErrors([f'no {KINDS[kind].title} "{name}"{did_you_mean(name, KINDS[kind].entries)}'])
    return _load_from_user(name, search)


def parameters_of(chosen: type) -> type[msgspec.Struct]:
    """Return the Struct of the parameters of a registered or user-given class."""
    return getattr(chosen, "Parameters", None) or NoParameters


def _load_from_user(name: str, search: Iterable[str]) -> type:
    sys.path.extend(folder for folder in search if folder not in sys.path)
    module, _, attribute = name.partition(":")
    try:
        chosen = getattr(import_module(module), attribute)
    except Exception as error:  # the module is the user's: whatever it raises is a fault of the input
        raise InputErrors([f'cannot import "{name}": {type(error).__name__}: {_one_line(error)}']) from error
    if not isinstance(chosen, type):
        raise InputErrors([f'"{name}" is not a class'])
    parameters = parameters_of(chosen)
    if not (isinstance(parameters, type) and issubclass(parameters, msgspec.Struct)):
        raise InputErrors([f'"{name}": its Parameters is not a msgspec.Struct'])
    return chosen


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
