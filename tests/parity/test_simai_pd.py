"""Runs of vidur-alibabacloud with prompts apart, by its `split_wise` and under protocol "simai"; see README.md.

With `upstream_compat` every batch and every figure of every request is compared. Without, a decode replica waits for
the KV of a request; compared is then what comes before that, and the end of those requests whose decode replica had not
yet taken in another before its KV.
"""
from collections import Counter

import pytest

from support import simai_pd

CASES = simai_pd.cases()
APART = [case for case in CASES if case.is_apart]
NS = 1e-9                   # each batch and each transfer is rounded to whole ones

# What a row of request_metrics.csv says that another column or the command says as well, or that is the same for all.
TOLD = {"Request Id", "arrived_at", "prefill_arrived_at", "request_inter_arrival_delay", "request_num_tokens",
        "request_num_prefill_tokens", "request_num_decode_tokens", "request_pd_ratio", "pd_p2p_comm_bandwidth",
        "pd_p2p_bytes_per_token", "pd_p2p_comm_dtype"}


def census():
    """Return how many runs with prompts apart were recorded, and why some are left out."""
    return len(APART), Counter(reason for case in APART if (reason := case.obstacle()))


def replay(case, folder, upstream_compat):
    """Return the Result of a case, and by how much its times may depart: they are rounded batch by batch."""
    if obstacle := case.obstacle():
        pytest.skip(obstacle)
    result = simai_pd.run(case, folder, upstream_compat)
    return result, NS * (len(result.iterations) + len(result.requests))


@pytest.mark.skipif(not CASES, reason=f"no recorded runs under {simai_pd.FOLDER}")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_batch_is_the_one_recorded(case, tmp_path):
    result, slack_s = replay(case, tmp_path, upstream_compat=True)
    ours = sorted((replica, begin_ns, end_ns, *what) for (replica, end_ns), (begin_ns, *what) in
                  simai_pd.batches_of(result).items())
    recorded = sorted((event["pid"], event["ts"] / 1e6, event["dur"] / 1e6, event["args"]) for event in case.events)

    for (replica, begin_ns, end_ns, rows, prompt, decoded, size), (place, begin_s, takes_s, batch) in zip(
            ours, recorded, strict=True):
        assert (replica, sorted(rows), size) == (place, sorted(batch["request_ids"]), batch["batch_size"])
        assert (prompt, decoded) == ((sum(batch["num_tokens"]), 0) if place < case.num_prefill else
                                     (0, sum(batch["num_tokens"])))
        assert begin_ns / 1e9 == pytest.approx(begin_s, abs=slack_s)
        assert (end_ns - begin_ns) / 1e9 == pytest.approx(takes_s, abs=2 * NS)


def figures(row, batches):
    """Return what upstream writes of a request, from ours; `batches` : (begin, end) in ns of those that it was in."""
    executed = sum(end - begin for begin, end in batches)
    stood = sum(begin - end for (begin, _), (_, end) in zip(batches[1:], batches, strict=False))
    arrived, scheduled, prefilled, came, done = (int(row[name]) for name in (
        "arrival_ns", "scheduled_ns", "prefill_done_ns", "transfer_end_ns", "completed_ns"))
    prompt, outputs = int(row["prompt_tokens"]), int(row["output_tokens"])
    times_ns = {
        "request_e2e_time": done - arrived, "request_execution_time": executed,
        "request_model_execution_time": executed, "request_preemption_time": stood, "preempted_time": stood,
        "request_execution_plus_preemption_time": executed + stood, "request_scheduling_delay": scheduled - arrived,
        "prefill_e2e_time": prefilled - arrived, "prefill_time_execution_plus_preemption": prefilled - scheduled,
        "scheduled_at": scheduled, "prefill_completed_at": prefilled, "decode_arrived_at": came, "completed_at": done,
        "decode_time": done - prefilled, "pd_p2p_comm_time": came - int(row["transfer_start_ns"])}
    times_ns |= {f"{name}_normalized": times_ns[name] / outputs for name in (
        "request_e2e_time", "request_execution_time", "request_model_execution_time",
        "request_execution_plus_preemption_time")}
    return {name: time_ns / 1e9 for name, time_ns in times_ns.items()} | {
        "prefill_time_execution_plus_preemption_normalized": (prefilled - scheduled) / 1e9 / prompt,
        "decode_time_execution_plus_preemption_normalized": (done - prefilled) / 1e9 / outputs,
        "prefill_replica_id": row["prefill_replica"], "decode_replica_id": row["replica"],
        "pd_p2p_comm_size": row["transfer_bytes"], "request_num_restarts": row["preemptions"]}


@pytest.mark.skipif(not CASES, reason=f"no recorded runs under {simai_pd.FOLDER}")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_figure_of_a_request_is_the_one_recorded(case, tmp_path):
    result, slack_s = replay(case, tmp_path, upstream_compat=True)
    batches_of = [[] for _ in result.requests]
    for (_, end_ns), (begin_ns, rows, *_) in sorted(simai_pd.batches_of(result).items(), key=lambda each: each[1][0]):
        for row in rows:
            batches_of[row].append((begin_ns, end_ns))

    for recorded, row, batches in zip(case.requests, result.requests, batches_of, strict=True):
        ours = figures(row, batches)
        assert ours.keys() == recorded.keys() - TOLD
        for name, value in ours.items():
            assert value == pytest.approx(recorded[name], abs=slack_s, rel=0), name


@pytest.mark.skipif(not CASES, reason=f"no recorded runs under {simai_pd.FOLDER}")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_prompts_are_handed_over_as_recorded(case, tmp_path):
    result, slack_s = replay(case, tmp_path, upstream_compat=False)

    for recorded, ours in zip(case.requests, result.requests, strict=True):
        assert (ours["prefill_replica"], ours["replica"]) == (
            recorded["prefill_replica_id"], recorded["decode_replica_id"])
        assert ours["transfer_bytes"] == recorded["pd_p2p_comm_size"]
        for name, key in (("scheduled_ns", "scheduled_at"), ("prefill_done_ns", "prefill_completed_at"),
                          ("first_token_ns", "prefill_completed_at"), ("transfer_end_ns", "decode_arrived_at")):
            assert ours[name] / 1e9 == pytest.approx(recorded[key], abs=slack_s)
        moved_ns = ours["transfer_end_ns"] - ours["transfer_start_ns"]
        assert moved_ns / 1e9 == pytest.approx(recorded["pd_p2p_comm_time"], abs=NS)
        if case.is_undisturbed(recorded):
            assert ours["completed_ns"] / 1e9 == pytest.approx(recorded["completed_at"], abs=slack_s)


def test_some_requests_are_compared_to_their_end():
    ends = [case.is_undisturbed(row) for case in APART if not case.obstacle() for row in case.requests]
    if not ends:
        pytest.skip("no case to compare")
    assert any(ends)


def num_early(batches):
    """Return how many requests were in a batch of their decode replica before their KV had come, and of how many."""
    first = {}
    for replica, begin_s, rows, came_s in batches:
        for row in rows:
            first[replica, row] = min(first.get((replica, row), begin_s - came_s[row]), begin_s - came_s[row])
    return sum(ahead_s < -simai_pd.EARLY_S for ahead_s in first.values()), len(first)


@pytest.mark.parametrize("case", [case for case in APART if case.first_early_s], ids=str)
def test_requests_run_before_their_kv_comes_with_upstream_compat_alone(case, tmp_path):
    found = {}
    for upstream_compat in (True, False):
        result, _ = replay(case, tmp_path, upstream_compat)
        came_s = result.requests["transfer_end_ns"] / 1e9
        found[upstream_compat] = num_early(
            (replica, begin_ns / 1e9, rows, came_s) for (replica, _), (begin_ns, rows, *_)
            in simai_pd.batches_of(result).items() if replica >= case.num_prefill)
    came_s = [row["decode_arrived_at"] for row in case.requests]

    assert found[True] == num_early((event["pid"], event["ts"] / 1e6, event["args"]["request_ids"], came_s)
                                    for event in case.events if event["pid"] >= case.num_prefill)
    assert found[False] == (0, len(case.requests)) and found[True][0] > 0


@pytest.mark.parametrize("case", [case for case in APART if not case.obstacle()], ids=str)
def test_blocks_are_held_as_recorded_at_the_peak(case, tmp_path):
    # Of the blocks of a replica only a share was recorded, and the numbers of the files are one ahead.
    result, _ = replay(case, tmp_path, upstream_compat=True)
    recorded = case.peak_shares
    ours = result.replicas["peak_used_blocks"]

    assert sum(recorded) > 0
    assert (ours / ours.sum()).tolist() == pytest.approx([share / sum(recorded) for share in recorded])
