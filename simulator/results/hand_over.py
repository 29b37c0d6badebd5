"""Requests with disaggregated prefill: columns of /requests, their part of the summary, arrows of the Chrome trace."""
import json
from collections.abc import Iterable

import numpy as np

from simulator.domain.run import Run
from simulator.results.distributions import distribution
from simulator.results.trace_window import TraceWindow

# Columns of /requests with disaggregated prefill, and their names in `records.TRANSFER`.
COLUMNS = {"prefill_done_ns": "prefill_done_ns", "transfer_start_ns": "start_ns", "transfer_end_ns": "end_ns",
           "transfer_bytes": "num_bytes"}

_ARROW = ('{"ph":"X","cat":"kv_transfer","name":%s,"pid":%d,"tid":0,"ts":%d.%03d,"dur":0.000,"args":{"to":%d,'
          '"bytes":%d}},\n'
          '{"ph":"s","cat":"kv_transfer","name":"kv_transfer","id":%d,"pid":%d,"tid":0,"ts":%d.%03d},\n'
          '{"ph":"X","cat":"kv_transfer","name":%s,"pid":%d,"tid":0,"ts":%d.%03d,"dur":0.000,"args":{"from":%d}},\n'
          '{"ph":"f","bp":"e","cat":"kv_transfer","name":"kv_transfer","id":%d,"pid":%d,"tid":0,"ts":%d.%03d}')


def columns_of(run: Run) -> dict[str, np.ndarray]:
    """Return the columns of `COLUMNS`, and prefill_replica.

    Empty without disaggregated prefill.
    """
    if run.transfers is None:
        return {}
    return {"prefill_replica": run.transfers["prefill_replica"]} | {
        name: run.transfers[field] for name, field in COLUMNS.items()}


def metrics_of(run: Run) -> dict:
    """Return the part of the summary about transfers; empty where there can be none.

    count and bytes are of completed transfers, for any outcome of the request. `wait_ms` is from the
    end of a prefill to the first byte, 0 where parts of it move before, `duration_ms` from the first byte to the last;
    `local` counts requests that one replica did whole, be it in two parts. Transfers that did not complete:
    `failed`, as the lease had run out or the prefill replica was lost; `cancelled`, as the decode replica was.
    `expired` counts leases. `mean_depth_at_start` is the mean over transfers of the number in progress when one has
    begun, as BLIS's mean transfer queue depth; parts that follow the first of the same prompt do not count again.
    """
    if run.transfers is None:
        return {}
    moved = run.transfers[run.transfers["end_ns"] >= 0]
    return {"kv_transfer": {
        **run.transfer_counts,
        "wait_ms": distribution(np.maximum(moved["start_ns"] - moved["prefill_done_ns"], 0) / 1e6),
        "duration_ms": distribution((moved["end_ns"] - moved["start_ns"]) / 1e6)}}


def transfer_events(run: Run, window: TraceWindow) -> Iterable[str]:
    """Yield the slices and arrow of each transfer that ended.

    The slices are of no length, on its two replicas.
    """
    if run.transfers is None:
        return
    for row in np.flatnonzero(run.transfers["end_ns"] >= 0).tolist():
        one = run.transfers[row]
        began_ns, ended_ns, source = int(one["start_ns"]), int(one["end_ns"]), int(one["prefill_replica"])
        if window.has(began_ns):
            name = json.dumps(f"request {run.workload.request_ids[row]}")
            began, ended = divmod(began_ns, 1000), divmod(ended_ns, 1000)
            target = int(one["decode_replica"])
            yield _ARROW % (name, source, *began, target, one["num_bytes"], row, source, *began,
                            name, target, *ended, source, row, target, *ended)


def sentence(moved: dict) -> str:
    """Return how much KV moved from prefill to decode replicas, and how long it took."""
    mean = moved["duration_ms"]["mean"]
    took = "" if mean is None else f", {mean:,.2f} ms each on average"
    lost = "".join(f", {moved[name]:,} {name}" for name in ("failed", "cancelled") if moved.get(name))
    return f"{moved['count']:,} of {moved['bytes'] / 1e9:,.3f} GB in all{took}{lost}"
