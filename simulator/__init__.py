"""A discrete-event simulator of LLM inference serving.

`simulator.run("experiment.toml")` runs an experiment and returns its `Result`; `simulator.load_results("results/name")`
reads a written one; `simulator.predict("experiment.toml", prefill=[512])` returns the predicted duration of one
iteration; `simulator.sweep("study.toml")` runs a study. All are imported at first use, since they import NumPy.
"""
import sys
from importlib import import_module

from simulator.not_built import MissingModules

__version__ = "0.1.0"
# Version of the headers that other packages compile against: routing/base.pxd, scheduling/base.pxd, latency/base.pxd,
# collective/base.pxd and kv/tiers/eviction.pxd. It rises with every change of their public declarations.
API_VERSION = 1
__all__ = ["API_VERSION", "InputErrors", "Result", "__version__", "load_results", "load_study", "predict", "run",
           "sweep"]

_HOME = {
    "InputErrors": "simulator.errors",
    "Result": "simulator.results.result",
    "load_results": "simulator.results.load",
    "load_study": "simulator.study.studies",
    "predict": "simulator.study.predict",
    "run": "simulator.api",
    "sweep": "simulator.study.studies",
}

sys.meta_path.append(MissingModules)


def __getattr__(name):
    if name not in _HOME:
        raise AttributeError(f"module 'simulator' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__():
    return sorted({*globals(), *__all__})
