"""The times of requests as Vidur counts them, in seconds.

The decode phase of Vidur begins when the prompt is computed, which gives the first token: `prefill_completed_at`. A
request that did not complete has no times, as in Vidur, and no length of its output, which is unknown.

Source: microsoft/vidur, vidur/metrics/metrics_store.py and vidur/entities/request.py, commit 7d47513.
"""
import numpy as np

from simulator.domain import records

SECOND = 1e9                    # ns
NOTHING = np.nan


class RequestTimes:
    """Columns in seconds, float (n,), NaN where the value does not exist.

    Parameters
    ----------
    requests : rows of /requests that arrived, all or some.
    execution_ns, preempted_ns : time during which the batches of each executed, and time between them; NaN: it is not
        known, and both together are the time that it was served.
    before_ns : arrival of the request before the first of the rows; NaN: there is none.
    """

    def __init__(self, requests: np.ndarray, execution_ns: np.ndarray, preempted_ns: np.ndarray,
                 before_ns: float = NOTHING):
        self.requests, self._before_ns = requests, before_ns
        self._is_done = requests["status"] == records.COMPLETED
        self.prompt_tokens = requests["prompt_tokens"].astype(float)
        self.output_tokens = self._of_done(requests["output_tokens"].astype(float))
        self.arrived_at = requests["arrival_ns"] / SECOND
        self.scheduled_at = self._seconds(requests["scheduled_ns"])
        self.completed_at = self._seconds(requests["completed_ns"])
        arrival_ns, scheduled_ns = requests["arrival_ns"], requests["scheduled_ns"]
        prefill_ns, completed_ns = self._prefill_completed_ns(), requests["completed_ns"]
        self.prefill_completed_at = self._seconds(prefill_ns)
        self.e2e_time = self._seconds(completed_ns - arrival_ns)
        self.scheduling_delay = self._seconds(scheduled_ns - arrival_ns)
        self.prefill_e2e_time = self._seconds(prefill_ns - arrival_ns)
        self.prefill_time = self._seconds(prefill_ns - scheduled_ns)
        self.decode_time = self._seconds(completed_ns - prefill_ns)
        self.execution_time = self._seconds(execution_ns)
        self.execution_plus_preemption_time = self._seconds(
            np.where(np.isnan(execution_ns), completed_ns - scheduled_ns, execution_ns + preempted_ns))
        self.preemption_time = self._seconds(preempted_ns)

    @property
    def restarts(self) -> np.ndarray:
        """Number of times that each request lost its KV blocks, int (n,)."""
        return self.requests["preemptions"]

    @property
    def inter_arrival_delay(self) -> np.ndarray:
        """Time since the previous arrival; NaN for the first."""
        return np.diff(self.arrived_at, prepend=self._before_ns / SECOND) if len(self.arrived_at) else self.arrived_at

    def per_output_token(self, seconds: np.ndarray) -> np.ndarray:
        """Return times divided by output tokens."""
        return seconds / np.where(self.output_tokens > 0, self.output_tokens, np.nan)

    def _prefill_completed_ns(self) -> np.ndarray:
        """Return when the prompt was computed: by its prefill replica, where there is one."""
        own_ns = self.requests["first_token_ns"]
        if "prefill_done_ns" not in self.requests.dtype.names:
            return own_ns
        done_ns = self.requests["prefill_done_ns"]
        return np.where((self.requests["prefill_replica"] >= 0) & (done_ns >= 0), done_ns, own_ns)

    def _seconds(self, times_ns: np.ndarray) -> np.ndarray:
        """Return times of completed requests; differences are taken in ns before: nothing is rounded twice."""
        return self._of_done(times_ns / SECOND)

    def _of_done(self, values: np.ndarray) -> np.ndarray:
        return np.where(self._is_done, values, NOTHING)
