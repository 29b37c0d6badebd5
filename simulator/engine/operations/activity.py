"""Requests of a model, for scaling to zero."""
import numpy as np

from simulator.domain import records


class Activity:
    """The activity of one model, by looks from time to time.

    zero : settings.
    requests : structured array (requests,), `records.REQUEST`, of the clients.
    is_own : array (requests,) of bool, those of the model.
    """

    def __init__(self, zero, requests: np.ndarray, is_own: np.ndarray):
        self._zero, self._requests, self._is_own = zero, requests, is_own
        self._refused = 0               # at the last look
        self._active_ns = 0             # last time the model was active

    def look(self, now_ns: int) -> bool | None:
        """Return whether the model is active; None: not now, but within the cooldown."""
        status = self._requests["status"][self._is_own]
        refused = int((status == records.REJECTED).sum())
        here = int(((status == records.WAITING) | (status == records.RUNNING)).sum())
        activity, self._refused = here + max(refused - self._refused, 0), refused
        if activity > self._zero.activation:
            self._active_ns = now_ns
            return True
        return False if now_ns - self._active_ns >= round(self._zero.cooldown_s * 1e9) else None


def are_for(model: str | None, models: list[str | None], workload) -> np.ndarray:
    """Return which requests of a workload are for a served model.

    models : all that are served; None serves the requests that are for no other.
    """
    labels = [str(label) for label in workload.labels.get("model", ())]
    if len(models) == 1:
        return np.ones(len(workload.demands), bool)
    codes = [labels.index(each) for each in models if each in labels and model in (None, each)]
    return np.isin(workload.demands["model"], codes, invert=model is None)
