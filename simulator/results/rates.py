"""Sums and rates of the summary: of the whole run, or of the measured window."""
import numpy as np

from simulator.domain import records
from simulator.domain.run import Run
from simulator.results.slo import Verdicts, completed_of
from simulator.results.window_events import events_of


class Rates:
    """Rates of events, over their span of time.

    duration_s : from 0 to the last completion, of the whole run; else the length of its window.
    events : events in the window, by request of the whole run; None: there is no window.

    Parameters
    ----------
    verdicts : on all requests of the run.
    """

    def __init__(self, run: Run, verdicts: Verdicts):
        self._requests, self._verdicts, self.events = run.workload.requests, verdicts, events_of(run)
        self.duration_s = duration_s_of(self._requests) if run.window is None else run.window.duration_ns / 1e9

    def of(self, rows=slice(None)) -> dict[str, float | int | None]:
        """Return totals, and rates per second, of some requests of the whole run."""
        if self.events is None:
            return throughput(self._requests[rows], self.duration_s, self._verdicts.num_good(rows))
        own = self.events.of(rows)
        good = self._verdicts.num_good(rows)
        if good is not None:
            good = int((self._verdicts.good[rows] & own.completed).sum())
        return per_second(self.duration_s, int(own.completed.sum()), int(own.prompt_tokens.sum()),
                           int(own.output_tokens.sum()), good)

    def notes(self) -> list[str]:
        """Return a note on requests with estimated token counts."""
        count = 0 if self.events is None else int(self.events.is_estimated.sum())
        if not count:
            return []
        whose = "1 request that generates" if count == 1 else f"{count:,} requests that generate"
        return [f"tokens of {whose} across an end of the window are estimated: they waited, moved or got several "
                "tokens at once, and are taken to get them evenly"]


def duration_s_of(requests: np.ndarray) -> float:
    """Return the time from 0 to the last completion; 0 if nothing completed."""
    return int(requests["completed_ns"].max(initial=0, where=requests["status"] == records.COMPLETED)) / 1e9


def throughput(requests: np.ndarray, duration_s: float, num_good: int | None) -> dict[str, float | int | None]:
    """Return totals over completed requests, and rates per second of `duration_s`.

    num_good : requests that kept their bounds; None: there are no bounds.
    """
    completed = completed_of(requests)
    input_tokens, output_tokens = (int(completed[name].sum(dtype=np.int64)) for name in (
        "prompt_tokens", "output_tokens"))
    return per_second(duration_s, len(completed), input_tokens, output_tokens, num_good)


def per_second(duration_s: float, completed: int, input_tokens: int, output_tokens: int, num_good: int | None) -> dict:
    """Return totals of completed requests, and rates per second."""
    def rate(count):
        return count / duration_s if duration_s else 0.0

    return {
        "total_input_tokens": input_tokens,
        "total_output_tokens": output_tokens,
        "request_throughput": rate(completed),
        "output_throughput": rate(output_tokens),
        "total_token_throughput": rate(input_tokens + output_tokens),
        "request_goodput": None if num_good is None else rate(num_good),
    }
