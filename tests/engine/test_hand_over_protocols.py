"""The protocols of hand-overs in experiment files, by worked examples; numbers in ms.

P computes a prompt of 1024 tokens in 25.49, [0, 25.49]; its KV of 134,217,728 B takes 3.355443 at 40 GB/s, behind the
base of 0.4. A token of it computed again takes 5.03, the first one behind it 5.06125, the next 5.0613.
"""
import pytest

import simulator
from simulator.domain import records

APART = """
engine = {max_model_len = 4096, num_gpu_blocks = 1000, async_scheduling = false}
workload = {type = "trace", path = "t.csv"}
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
output = {token_times = true}
kv_transfer = {bandwidth_gb_per_s = 40}
pools = [{name = "p", role = "prefill"}, {name = "d", role = "decode"}]
[latency]
backend = "linear"
base_us = 5000.0
per_sequence_us = 10.0
per_prefill_token_us = 20.0
per_context_token_us = 0.05
"""
HEAD = "arrived_at,num_prefill_tokens,num_decode_tokens\n"
ONE = HEAD + "0,1024,3\n"
PULLED = [34.275443, 39.336693, 44.397993]
SEEDED = [29.245443, 34.306693, 39.367993]


@pytest.fixture
def run(tmp_path):
    """Run an experiment with a trace; return its Result."""
    def run_it(text=APART, trace=ONE, overrides=None):
        (tmp_path / "t.csv").write_text(trace)
        (tmp_path / "a.toml").write_text(text)
        return simulator.run(tmp_path / "a.toml", overrides=overrides or {})

    return run_it


def ms(times):
    return [time / 1e6 for time in times]


def with_protocol(name, **keys):
    return {"kv_transfer.protocol": name} | {f"kv_transfer.{key}": value for key, value in keys.items()}


def pools(prefill=None, decode=None):
    """Return pools that differ in keys of [engine]."""
    return {"pools": [{"name": "p", "role": "prefill", "engine": prefill or {}},
                      {"name": "d", "role": "decode", "engine": decode or {}}]}


@pytest.mark.parametrize(("protocol", "keys", "tokens"), [
    ("nixl", {}, PULLED), ("nixl_push", {}, PULLED), ("mooncake", {}, PULLED),                              # T1
    ("sglang", {}, SEEDED), ("nixl", {"first_token": "prefill"}, SEEDED),                                   # T2
    ("nixl_push", {"first_token": "prefill"}, SEEDED), ("mooncake", {"first_token": "prefill"}, SEEDED),
    # The token itself moves, too: 1025 x 131,072 B, no base; P's client has it already.
    ("simai", {}, [25.49, 33.90997, 38.97127])])
def test_when_tokens_come(run, protocol, keys, tokens):
    assert ms(run(overrides=with_protocol(protocol, **keys)).token_times[1]) == tokens


@pytest.mark.parametrize(("granularity", "end"), [("prompt", 34.255443), ("chunk", 32.577722), (None, 32.577722)])
def test_chunks_move_as_they_are_computed(run, granularity, end):
    # T3. Chunks of 512 tokens end at 15.25 and 30.5; the KV of one takes 0.4 + 1.677722.
    given = {} if granularity is None else {"granularity": granularity}
    result = run(overrides=with_protocol("sglang", **given) | {
        "engine.max_num_batched_tokens": 512, "engine.max_num_seqs": 8})
    request = result.requests[0]

    assert ms(request[["prefill_done_ns", "transfer_end_ns", "first_token_ns"]]) == [30.5, end, end]
    assert request["transfer_start_ns"] == (30_500_000 if granularity == "prompt" else 15_250_000)
    assert request["transfer_bytes"] == 134_217_728
    assert result.summary["kv_transfer"]["count"] == 1
    assert result.summary["kv_transfer"]["wait_ms"]["max"] == 0


@pytest.mark.parametrize("protocol", ["sglang", "mooncake"])
@pytest.mark.parametrize(("rate", "end"), [
    # All but the last of 32 layers has come when that is computed: 25.49 + 3.355443 / 32.
    (40.0, 25.594858),
    # The link is the slower: 0.4 + 33.554432, and the last layer's 1.048576 behind it.
    (4.0, 35.003008)])
def test_layers_move_as_they_are_computed(run, protocol, rate, end):
    result = run(overrides=with_protocol(protocol, granularity="layer", bandwidth_gb_per_s=rate))

    assert ms(result.requests[["transfer_start_ns", "transfer_end_ns"]][0]) == [0.0, end]
    assert result.requests["transfer_bytes"][0] == 134_217_728


def test_what_a_decode_replica_has_is_not_sent_in_chunks_either(run):
    # r1 shares 512 tokens, which P finds, too: it computes one chunk of 512 more.
    trace = "arrived_at,num_prefill_tokens,num_decode_tokens,prompt\n0,1024,3,s:512/a:512\n1,1024,3,s:512/b:512\n"
    for granularity in ("prompt", "chunk", "layer"):
        result = run(trace=trace, overrides=with_protocol("sglang", granularity=granularity))

        assert result.requests["transfer_bytes"].tolist() == [134_217_728, 67_108_864]


def test_a_prefill_replica_that_writes_must_hear_where_to(run):
    # 2 ms until P knows of D's room, 2 ms until D knows of the end; with nixl P alone hears of that later.
    pushed = run(overrides=with_protocol("nixl_push", notice_us=2000.0))
    pulled = run(overrides=with_protocol("nixl", notice_us=2000.0))

    assert ms(pushed.requests[["transfer_start_ns", "first_token_ns"]][0]) == [27.49, 38.275443]
    assert ms(pulled.requests[["transfer_start_ns", "first_token_ns"]][0]) == [25.49, 34.275443]


@pytest.mark.parametrize(("protocol", "keys", "end"), [
    ("nixl", {"first_token": "prefill"}, 29.245443), ("sglang", {}, 29.245443), ("simai", {}, 25.49)])
def test_a_request_of_one_token_needs_no_iteration_of_the_decode_replica(run, protocol, keys, end):
    result = run(trace=HEAD + "0,1024,1\n",
                 overrides=with_protocol(protocol, **keys))

    assert ms(result.requests[["first_token_ns", "completed_ns"]][0]) == [end, end]
    assert result.iterations["replica"].tolist() == [0]


@pytest.mark.parametrize(("protocol", "waits"), [("nixl", False), ("mooncake", False), ("sglang", True)])
def test_no_prompt_is_computed_for_which_there_is_no_room(run, protocol, waits):
    # D has blocks for one request, which runs 200 tokens.
    keys = {"num_reserved_decode_tokens": 0} if protocol == "sglang" else {}
    result = run(trace=HEAD + "0,1024,200\n0.001,1024,200\n",
                 overrides=with_protocol(protocol, **keys) | pools(decode={"num_gpu_blocks": 81}) | {
                     "engine.max_model_len": 1280})

    assert (result.requests["scheduled_ns"][1] > 1e9) == waits
    assert result.requests["first_token_ns"][1] > 1e9


@pytest.mark.parametrize(("reserved", "at_once"), [(512, 10), (0, 12), (None, 10)])
def test_tokens_are_reserved_for_decoding(run, reserved, at_once):
    # 999 blocks hold 15,984 tokens. The request behind k others needs 1024 + 512 of 15,984 - 1024 k - 512 k.
    keys = {} if reserved is None else {"num_reserved_decode_tokens": reserved}
    result = run(trace=HEAD + "0,1024,3\n" * 12,
                 overrides=with_protocol("sglang", **keys))

    assert (result.requests["enqueued_ns"] == 0).sum() == at_once


@pytest.mark.parametrize("protocol", ["nixl", "nixl_push", "mooncake", "sglang", "simai"])
@pytest.mark.parametrize("patience_s", [0.002, 0.027, 0.031, 0.036])
def test_who_gives_up_leaves_nothing_behind(run, protocol, patience_s):
    # While its prompt is computed, while it moves, when it has come; another one comes later.
    trace = ("arrived_at,num_prefill_tokens,num_decode_tokens,deadline_s\n"
             f"0,1024,300,{patience_s}\n0.5,1024,3,\n")
    result = run(trace=trace, overrides=with_protocol(protocol))

    assert result.requests["status"].tolist() == [records.TIMED_OUT, records.COMPLETED]
    assert ms(result.requests["first_token_ns"][1:] - result.requests["arrival_ns"][1:]) == [
        {"sglang": 29.245443, "simai": 25.49}.get(protocol, 34.275443)]


BLIS = {"engine.scheduler": "blis", "kv_transfer.protocol": "blis"}


def blis(text=APART):
    return text.replace(", async_scheduling = false", "")


def test_blis_takes_room_when_the_prompt_is_computed(run):
    # 0.05 + 3.355443 in whole microseconds: 3.406. The token comes with the KV, at 28.896.
    result = run(blis(), overrides=BLIS)

    assert ms(result.requests["transfer_end_ns"]) == [28.896]
    assert ms(result.token_times[1]) == [28.896, 33.95725, 39.01855]


def test_blis_shows_the_first_token_with_the_second(run):
    # The prompt is done when its iteration begins; the KV comes at 3.406, an iteration ends at 8.46725.
    result = run(blis(), overrides=BLIS | {"engine.upstream_compat": True})

    assert ms(result.token_times[1]) == [8.46725, 8.46725, 13.52855]
    assert ms(result.requests["first_token_ns"]) == [8.46725]


def test_blis_drops_a_request_for_which_there_is_no_room(run):
    small = {"pools": [{"name": "p", "role": "prefill"},
                       {"name": "d", "role": "decode", "engine": {"num_gpu_blocks": 101}}]}
    result = run(blis(), trace=HEAD + "0,1024,300\n0.001,1024,3\n", overrides=BLIS | small)

    assert result.requests["status"].tolist() == [records.COMPLETED, records.DROPPED]
    assert result.summary["kv_transfer"]["count"] == 1


@pytest.mark.parametrize("is_upstream", [False, True])
@pytest.mark.parametrize("patience_s", [0.002, 0.027, 0.031, 0.036])
def test_who_gives_up_leaves_no_reserved_blocks_behind(run, is_upstream, patience_s):
    trace = f"arrived_at,num_prefill_tokens,num_decode_tokens,deadline_s\n0,1024,300,{patience_s}\n0.5,1024,3,\n"
    small = {"pools": [{"name": "p", "role": "prefill"},
                       {"name": "d", "role": "decode", "engine": {"num_gpu_blocks": 80}}]}
    result = run(blis(), trace=trace, overrides=BLIS | small | {"engine.upstream_compat": is_upstream})

    assert result.requests["status"].tolist() == [records.TIMED_OUT, records.COMPLETED]


def test_simai_moves_what_vidur_moves_without_contention(run):
    result = run(trace=ONE + "0,1024,3\n", overrides=with_protocol("simai", bandwidth_gb_per_s=0.1))

    assert result.requests["transfer_bytes"].tolist() == [1025 * 131_072] * 2
    assert len(set((result.requests["transfer_end_ns"] - result.requests["transfer_start_ns"]).tolist())) == 1


def test_blocks_that_all_wait_for_one_more_are_told_of(run):
    # Both prompts take 64 of D's 128 blocks; neither gets a 65th, in BLIS as here.
    small = {"pools": [{"name": "p", "role": "prefill"},
                       {"name": "d", "role": "decode", "engine": {"num_gpu_blocks": 129}}]}
    result = run(blis(), trace=HEAD + "0,1024,3\n0,1024,3\n", overrides=BLIS | small)

    assert ["replica 1: stuck" in line for line in result.summary["diagnosis"]] == [False, True]


def test_a_reserve_that_a_decode_replica_never_has_is_told_of(run):
    result = run(overrides=with_protocol("sglang", num_reserved_decode_tokens=15_000))

    assert ["replica 1: stuck" in line for line in result.summary["diagnosis"]] == [False, True]
