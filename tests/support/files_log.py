"""Compare results that were written to files with the log of a recorded run, field by field.

Logs round times to 6 or 9 decimals, and every recorded duration and arrival is a whole number of microseconds: a
rounded time is the exact one. A log that was cut says nothing about what comes after.
"""
import numpy as np

from support.files import COMPLETED, nanoseconds

TIMES = {"first_scheduled": "scheduled_ns", "first_token": "first_token_ns", "finish": "completed_ns"}
COUNTS = {"prompt_len": "prompt_tokens", "n_out": "output_tokens", "cached_tokens": "cached_tokens",
          "preemptions": "preemptions"}


def differences(log, results):
    """Yield a sentence for each difference between a log and `WrittenResults`."""
    is_cut = log["summary"]["cut"]
    yield from _iterations(log, results, is_cut)
    yield from _requests(log, results, is_cut)
    if not is_cut:
        yield from _counts(log, results.summary)
        yield from _latencies(log, results.summary)


def _iterations(log, results, is_cut):
    """Compare the iterations that computed something; others have no row in /iterations."""
    steps = [step for step in log["steps"] if step["scheduled"]]
    rows = results.iterations[:len(steps)] if is_cut else results.iterations
    num_blocks = log["options"]["num_blocks"] - 1       # without the null block
    expected = {
        "start_ns": [nanoseconds(step["t"]) for step in steps],
        "duration_ns": [nanoseconds(step["dur"]) for step in steps],
        "sequences": [_count(step["scheduled"]) for step in steps],
        "waiting": [_count(step["waiting"]) for step in steps],
        "running": [_count(step["running"]) for step in steps],
        "preempted": [_count(step["preempted"]) for step in steps],
        "used_blocks": [num_blocks - step["free_blocks"] for step in steps],
        "tokens": [step["total_tokens"] for step in steps],
    }
    found = {name: rows[name] for name in expected if name != "tokens"}
    found["tokens"] = rows["prefill_tokens"] + rows["decode_tokens"]
    for name, values in expected.items():
        yield from _array_difference(f"iterations: {name}", np.array(values), found[name])


def _requests(log, results, is_cut):
    rows = {request_id: row for row, request_id in enumerate(results.ids)}
    for entry in log["requests"]:
        row = rows[entry["id"]]
        record, where = results.requests[row], f"request {entry['id']}"
        is_open = is_cut and entry["finish"] is None
        for name, ours in TIMES.items():
            if name == "finish" and _has_failed(entry):         # of answers; when the request left, its step tells
                yield from _difference(f"{where}: {name}", -1, int(record[ours]))
            elif not (is_cut and entry[name] is None):
                yield from _difference(f"{where}: {name}", _instant(entry[name]), int(record[ours]))
        for name, ours in COUNTS.items():
            if not (is_open and name in ("n_out", "preemptions")) and entry[name] is not None:
                yield from _difference(f"{where}: {name}", entry[name], int(record[ours]))
        if not is_open:
            expected = "failed" if _has_failed(entry) else "waiting" if entry["finish"] is None else COMPLETED
            yield from _difference(f"{where}: status", expected, results.status[row])
        if "token_times" in entry:      # compact logs have none
            times_ns = [nanoseconds(time) for time in entry["token_times"]]
            found = results.token_times[row]
            yield from _difference(f"{where}: token times", times_ns, found[:len(times_ns)] if is_open else found)


def _counts(log, summary):
    theirs, requests = log["summary"], summary["requests"]
    cached_tokens = sum(entry["cached_tokens"] or 0 for entry in log["requests"])
    for name, expected, found in (
            ("injected", theirs["requests"], requests["injected"]),
            ("completed", len(_finished(log)), requests["completed"]),
            ("failed", sum(map(_has_failed, log["requests"])), requests["failed"]),
            ("waiting", theirs["requests"] - theirs["finished"], requests["waiting"]),
            ("accounted for", theirs["requests"], sum(requests.values()) - requests["injected"]
             - requests["length_capped"]),
            ("iterations", sum(bool(step["scheduled"]) for step in log["steps"]), summary["iterations"]),
            ("preemptions", theirs["preemptions"], summary["preemptions"]),
            ("output tokens", sum(entry["n_out"] for entry in _finished(log)), summary["total_output_tokens"]),
            ("input tokens", sum(entry["prompt_len"] for entry in _finished(log)), summary["total_input_tokens"]),
            ("cached tokens", cached_tokens, summary["prefix_cache"]["hit_tokens"]),
            ("blocks", log["options"]["num_blocks"] - 1, summary["kv_cache"]["num_blocks"]),
            ("duration", max((entry["finish"] for entry in _finished(log)), default=0.0), summary["duration_s"])):
        yield from _difference(f"summary: {name}", expected, found)


def _latencies(log, summary):
    """Compare statistics with those of the recorded times, by vLLM's own definitions of them."""
    for name, seconds in _samples(log).items():
        statistics = dict.fromkeys(("mean", "max", "p99"))      # none where there is nothing to describe
        if seconds:
            statistics = {"mean": np.mean(seconds), "std": np.std(seconds), "min": min(seconds), "max": max(seconds)}
            statistics |= {f"p{share}": np.percentile(seconds, share) for share in (50, 90, 95, 99)}
        for key, expected in statistics.items():
            found = summary[name][key]
            if None in (expected, found):
                yield from _difference(f"summary: {name}.{key}", expected, found)
            elif not np.isclose(expected * 1e3, found, rtol=1e-9, atol=2e-6):      # a late arrival is 1e-6 ms late
                yield f"summary: {name}.{key}: recorded {expected * 1e3}, ours {found}"


def _samples(log):
    """Return the times in s that each statistic of summary.json describes."""
    finished, requests = _finished(log), log["requests"]
    samples = {
        "ttft_ms": [entry["first_token"] - entry["arrival"] for entry in finished],
        "tpot_ms": [(entry["finish"] - entry["first_token"]) / (entry["n_out"] - 1)
                    for entry in finished if entry["n_out"] > 1],
        "e2el_ms": [entry["finish"] - entry["arrival"] for entry in finished],
        "queue_ms": [entry["first_scheduled"] - entry["arrival"] for entry in finished],
    }
    if "token_times" in requests[0]:        # a message may hold several tokens
        messages = [sorted(set(entry["token_times"])) for entry in requests]
        samples["itl_ms"] = [gap for times in messages for gap in np.diff(times)]
    return samples


def _finished(log):
    return [entry for entry in log["requests"] if entry["finish"] is not None and not _has_failed(entry)]


def _has_failed(entry):
    """Say whether a request ended without being served; `finish` is when."""
    return entry.get("finish_reason") == "error"


def _instant(seconds):
    return -1 if seconds is None else nanoseconds(seconds)


def _count(entries):
    return entries if isinstance(entries, int) else len(entries)


def _difference(what, expected, found):
    if expected != found:
        yield f"{what}: recorded {expected}, ours {found}"


def _array_difference(what, expected, found):
    if len(expected) != len(found):
        yield f"{what}: recorded {len(expected)} rows, ours {len(found)}"
    length = min(len(expected), len(found))
    differ = np.flatnonzero(expected[:length] != found[:length])
    if len(differ):
        row = int(differ[0])
        yield f"{what}, row {row}: recorded {expected[row]}, ours {found[row]} ({len(differ)} rows differ)"
