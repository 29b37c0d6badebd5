"""Facts about a workload before it is served, in numbers."""
import numpy as np

from simulator.results.distributions import distribution
from simulator.study.shared_prefixes import shared_tokens
from simulator.workload.base import Workload
from simulator.workload.known_times import starts_ns
from simulator.workload.limits import MISSING

WINDOWS = 10
UNKNOWN_TIMES = "arrivals depend on how fast requests are served"


def facts_of(workload: Workload, block_size: int) -> dict:
    """Return the facts, ready for JSON.

    Where requests wait for others only the beginnings of plays have arrival times, and none where slots alone start
    plays.

    Parameters
    ----------
    block_size : tokens in a KV block, the unit of prefix caches.
    """
    outputs = np.clip(workload.outcomes["output_tokens"], 1, workload.demands["max_tokens"])
    prompts, shared = workload.requests["prompt_tokens"], shared_tokens(workload)
    return {
        "requests": len(workload),
        "requests_are_a_guess": workload.is_open_ended,
        "warmups": workload.num_warmups,
        "arrivals": _arrivals(workload),
        "prompt_tokens": _whole(prompts),
        "output_tokens": _whole(outputs),
        "shared_prefix": {
            "prompt_tokens": int(prompts.sum(dtype=np.int64)),
            "shared_tokens": int(shared.sum()),
            "shared_frac": _share(shared.sum(), prompts),
            "block_size": block_size,
            "shared_frac_in_blocks": _share((shared // block_size * block_size).sum(), prompts),
        },
        "plays": _plays(workload),
        "labels": {column: _counts(workload, column, names) for column, names in workload.labels.items()
                   if len(names) and column != "session"},
        "sessions": _sessions(workload),
        "facts": {fact: _whole(values[values != MISSING]) for fact, values in workload.facts.items()},
        "expected_tokens": _whole(workload.demands["expected_tokens"][workload.demands["expected_tokens"] >= 0]),
        "deadlines": int(np.sum(workload.demands["due_ns"] >= 0) if workload.script is None else
                         0 if workload.script.timeout_ns is None else np.sum(workload.script.timeout_ns != MISSING)),
    }


def times_ns(workload: Workload) -> np.ndarray:
    """Return the known arrival times of requests, or plays, int64."""
    known_ns = starts_ns(workload)
    return known_ns[known_ns >= 0]


def _whole(values: np.ndarray) -> dict:
    return distribution(np.asarray(values, np.float64)) | {"total": int(np.sum(values, dtype=np.int64))}


def _share(part: int, prompts: np.ndarray) -> float:
    return float(part) / float(prompts.sum(dtype=np.int64)) if len(prompts) else 0.0


def _arrivals(workload: Workload) -> dict | None:
    """Return span, rate and requests, or plays, in each of ten equal windows; None: not known."""
    known_ns, script = times_ns(workload), workload.script
    if not len(known_ns):
        return None
    first_ns, last_ns = int(known_ns.min()), int(known_ns.max())
    span_s = (last_ns - first_ns) / 1e9
    counts, _ = np.histogram(known_ns - first_ns, WINDOWS, (0, max(last_ns - first_ns, 1)))
    return {
        "of": "requests" if script is None or script.play_begins is None else "plays",
        "count": len(known_ns),
        "others": 0 if script is None else len(script.start_ns) - len(known_ns) - workload.num_warmups,
        "first_s": first_ns / 1e9,
        "span_s": span_s,
        "rate_per_s": (len(known_ns) - 1) / span_s if span_s else None,
        "window_s": span_s / WINDOWS,
        "in_windows": counts.tolist(),
    }


def _plays(workload: Workload) -> dict | None:
    """Describe sessions and graphs: the number of requests in each, and the waits between its requests."""
    script = workload.script
    if script is None or script.play_begins is None:
        return None
    waits_s = np.empty(0) if script.edges is None else script.edges.delays_ns[~script.edges.from_dispatch] / 1e9
    return {"count": len(script.play_begins) - 1, "requests": distribution(np.diff(script.play_begins).astype(float)),
            "wait_after_end_s": distribution(waits_s)}


def _sessions(workload: Workload) -> dict | None:
    """Describe the sessions of the label `session`."""
    names = workload.labels.get("session", ())
    if not len(names):
        return None
    counts = np.bincount(workload.demands["session"] + 1, minlength=len(names) + 1)[1:]
    return {"count": int((counts > 0).sum()), "requests": distribution(counts[counts > 0].astype(float))}


def _counts(workload: Workload, column: str, names: list) -> dict[str, int]:
    counts = np.bincount(workload.demands[column] + 1, minlength=len(names) + 1).tolist()
    return {str(name): count for name, count in zip(names, counts[1:], strict=True)} | (
        {"none": counts[0]} if counts[0] and "none" not in names else {})
