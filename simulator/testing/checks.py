"""What must hold of each run, whatever the experiment: pure functions of a result and what simulated it.

Each yields (kind, text) of what does not hold; a kind is one word for all faults that may be one.
"""
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from simulator.domain import records

Fault = tuple[str, str]
WAY = ("arrival_ns", "admitted_ns", "dispatched_ns", "enqueued_ns", "scheduled_ns", "first_token_ns", "completed_ns")
COUNTED = ("completed", "rejected", "dropped", "timed_out", "failed", "waiting", "running")


class Seen(NamedTuple):
    """A run: result, cluster, workload and experiment."""

    result: Any
    cluster: Any
    workload: Any
    experiment: Any


def table_of(result, name: str) -> np.ndarray | None:
    """Return a table, or None where there is none."""
    try:
        return getattr(result, name)
    except LookupError:
        return None


def faults_of(seen: Seen) -> list[Fault]:
    """Return all that does not hold."""
    return [fault for check in CHECKS for fault in check(seen)]


def conserved(seen: Seen) -> Iterator[Fault]:
    """Requests are in one place each, in the summary and in the tables."""
    summary, table = seen.result.summary, seen.result.requests
    counts = summary["requests"]
    if counts["injected"] != sum(counts[name] for name in COUNTED):
        yield "conservation", f"injected is not the sum of what became of requests: {counts}"
    measured = of_measured(table)
    for name in COUNTED:
        rows = int((measured["status"] == records.STATUS_NAMES.index(name)).sum())
        if rows != counts[name]:
            yield "conservation", f"{counts[name]} {name} in the summary, {rows} in the table"
    for name in ("rejected", "dropped", "timed_out", "failed"):
        if sum(summary["by_cause"].get(name, {}).values()) != counts[name]:
            yield "conservation", f"by_cause of {name} does not sum to {counts[name]}: {summary['by_cause']}"
    for breakdown in ("by_slo_class", "by_tenant", "by_model"):
        for name in COUNTED if summary[breakdown] else ():
            if (total := sum(part["requests"][name] for part in summary[breakdown].values())) > counts[name]:
                yield "conservation", f"{breakdown} has {total} {name} of {counts[name]}"
    came = table["arrival_ns"][records.has_come(table["status"])]
    if len(came) and came.max() > summary["clock_s"] * 1e9 + 1:
        yield "clock", "a request came after the clock stopped"


def of_measured(table: np.ndarray) -> np.ndarray:
    """Return the requests that count."""
    return table[table["measured"] != 0] if "measured" in table.dtype.names else table


def in_order(seen: Seen) -> Iterator[Fault]:
    """No step of a request comes before the one it follows from."""
    table = seen.result.requests
    way = [name for name in WAY if name in table.dtype.names]
    undisturbed = np.ones(len(table), bool)
    if "retries" in table.dtype.names:
        undisturbed = (table["retries"] == 0) & (table["migrations"] == 0)
    for row in np.flatnonzero(undisturbed):
        times = [int(table[name][row]) for name in way if table[name][row] >= 0]
        if times != sorted(times):
            steps = {name: int(table[name][row]) for name in way}
            yield "causality", f"request {row}, {records.STATUS_NAMES[table['status'][row]]}: {steps}"
            break
    done = table[table["status"] == records.COMPLETED]
    for early, late in (("arrival_ns", "first_token_ns"), ("first_token_ns", "completed_ns"),
                        ("arrival_ns", "completed_ns")):
        rows = (done[early] >= 0) & (done[late] >= 0) & (done[early] > done[late])
        if rows.any():
            yield "causality", f"{early} after {late} of a completed request: {done[np.argmax(rows)]}"
    legs = table_of(seen.result, "legs")
    if legs is not None:
        names = [name for name in ("sent_ns", "enqueued_ns", "scheduled_ns", "ended_ns") if name in legs.dtype.names]
        for leg in legs:
            times = [int(leg[name]) for name in names if leg[name] >= 0]
            if times != sorted(times):
                yield "causality:leg", f"{dict(zip(legs.dtype.names, leg.tolist(), strict=True))}"
                break


def within_limits(seen: Seen) -> Iterator[Fault]:
    """No time is after the horizon, and no output longer than its limits."""
    table, workload = seen.result.requests, seen.workload
    horizon_ns = seen.experiment.horizon_s * 1e9
    for name in ("arrival_ns", "scheduled_ns", "first_token_ns", "completed_ns"):
        come = table[name][table["status"] != records.PENDING]
        if len(come) and come.max() > horizon_ns + 0.5:
            yield "horizon", f"{name} {come.max()} is after horizon_s = {seen.experiment.horizon_s}"
    if seen.result.summary["clock_s"] > seen.experiment.horizon_s + 1e-9:
        yield "horizon", f"clock_s {seen.result.summary['clock_s']} is after horizon_s"
    longest = (table["output_tokens"] > np.maximum(workload.demands["max_tokens"], 0)) & (
        workload.demands["max_tokens"] > 0)
    if longest.any():
        row = int(np.argmax(longest))
        most = workload.demands["max_tokens"][row]
        yield "max_tokens", f"request {row} has {table['output_tokens'][row]} tokens of {most}"
    more = table["output_tokens"] > np.maximum(workload.outcomes["output_tokens"], 0)
    if more.any():
        row = int(np.argmax(more))
        yield "outcome", (f"request {row} has {table['output_tokens'][row]} tokens, its whole output "
                          f"{workload.outcomes['output_tokens'][row]}")
    lengths = [pool.engine.max_model_len for pool in seen.experiment.all_pools()]
    if None not in lengths:
        whole = table["prompt_tokens"].astype(np.int64) + table["output_tokens"]
        served = table["status"] == records.COMPLETED
        if served.any() and whole[served].max() > max(lengths):
            yield "max_model_len", f"{whole[served].max()} tokens of a request, max_model_len = {max(lengths)}"


def summed_up(seen: Seen) -> Iterator[Fault]:
    """The summary's latencies, totals and throughputs are those of the request table."""
    summary, table = seen.result.summary, of_measured(seen.result.requests)
    done = table[table["status"] == records.COMPLETED]
    answered, longer = done[done["output_tokens"] > 0], done[done["output_tokens"] > 1]
    for name, rows, early, late, per in (
            ("ttft_ms", answered, "arrival_ns", "first_token_ns", 1),
            ("e2el_ms", done, "arrival_ns", "completed_ns", 1),
            ("queue_ms", done, "enqueued_ns", "scheduled_ns", 1),
            ("tpot_ms", longer, "first_token_ns", "completed_ns", longer["output_tokens"] - 1)):
        if len(rows):
            yield from described(name, summary[name], (rows[late] - rows[early]) / 1e6 / per)
        elif summary[name]["mean"] is not None:
            yield "summary", f"{name} of no request is {summary[name]}"
    if "measured" not in table.dtype.names:
        yield from totals(summary, done)
    yield from not_finite("summary", summary)


def described(name: str, given: dict, values: np.ndarray) -> Iterator[Fault]:
    """Mean, extremes and percentiles are those of the values."""
    expected = {"mean": values.mean(), "std": values.std(), "min": values.min(), "max": values.max(),
                **{f"p{q}": np.percentile(values, q) for q in (50, 90, 95, 99)}}
    for key, number in expected.items():
        if given[key] is None or not np.isclose(given[key], number, rtol=1e-9, atol=1e-6):
            yield "summary", f"{name}.{key} is {given[key]}, by the table {number}"
            return


def totals(summary: dict, done: np.ndarray) -> Iterator[Fault]:
    """Tokens and rates are those of completed requests, in a run without a window."""
    sums = {"total_input_tokens": int(done["prompt_tokens"].sum(dtype=np.int64)),
            "total_output_tokens": int(done["output_tokens"].sum(dtype=np.int64))}
    last_s = int(done["completed_ns"].max(initial=0)) / 1e9
    for key, expected in (*sums.items(), ("duration_s", last_s)):
        if summary[key] != expected:
            yield "summary", f"{key} is {summary[key]}, by the table {expected}"
    rates = {"request_throughput": len(done), "output_throughput": sums["total_output_tokens"],
             "total_token_throughput": sum(sums.values())}
    for key, expected in rates.items():
        if last_s and not np.isclose(summary[key] * last_s, expected, rtol=1e-9):
            yield "summary", f"{key} is {summary[key]}, by the table {expected / last_s}"


def not_finite(path: str, value: Any) -> Iterator[Fault]:
    """No number of the summary is infinite or NaN, and no count negative."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from not_finite(f"{path}.{key}", inner)
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from not_finite(f"{path}[{place}]", inner)
    elif isinstance(value, float) and not np.isfinite(value):
        yield "not finite", f"{path} is {value}"
    elif isinstance(value, int | float) and value < 0 and not path.endswith(SIGNED) and "regret" not in path:
        yield "negative", f"{path} is {value}"


SIGNED = ("growth_per_s", "fitness", "seed", "score")


def replicas_add_up(seen: Seen) -> Iterator[Fault]:
    """Busy time, tokens and blocks of replicas are those of their iterations."""
    summary, rows = seen.result.summary, seen.result.replicas
    iterations = table_of(seen.result, "iterations")
    if (rows["busy_ns"] < 0).any():
        yield "busy", f"busy_ns {rows['busy_ns'].tolist()}"
    cache = summary["kv_cache"]
    if cache["mean_usage"] * cache["num_blocks"] > cache["peak_used_blocks"] + 1e-6:
        yield "mean above peak", f"all replicas: {cache}"
    for share in [rank for replica in summary["replicas"] for rank in replica.get("ranks", [replica])]:
        where = f"replica {share.get('replica')}, rank {share.get('rank', 0)}"
        if not 0 <= share.get("utilisation", 0) <= 1:
            yield "busy", f"{where}: utilisation {share['utilisation']}"
        cache = share["kv_cache"]
        if cache["peak_used_blocks"] > cache["num_blocks"]:
            yield "blocks", f"{where}: {cache}"
        usage = cache["mean_usage"] or 0.0
        if not 0 <= usage <= 1 or usage * cache["num_blocks"] > cache["peak_used_blocks"] + 1e-6:
            yield "mean above peak", f"{where}: {cache}"
        if share["prefix_cache"]["hit_tokens"] > share["prefix_cache"]["query_tokens"]:
            yield "prefix", f"{where}: {share['prefix_cache']}"
    if summary["iterations"] != int(rows["iterations"].sum()):
        yield "iterations", f"{summary['iterations']} iterations, replicas have {rows['iterations'].sum()}"
    if iterations is None:
        return
    yield from iterations_are_those(seen, iterations, rows)


def iterations_are_those(seen: Seen, iterations: np.ndarray, rows: np.ndarray) -> Iterator[Fault]:
    """Rows of iterations sum to what replicas have."""
    if len(iterations) and iterations["duration_ns"].min() < 0:
        yield "iterations", "an iteration with a negative duration"
    clock_ns = seen.result.summary["clock_s"] * 1e9
    first = iterations[iterations["stage"] == 0]
    for place, row in enumerate(rows):
        own = first[first["replica"] == row["replica"]]
        if "rank" in rows.dtype.names and (rows["replica"] == row["replica"]).sum() > 1:
            own = own[own["rank"] == row["rank"]]
        if len(own) != row["iterations"]:
            yield "iterations", f"replica {place} has {row['iterations']} iterations, the table {len(own)}"
        for name in ("prefill_tokens", "decode_tokens"):
            if int(own[name].sum(dtype=np.int64)) != row[name]:
                yield "tokens", f"replica {place} has {row[name]} {name}, its iterations {own[name].sum()}"
        if len(own) and own["used_blocks"].max() > row["peak_used_blocks"]:
            yield "blocks", (f"replica {place}: an iteration uses {own['used_blocks'].max()} blocks, peak "
                             f"{row['peak_used_blocks']}")
    if len(iterations) and iterations["begin_ns"].max() > clock_ns + 1 and np.isfinite(seen.experiment.horizon_s):
        yield "horizon", "an iteration begins after the clock stopped"


def tokens_come_in_order(seen: Seen) -> Iterator[Fault]:
    """Each token of an answer has a time, none before the token ahead of it.

    Under `blis` a request that was preempted starts over: its times are those of all attempts. So are those of a
    request that a client or a gateway sends again, where the last attempt counts.
    """
    table, times = seen.result.requests, table_of(seen.result, "token_times")
    if times is None:
        return
    offsets, times_ns = times
    restarts = table["retries"] > 0 if "retries" in table.dtype.names else np.zeros(len(table), bool)
    begun_ns = np.full(len(table), -1)
    for name, once in (("client_attempts", 1), ("fallbacks", 0)):
        if name in table.dtype.names:
            begun_ns = np.where(table[name] > once, table["enqueued_ns"], begun_ns)
    again = any(pool.engine.scheduler == "blis" for pool in seen.experiment.all_pools())
    for row, (begin, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        own, record = times_ns[begin:end], table[row]
        own = own[own > begun_ns[row]]
        if restarts[row] or record["status"] != records.COMPLETED:
            continue
        if (np.diff(own) < 0).any():
            yield "token times", f"request {row}: tokens out of order"
        if again and record["preemptions"] and len(own) >= record["output_tokens"]:
            continue
        if len(own) != record["output_tokens"]:
            yield "token times", f"request {row} has {record['output_tokens']} tokens, {len(own)} times"
        elif len(own) and (own[0] != record["first_token_ns"] or own[-1] > record["completed_ns"]):
            yield "token times", (f"request {row}: first {own[0]}, last {own[-1]}, by the table "
                                  f"{record['first_token_ns']}, {record['completed_ns']}")


def blocks_are_free(seen: Seen) -> Iterator[Fault]:
    """Where nothing runs or waits in the end, each block is free.

    Not where KV is handed over: a run is over with its last request, and its sender hears later that it has arrived.
    """
    counts = np.bincount(seen.workload.requests["status"], minlength=9)
    idle = seen.experiment.kv_transfer is None and not counts[records.WAITING] and not counts[records.RUNNING]
    idle = idle and seen.result.summary["complete"]
    if not idle or np.isfinite(seen.experiment.horizon_s):
        return
    for number, replica in enumerate(seen.cluster.replicas):
        replica.check()
        scheduler = replica.scheduler
        if getattr(scheduler.tier, "num_locked", 0):
            continue
        if scheduler.kv.free_blocks != scheduler.kv.num_blocks:
            yield "leak", f"replica {number}: {scheduler.kv.free_blocks} of {scheduler.kv.num_blocks} blocks are free"


def nothing_waits_without_a_reason(seen: Seen) -> Iterator[Fault]:
    """A request that waits for ever, or runs without tokens, has a reason."""
    for pool in seen.experiment.all_pools():        # drafts are verified whole, for any budget
        parameters = pool.engine.parameters
        if not getattr(parameters, "enable_chunked_prefill", False) or parameters.speculative is not None:
            return
    for line in seen.result.summary["diagnosis"]:
        if "in one iteration than the budget allows" in line or "gives them no tokens while" in line:
            yield "waits for ever", line


CHECKS = (conserved, in_order, within_limits, summed_up, replicas_add_up, tokens_come_in_order, blocks_are_free,
          nothing_waits_without_a_reason)
