"""Contracts of admission policies and autoscalers, in whole experiments."""
import os
from collections.abc import Mapping
from typing import Any

from simulator import registry
from simulator.testing.runs import holds_in_a_cluster


def check_admission(name: str, parameters: Mapping[str, Any] | None = None, **sections: Any) -> None:
    """Check that an admission policy keeps the contract of its kind.

    Parameters
    ----------
    name : a built-in name, or "module:Class".
    parameters : keys of [cluster.admission] beside `policy`; None: defaults.
    sections : other tables of the experiment, such as topology={"replicas": 2}.

    Raises
    ------
    AssertionError
        The rules that it breaks, a line each.
    """
    registry.load("admission", name, [os.getcwd()])
    holds_in_a_cluster(name, {"cluster.admission": {"policy": name, **(parameters or {})}, **sections})


def check_autoscaler(name: str, parameters: Mapping[str, Any] | None = None, **sections: Any) -> None:
    """Check that an autoscaler keeps the contract of its kind.

    parameters : keys of [autoscaling] beside `policy`; None: defaults. Else as `check_admission`.
    """
    registry.load("autoscaler", name, [os.getcwd()])
    keys = {"policy": name, "interval_s": 0.5, "max_replicas": 4, **(parameters or {})}
    holds_in_a_cluster(name, {"autoscaling": keys, **sections})
