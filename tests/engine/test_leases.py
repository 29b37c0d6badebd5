"""How long the blocks of a prompt wait to be read, and what becomes of a request whose KV is not there any more.

Numbers by hand, in ms. The prefill of 1024 tokens ends at 25.49; its KV moves for 3.755443, see
test_hand_over_in_experiments.
"""
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import simulator
from engine.test_hand_over_in_experiments import APART, ONE, ms
from simulator.domain import records
from simulator.engine.hand_over.leases import Leases
from simulator.results import summary_table

DROPPED, COMPLETED = records.DROPPED, records.COMPLETED
KV_LOAD_FAILED = records.CAUSE_NAMES.index("kv_load_failed")
S = 10**9


@pytest.fixture
def run(tmp_path):
    """Run an experiment with a trace; return its Result."""
    def run_it(trace=ONE, **overrides):
        (tmp_path / "t.csv").write_text(trace)
        (tmp_path / "a.toml").write_text(APART)
        return simulator.run(tmp_path / "a.toml", overrides={
            key.replace("__", "."): value for key, value in overrides.items()})

    return run_it


def told(result):
    return {name: result.summary["kv_transfer"][name] for name in ("count", "failed", "cancelled", "expired")}


# r0 runs on the decode replica, which has room for it alone, for 800 iterations of 50.01 ms and something for context:
# 40 s and more. r1 waits there.
FULL = {"trace": ONE.replace(",3", ",800") + "0.001,1024,3\n", "latency__base_us": 50_000.0,
        "engine__max_model_len": 1900, "pools": [
    {"name": "p", "role": "prefill"}, {"name": "d", "role": "decode", "engine": {"num_gpu_blocks": 120}}]}


def test_a_request_queued_at_its_decode_replica_keeps_its_lease(run):
    # T6: a heartbeat each 5 s, from each on 20 s.
    result = run(**FULL)

    assert result.requests["transfer_start_ns"][1] == result.requests["completed_ns"][0] > 40 * S
    assert told(result) == {"count": 2, "failed": 0, "cancelled": 0, "expired": 0}
    assert result.requests["status"].tolist() == [COMPLETED] * 2


def test_without_heartbeats_a_lease_runs_out_there(run):
    result = run(kv_transfer__heartbeats=False, **FULL)

    assert told(result) == {"count": 1, "failed": 1, "cancelled": 0, "expired": 1}
    assert result.requests[["status", "cause"]][1].tolist() == (DROPPED, KV_LOAD_FAILED)
    assert result.requests["transfer_end_ns"][1] == -1


def test_a_lease_runs_out_on_the_way_to_the_decode_replica(run):
    # T6: nobody renews it for 40 s. The read fails as soon as it begins.
    result = run(kv_transfer__answer_hop_us=40e6)

    assert told(result) == {"count": 0, "failed": 1, "cancelled": 0, "expired": 1}
    assert result.requests[["status", "cause"]][0].tolist() == (DROPPED, KV_LOAD_FAILED)
    assert ms([result.requests["transfer_start_ns"][0]]) == [40_025.49]
    assert result.summary["by_cause"] == {"dropped": {"kv_load_failed": 1}}


def test_a_prompt_that_cannot_be_read_is_computed_by_the_decode_replica(run):
    result = run(kv_transfer__answer_hop_us=40e6, kv_transfer__failure_policy="recompute")

    assert ms(result.token_times[1]) == [40_050.98, 40_056.04125, 40_061.10255]
    assert told(result) == {"count": 0, "failed": 1, "cancelled": 0, "expired": 1}
    assert result.legs["external_tokens"].tolist() == [0, 0]


def test_a_prompt_found_in_part_is_computed_from_there(run):
    # r1 finds 512 of its 1024 tokens at the decode replica, and computes 512: 5 + 0.01 + 10.24.
    trace = ("arrived_at,num_prefill_tokens,num_decode_tokens,prompt\n0,1024,3,s:512/a:512\n90,1024,3,s:512/b:512\n")
    result = run(trace, kv_transfer__answer_hop_us=40e6, kv_transfer__failure_policy="recompute")

    first = result.requests["first_token_ns"] - result.requests["transfer_start_ns"]
    assert ms(first) == [25.49, 15.25]
    assert result.legs["cached_tokens"].tolist() == [0, 0, 512, 512]


@pytest.mark.parametrize("first_token", ["recompute", "prefill"])
@pytest.mark.parametrize(("prompt", "blocks"), [(1023, 67), (1024, 67), (1025, 67)])
def test_the_block_of_a_token_that_does_not_come_is_used(run, first_token, prompt, blocks):
    # r1 finds 512 tokens; with the block for the token that was to come it has 65 of 1024 + 1. The last of 40 tokens is
    # not computed: prompt + 39, 1062 to 1064 tokens in 67 blocks, and there are no more.
    own = prompt - 512
    trace = (f"arrived_at,num_prefill_tokens,num_decode_tokens,prompt\n0,{prompt},40,s:512/a:{own}\n"
             f"90,{prompt},40,s:512/b:{own}\n")
    result = run(trace, kv_transfer__answer_hop_us=40e6, kv_transfer__failure_policy="recompute",
                 kv_transfer__first_token=first_token, engine__max_model_len=1072, pools=[
                     {"name": "p", "role": "prefill"},
                     {"name": "d", "role": "decode", "engine": {"num_gpu_blocks": blocks + 1}}])

    assert result.requests["status"].tolist() == [COMPLETED] * 2
    assert result.replicas["peak_used_blocks"].tolist()[1] == blocks
    assert result.legs["cached_tokens"].tolist() == [0, 0, 512, 512]


@pytest.mark.parametrize(("policy", "first_token"), [("recompute", 54.735443), ("fail", -1e-6)])
def test_a_read_that_runs_when_the_lease_runs_out_fails_when_it_ends(run, policy, first_token):
    # The lease of 3 ms runs out at 28.49, the read ends at 29.245443; then 25.49 to compute the prompt.
    result = run(kv_transfer__heartbeats=False, kv_transfer__lease_s=0.003, kv_transfer__failure_policy=policy)

    assert ms([result.requests["first_token_ns"][0]]) == [first_token]
    assert told(result) == {"count": 0, "failed": 1, "cancelled": 0, "expired": 1}


def test_blocks_are_free_when_the_lease_runs_out(run):
    # 65 usable blocks: the second prompt waits for those of the first, which nobody reads for 30 s.
    result = run(ONE + "0.001,1024,3\n", kv_transfer__answer_hop_us=40e6, engine__max_model_len=1040, pools=[
        {"name": "p", "role": "prefill", "engine": {"num_gpu_blocks": 66}}, {"name": "d", "role": "decode"}])

    assert ms(result.requests["scheduled_ns"]) == [0, 30_025.49]


def test_a_client_that_gives_up_frees_the_blocks(run):
    # r0 gives up at 10 s on its way to the decode replica. r1 has waited for its blocks.
    trace = "arrived_at,num_prefill_tokens,num_decode_tokens,deadline_s\n0,1024,3,10\n0.001,1024,3,\n"
    result = run(trace, kv_transfer__answer_hop_us=40e6, engine__max_model_len=1040, pools=[
        {"name": "p", "role": "prefill", "engine": {"num_gpu_blocks": 66}}, {"name": "d", "role": "decode"}])

    assert ms(result.requests["scheduled_ns"]) == [0, 10_000]
    assert result.summary["kv_transfer"]["expired"] == 1                 # that of r1


# ---- the book of leases


def test_a_lease_that_is_not_renewed_runs_out():
    leases = Leases(2, 30 * S, 5 * S, 20 * S)
    lease = leases.start(7, 1, 3, 2 * S)

    assert (leases.holds(0), leases.holds(1), leases.next_end_ns()) == (0, 1, 32 * S)
    assert leases.expired(32 * S - 1) == []
    assert leases.expired(32 * S) == [lease]
    assert leases.holds(1) == 0


@pytest.mark.parametrize(("since_s", "until_s", "ends_s"), [
    (1, 2, 30), (1, 40, 56), (1, 41, 61), (4, 8, 30), (4, 14, 34), (29, 100, 119)])
def test_a_lease_runs_for_two_thirds_of_it_from_the_last_heartbeat_on(since_s, until_s, ends_s):
    # Heartbeats at since_s, since_s + 5, ...: of (1, 40) the last at 36.
    leases = Leases(1, 30 * S, 5 * S, 20 * S)
    lease = leases.start(0, 0, 0, 0)
    leases.tell(lease, True, since_s * S)
    assert leases.expired(1000 * S) == []
    leases.tell(lease, False, until_s * S)

    assert leases.next_end_ns() == ends_s * S


def test_a_lease_must_outlast_the_time_between_heartbeats():
    with pytest.raises(ValueError, match="would run out between two heartbeats, 5 ns and 6 ns"):
        Leases(1, 30, 6, 5)


@given(st.integers(0, 10**6))
def test_leases_agree_with_heartbeats_told_one_by_one(seed):
    # The twin has each heartbeat as an event: until = max(until, now + extension).
    rng = Random(seed)
    lease_ns, beat_ns = rng.randint(1, 60), rng.randint(1, 9)
    extension_ns = beat_ns + rng.randint(1, 20)
    leases, twin, numbers, now = Leases(3, lease_ns, beat_ns, extension_ns), {}, {}, 0
    for step in range(rng.randint(1, 40)):
        now += rng.randint(0, 15)
        ended = []
        for row in [*twin]:
            until, since = twin[row]
            while since is not None and since <= now:
                until, since = max(until, since + extension_ns), since + beat_ns
            twin[row] = until, since
            if since is None and until <= now:
                del twin[row]
                ended.append(numbers.pop(row))
        expired = leases.expired(now)
        assert sorted(expired) == sorted(ended)
        for lease in expired:
            leases.stop(lease)
        kind = rng.choice(["begin", "renew", "silence", "end"])
        if kind == "begin":
            twin[step], numbers[step] = (now + lease_ns, None), leases.start(step, rng.randrange(3), step, now)
        elif twin:
            row = rng.choice([*twin])
            until, since = twin[row]
            if kind == "renew" and since is None:
                twin[row] = max(until, now + extension_ns), now + beat_ns
                leases.tell(numbers[row], True, now)
            elif kind == "silence":
                twin[row] = until, None
                leases.tell(numbers[row], False, now)
            elif kind == "end":
                del twin[row]
                leases.stop(numbers.pop(row))
        leases.check()
        assert len(leases.on()) == len(twin)


def test_the_summary_table_tells_of_transfers_that_failed(run):
    lines = summary_table(run(kv_transfer__answer_hop_us=40e6).summary).splitlines()

    assert "KV transfers 0 of 0.000 GB in all, 1 failed" in lines
