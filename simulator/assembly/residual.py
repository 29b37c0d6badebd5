"""The residual of [latency] residual: measured iterations around the latency model of a pool."""
import os
from typing import Any

from simulator.config.load import plain
from simulator.domain.step_table import StepTable, read_table
from simulator.errors import InputErrors, KeyFault

KEY = "latency.residual"
NOT_OF_PRIOR = ("residual", "host", "uncertainty", "uncertainty_replications", "uncertainty_share")
WAYS = ("tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel", "decode_context_parallel",
        "prefill_context_parallel")
OF_INTERVALS = ("latency.residual: the error of the residual is not in the intervals of latency.uncertainty, which "
                "varies the operators below it")


class NoResidual:
    """The latency model stays as it is."""

    covers_host = False

    def around_forward(self, model):
        """Return the backend, as it is."""
        return model

    def around_iteration(self, model):
        """Return the model of iterations, as it is."""
        return model


class GivenResidual:
    """The residual of a file.

    covers_host : its times include those of the host beside the kernels, except for gaps between iterations.
    """

    def __init__(self, table: StepTable, file: str, digest: str, notes: list[str]):
        self._table, self._file, self._digest, self._notes = table, file, digest, notes
        self.covers_host = table.scope == "iteration"

    def around_forward(self, model):
        """Return the backend, with the residual if that is of forward passes alone."""
        return model if self.covers_host else self._around(model)

    def around_iteration(self, model):
        """Return the model of iterations, with the residual if that is of iterations."""
        return self._around(model) if self.covers_host else model

    def _around(self, model):
        from simulator.latency.residual.model import Residual  # imported only when needed

        return Residual(model, self._table, os.path.basename(self._file), self._digest, self._notes)


def residual_of(site) -> NoResidual | GivenResidual:
    """Return the residual of a pool.

    site : assembly.site.Site of the pool.

    Raises
    ------
    InputErrors
        The file is no residual, or was fitted on top of another latency model.
    """
    file = site.pool.latency.residual
    if file is None:
        return NoResidual()
    try:
        table, digest = read_table(file)
    except InputErrors as errors:
        raise InputErrors([KeyFault(f"{KEY}: {fault}") for fault in errors.faults]) from None
    others = different(table.prior, prior_of(site.pool))
    models = [each for each in others if each.startswith("latency.")]
    if models:
        raise InputErrors([KeyFault(f"{KEY}: {file}: fitted on top of another latency model: {'; '.join(models)}")])
    notes = [f"{KEY}: {os.path.basename(file)} was measured on another server: {'; '.join(others)}"] if others else []
    if site.pool.latency.uncertainty:
        notes.append(OF_INTERVALS)
    return GivenResidual(table, file, digest, notes)


def prior_of(pool) -> dict[str, Any]:
    """Return the prior of a residual: dotted key -> value, of server and model.

    Paths count by the name of their file.
    """
    found: dict[str, Any] = {}
    tables = {"latency": {name: value for name, value in plain(pool.latency).items() if name not in NOT_OF_PRIOR},
              "model": pool.model and plain(pool.model), "hardware": pool.hardware and plain(pool.hardware),
              "topology": {name: value for name, value in plain(pool.topology).items() if name in WAYS},
              "engine": {"scheduler": pool.engine.scheduler}}
    for name, table in tables.items():
        _flatten(name, table or {}, found)
    return found


def different(there: dict[str, Any], here: dict[str, Any]) -> list[str]:
    """Return the keys in which two results of `prior_of` differ, in words."""
    return [f"{key} = {_word(there.get(key))} there, {_word(here.get(key))} here"
            for key in sorted(there.keys() | here.keys()) if there.get(key) != here.get(key)]


def _flatten(prefix: str, table: dict[str, Any], found: dict[str, Any]) -> None:
    for name, value in table.items():
        key = f"{prefix}.{name}"
        if isinstance(value, dict):
            _flatten(key, value, found)
        else:
            found[key] = os.path.basename(value) if isinstance(value, str) and os.path.isabs(value) else value


def _word(value: Any) -> str:
    return "absent" if value is None else repr(value)
