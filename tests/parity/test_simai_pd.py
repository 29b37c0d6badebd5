"""Runs of vidur-alibabacloud with prompts computed apart, under protocol "simai"; see README.md.

Compared is where and when each prompt was computed, how much KV moved for how long, and when it came, of every request;
when the last token came, of those whose decode replica had not yet taken in a request before its KV.
"""
from collections import Counter

import pytest

from support import simai_pd

CASES = simai_pd.cases()
APART = [case for case in CASES if case.is_apart]
NS = 1e-9                   # each batch and each transfer is rounded to whole ones


def census():
    """Return how many runs with prompts apart were recorded, and why some are left out."""
    return len(APART), Counter(reason for case in APART if (reason := case.obstacle()))


@pytest.mark.skipif(not CASES, reason=f"no recorded runs under {simai_pd.FOLDER}")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_prompts_are_handed_over_as_recorded(case, tmp_path):
    if obstacle := case.obstacle():
        pytest.skip(obstacle)
    result = simai_pd.run(case, tmp_path)
    requests = result.requests

    for recorded, ours in zip(case.requests, requests, strict=True):
        assert (ours["prefill_replica"], ours["replica"]) == (
            recorded["prefill_replica_id"], recorded["decode_replica_id"])
        assert ours["transfer_bytes"] == recorded["pd_p2p_comm_size"]
        batches = 2 * len(requests)
        for name, key in (("scheduled_ns", "scheduled_at"), ("prefill_done_ns", "prefill_completed_at"),
                          ("first_token_ns", "prefill_completed_at"), ("transfer_end_ns", "decode_arrived_at")):
            assert ours[name] / 1e9 == pytest.approx(recorded[key], abs=batches * NS)
        moved_ns = ours["transfer_end_ns"] - ours["transfer_start_ns"]
        assert moved_ns / 1e9 == pytest.approx(recorded["pd_p2p_comm_time"], abs=NS)
        if case.is_undisturbed(recorded):
            assert ours["completed_ns"] / 1e9 == pytest.approx(
                recorded["completed_at"], abs=len(result.iterations) * NS)


def test_some_requests_are_compared_to_their_end():
    ends = [case.is_undisturbed(row) for case in APART if not case.obstacle() for row in case.requests]
    if not ends:
        pytest.skip("no case to compare")
    assert any(ends)
