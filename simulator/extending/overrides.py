"""Check that a user's class overrides the methods that its base requires, so that misspelt methods are found.

A Python class overrides a method; a compiled class overrides a C function by its address in the table of virtual
functions, in the order of the base's header. Each compiled class has that table as `__pyx_vtable__`.
"""
import ctypes
from importlib import import_module
from inspect import getattr_static
from typing import NamedTuple

from simulator.errors import nearest

_MADE_BY_PYTHON = 1 << 9        # Py_TPFLAGS_HEAPTYPE, which compiled classes are not


class Question(NamedTuple):
    """The method that a class of a kind must override.

    method : name in the base's header; for a kind without a base, in Python.
    place : index of the function in the base's table of virtual functions; None: the base is no compiled class.
    or_place : index of another function that a class may override instead; None: there is none.
    python : "module:Class" of the base of classes written in Python; None: there is none.
    python_method : method that a subclass of that base must override.
    keys : keys that the Parameters of such a subclass must have.
    or_method : for a kind without a base: the name of another method that may be defined instead.
    """

    method: str
    place: int | None = None
    or_place: int | None = None
    python: str | None = None
    python_method: str = ""
    keys: tuple[str, ...] = ()
    or_method: str = ""


QUESTIONS = {
    "scheduler": Question("schedule", 2, None, "simulator.scheduling.python_scheduler:PythonScheduler", "form_batch",
                          ("max_num_seqs", "max_num_batched_tokens")),
    "latency": Question("batch_ns", 0, None, "simulator.latency.python_model:PythonLatencyModel", "batch_us"),
    "collective": Question("time_ns", 0),
    "kv_tier": Question("maker", None, None, "simulator.kv.tiers.protocols.base:Protocol", "maker"),
    "kv_eviction": Question("evict", 2),
    "admission": Question("admit", 0, None, "simulator.admission.python_admission:PythonAdmission", "lets_pass"),
    "saturation": Question("saturation", 0),
    "autoscaler": Question("decide", None, None, "simulator.scaling.base:Autoscaler", "decide"),
    "programs": Question("begin", None, None, "simulator.admission.programs.base:ProgramPolicy", "begin"),
    "router": Question("route", 0, None, "simulator.routing.python_router:PythonRouter", "choose"),
    "decider": Question("splits", 0, None, "simulator.routing.disaggregation.python_decider:PythonDecider",
                        "splits_request"),
    "rescheduler": Question("plan", 0),
    "scorer": Question("rate", 1, 0, "simulator.routing.scoring.python:PythonScorer", "rate_all"),     # or `note`
    "filter": Question("keep", 0),
    "workload": Question("columns"),
    "client_format": Question("columns"),
    "trace_format": Question("read"),
    "arrival": Question("gaps_s", or_method="arrivals_s"),
    "rate": Question("course", None, None, "simulator.workload.drawing.rates.base:Changing", "course"),
    "preset": Question("draw", None, None, "simulator.workload.presets.base:Preset", "draw"),
    "length_distribution": Question("draw"),
    "time_distribution": Question("draw"),
    "vidur_interval": Question("next_s"),
    "vidur_length": Question("next"),
}


def fault_of(kind: str, chosen: type, base: type | None) -> str | None:
    """Return the fault of a user's class of a kind as text; None: there is none.

    base : base class of the kind; None: the kind requires methods only.
    """
    question = QUESTIONS[kind]
    if base is None:
        methods = filter(None, (question.method, question.or_method))
        is_answered = any(callable(getattr(chosen, method, None)) for method in methods)
        return None if is_answered else _lacks(chosen, question.method)
    python = python_base(kind)
    if python is not None and issubclass(chosen, python):
        method = question.python_method
        is_as_before = getattr_static(chosen, method) is getattr_static(python, method)
        return _lacks(chosen, method) if is_as_before else _lacks_keys(chosen, python, question.keys)
    places = [place for place in (question.place, question.or_place) if place is not None]
    if not places or any(address(chosen, place) != address(base, place) for place in places):
        return None
    if not chosen.__flags__ & _MADE_BY_PYTHON:
        return f"it overrides no `cdef {question.method}` of {base.__name__}: as it is spelt there, and typed"
    how = f"; subclass {python.__module__}.{python.__name__} and override {question.python_method}" if python else (
        "; write it in Cython")
    return f"a class in Python cannot override {question.method} of {base.__name__}, a C function{how}"


def python_base(kind: str) -> type | None:
    """Return the base of a kind's classes written in Python; None: there is none."""
    target = QUESTIONS[kind].python
    if target is None:
        return None
    module, _, name = target.partition(":")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError:
        return None


def address(compiled: type, place: int) -> int:
    """Return the address of a C method.

    It is entry `place` of the table of a compiled class, or of the nearest compiled base.
    """
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = get(compiled.__pyx_vtable__, None)
    return ctypes.c_void_p.from_address(table + place * ctypes.sizeof(ctypes.c_void_p)).value


def _lacks_keys(chosen: type, python: type, keys: tuple[str, ...]) -> str | None:
    """Return as text the keys that a class's Parameters lacks; None: it lacks none."""
    lacking = [key for key in keys if key not in getattr(chosen.Parameters, "__struct_fields__", ())]
    if not lacking:
        return None
    return f"its Parameters lacks {' and '.join(lacking)}: let it inherit {python.Parameters.__name__}"


def _lacks(chosen: type, method: str) -> str:
    """Return as text that a method is missing, with the nearest name among the class's own methods."""
    own = [name for each in chosen.__mro__ if not each.__module__.startswith(("simulator.", "builtins"))
           for name, value in vars(each).items() if callable(value) and not name.startswith("__")]
    meant = nearest(method, own).removeprefix("; did you mean ").removesuffix("?")
    return f"it overrides no {method}" + (f"; is {meant} meant to be it?" if meant else "")
