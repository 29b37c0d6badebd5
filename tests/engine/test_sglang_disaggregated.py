"""`scheduler = "sglang"` with prompts computed apart, by worked examples; numbers in ms.

P computes a prompt of 1024 tokens in 25.49; its KV of 134,217,728 B takes 3.355443 at 40 GB/s, behind the base of 0.4.
The token behind it takes 5.06125, the next 5.0613.
"""
import pytest

import simulator
from simulator.errors import InputErrors

APART = """
engine = {scheduler = "sglang", max_model_len = 4096, block_size = 16, num_gpu_blocks = 1000}
workload = {type = "trace", path = "t.csv"}
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
output = {token_times = true}
kv_transfer = {protocol = "sglang", bandwidth_gb_per_s = 40}
pools = [{name = "p", role = "prefill"}, {name = "d", role = "decode"}]
[latency]
backend = "linear"
base_us = 5000.0
per_sequence_us = 10.0
per_prefill_token_us = 20.0
per_context_token_us = 0.05
"""
HEAD = "arrived_at,num_prefill_tokens,num_decode_tokens\n"
TEXTS = "arrived_at,num_prefill_tokens,num_decode_tokens,prompt\n"
ONE = HEAD + "0,1024,3\n"


@pytest.fixture
def run(tmp_path):
    """Run an experiment with a trace; return its Result."""
    def run_it(trace=ONE, **overrides):
        (tmp_path / "t.csv").write_text(trace)
        (tmp_path / "a.toml").write_text(APART)
        return simulator.run(tmp_path / "a.toml", {key.replace("__", "."): value for key, value in overrides.items()})

    return run_it


def ms(times):
    return [time / 1e6 for time in times]


def decoding(**engine):
    """Return pools whose decode pool has these keys of [engine]."""
    return {"pools": [{"name": "p", "role": "prefill"}, {"name": "d", "role": "decode", "engine": engine}]}


@pytest.mark.parametrize("is_normal", [False, True])
def test_the_first_token_is_that_of_the_prefill_replica(run, is_normal):
    result = run(engine__disable_overlap_schedule=is_normal)                                                        # T2

    assert ms(result.token_times[1]) == [29.245443, 34.306693, 39.367993]
    assert result.iterations["replica"].tolist() == [0, 1, 1]


@pytest.mark.parametrize("is_normal", [False, True])
@pytest.mark.parametrize(("granularity", "end"), [("prompt", 34.255443), ("chunk", 32.577722)])
def test_chunks_move_as_they_are_computed(run, granularity, end, is_normal):
    # T3. Chunks of 512 tokens end at 15.25 and 30.5; the KV of one takes 0.4 + 1.677722.
    result = run(engine__chunked_prefill_size=512, kv_transfer__granularity=granularity,
                 engine__disable_overlap_schedule=is_normal)
    request = result.requests[0]

    assert ms(request[["prefill_done_ns", "transfer_end_ns", "first_token_ns"]]) == [30.5, end, end]
    assert ms(request[["transfer_start_ns"]]) == [30.5 if granularity == "prompt" else 15.25]
    assert request["transfer_bytes"] == 134_217_728


@pytest.mark.parametrize("granularity", ["prompt", "chunk", "layer"])
def test_pages_that_the_decode_replica_has_are_not_sent(run, granularity):
    # r1 has half of r0's text; r2 has all of it, and its token comes with nothing, in 0.4. P computes the last page.
    trace = TEXTS + "0,1024,3,s:512/a:512\n1,1024,3,s:512/b:512\n2,1024,3,s:512/a:512\n"
    result = run(trace, kv_transfer__granularity=granularity)

    assert result.requests["transfer_bytes"].tolist() == [134_217_728, 67_108_864, 0]
    assert result.requests["cached_tokens"].tolist() == [0, 512, 1008]
    if granularity != "layer":
        assert ms(result.requests["first_token_ns"][2:]) == [2000 + 5.0 + 0.01 + 16 * 0.02 + 0.4]


def test_without_a_tree_all_is_sent_again(run):
    result = run(TEXTS + "0,1024,3,s:1024\n1,1024,3,s:1024\n", **decoding(enable_prefix_caching=False))

    assert result.requests["transfer_bytes"].tolist() == [134_217_728] * 2
    assert result.requests["cached_tokens"].tolist() == [0, 1008]           # by the prefill replica


@pytest.mark.parametrize(("reserved", "at_once"), [(512, 10), (0, 12), (None, 10)])
def test_tokens_are_reserved_for_decoding(run, reserved, at_once):
    # 1000 pages hold 16,000 tokens. The request behind k others needs 1024 + 512 of 16,000 - 1024 k - 512 k.
    keys = {} if reserved is None else {"kv_transfer__num_reserved_decode_tokens": reserved}
    result = run(HEAD + "0,1024,3\n" * 12, **keys)

    assert (result.requests["enqueued_ns"] == 0).sum() == at_once           # by the prefill replica


def test_a_request_must_be_able_to_run_to_its_end_if_all_others_are_retracted(run):
    # Of 960 tokens r0 has 480; r1 needs 480 of these, but may grow by 400 with 500 retractable at most.
    keys = {"kv_transfer__num_reserved_decode_tokens": 0}
    trace = HEAD + "0,480,5\n0.2,480,479\n"
    together, apart = (run(trace.replace("0.2", when), **decoding(num_gpu_blocks=60), **keys)
                       for when in ("0.0", "0.2"))

    # While nobody runs there is nothing to retract: r1's 480 + 478 tokens do not fit beside r0, which is on its way.
    assert together.requests["enqueued_ns"][1] >= together.requests["first_token_ns"][0]
    assert ms(apart.requests["enqueued_ns"]) == [0, 200]


def test_no_prompt_is_computed_for_which_there_is_no_room(run):
    result = run(HEAD + "0,1024,200\n0.001,1024,200\n", **decoding(num_gpu_blocks=81),
                 kv_transfer__num_reserved_decode_tokens=0)

    assert result.requests["scheduled_ns"][1] >= result.requests["completed_ns"][0]


def test_a_token_is_seen_when_its_request_has_a_place(run):
    result = run(HEAD + "0,1024,30\n0,1024,3\n", **decoding(max_running_requests=1))

    assert result.requests["transfer_end_ns"][1] < result.requests["completed_ns"][0]
    assert result.requests["first_token_ns"][1] == result.requests["completed_ns"][0]


def test_who_is_retracted_goes_on_from_host_memory(run):
    # 14 pages: 48 tokens each, and from 65 on there are too few for three. r2, who came last, leaves its pages; they
    # are not free for it again beside 16 for each of two that run. It goes on behind them, and behind the 63 tokens
    # that it had in KV when its 16th was known; the one in flight is lost.
    result = run(HEAD + "0,48,40\n" * 3, **decoding(num_gpu_blocks=14), kv_transfer__num_reserved_decode_tokens=16)
    decodes = result.iterations[result.iterations["replica"] == 1]
    last_of_others = result.requests["completed_ns"][1]
    starts, times = result.token_times
    after = [time for time in times[starts[2]:] if time > last_of_others]

    assert result.requests["preemptions"].tolist() == [0, 0, 1]
    assert decodes["prefill_tokens"].sum() == 0
    assert ms([after[0] - last_of_others]) == [5.0132]
    assert result.requests["output_tokens"].tolist() == [40, 40, 40]


@pytest.mark.parametrize("patience_s", [0.002, 0.027, 0.031, 0.036])
def test_who_gives_up_leaves_nothing_behind(run, patience_s):
    result = run("arrived_at,num_prefill_tokens,num_decode_tokens,deadline_s\n"
                 f"0,1024,300,{patience_s}\n0.5,1024,3,\n")

    assert ms(result.requests["first_token_ns"][1:] - result.requests["arrival_ns"][1:]) == [29.245443]


def test_a_reserve_that_a_decode_replica_never_has_is_told_of(run):
    result = run(kv_transfer__num_reserved_decode_tokens=15_500)

    unserved, stuck = result.summary["diagnosis"]
    assert "none was served" in unserved
    assert "replica 1: stuck" in stuck and "num_reserved_decode_tokens" in stuck


@pytest.mark.parametrize(("overrides", "message"), [
    ({"kv_transfer__protocol": "nixl"},
     'with kv_transfer.protocol = "nixl", found "sglang": its decode replicas give pages'),
    ({"kv_transfer__protocol": "blis"}, "does not support blocks that are filled before a request arrives"),
    ({"pools": [{"name": "p", "role": "prefill"}, {"name": "b", "role": "both"}]},
     'expected "prefill" or "decode" with engine.scheduler = "sglang", found "both"'),
    ({"cluster__disaggregation": {"decider": "isl_bounding"}}, "computes no prompts in decode replicas"),
    ({"kv_transfer__noticed_at": "end"}, "looks for KV each time that it forms a batch"),
    ({"engine__max_queued_requests": 4}, "max_queued_requests: expected false or 0 with pools of role"),
    ({"engine__enable_mixed_chunk": True}, "enable_mixed_chunk: expected false or 0 with pools of role"),
    ({"engine__prefill_decode_interval": 2}, "prefill_decode_interval: expected false or 0 with pools of role"),
    ({"failures": [{"kind": "stop", "mtbf_s": 10.0, "duration_s": 1.0}]},
     'expected none with kv_transfer.protocol = "sglang"')])
def test_what_sglang_does_not_do_apart_is_refused(run, overrides, message):
    with pytest.raises(InputErrors) as caught:
        run(**overrides)
    assert message in str(caught.value)
