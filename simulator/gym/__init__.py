"""Environments of gymnasium in which an agent decides for a gateway or an autoscaler, and baselines beside it.

Imported at first use, since the environments need the extra `gym`; `comparing` and `linear` need it not.
"""
from importlib import import_module

_HOME = {
    "AdmissionEnv": "simulator.gym.environments",
    "RouterEnv": "simulator.gym.environments",
    "ScalingEnv": "simulator.gym.environments",
    "Rewards": "simulator.gym.rewards",
    "Search": "simulator.gym.tuning",
    "built_in": "simulator.gym.comparing",
    "compare": "simulator.gym.comparing",
    "linear_router": "simulator.gym.linear",
    "tune_weights": "simulator.gym.tuning",
    "vectorised": "simulator.gym.environments",
}
__all__ = sorted(_HOME)


def __getattr__(name):
    if name not in _HOME:
        raise AttributeError(f"module 'simulator.gym' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__():
    return sorted({*globals(), *__all__})
