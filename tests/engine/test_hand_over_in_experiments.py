"""Pools for prefill and decode in experiment files: worked examples, by numbers in ms."""
import json

import pytest

import simulator
from simulator.domain import records
from simulator.results import summary_table

# An iteration: 5 ms, 10 us a sequence, 20 us a prompt token, 0.05 us a token of context. A token has 131,072 bytes.
LINEAR = """
engine = {max_model_len = 4096, num_gpu_blocks = 1000, async_scheduling = false}
workload = {type = "trace", path = "t.csv"}
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
[latency]
backend = "linear"
base_us = 5000.0
per_sequence_us = 10.0
per_prefill_token_us = 20.0
per_context_token_us = 0.05
[output]
token_times = true
"""
APART = LINEAR + """
[[pools]]
name = "p"
role = "prefill"
[[pools]]
name = "d"
role = "decode"
[kv_transfer]
bandwidth_gb_per_s = 40.0
"""
ONE = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,1024,3\n"


@pytest.fixture
def run(tmp_path):
    """Run an experiment with a trace; return its Result."""
    def run_it(text=APART, trace=ONE, overrides=None, **named):
        (tmp_path / "t.csv").write_text(trace)
        (tmp_path / "a.toml").write_text(text)
        return simulator.run(tmp_path / "a.toml", overrides=overrides or {}, **named)

    return run_it


def ms(times):
    return [time / 1e6 for time in times]


def test_a_prompt_is_pulled_and_its_last_token_computed_again(run):
    # T1. Prefill: 5 + 0.01 + 1024 x 0.02 = 25.49. KV: 0.4 + 134,217,728 B at 40 GB/s = 3.755443. A prompt token: 5.03.
    # Then 5 + 0.01 + 1025 x 0.00005, and one token of context more.
    result = run()

    assert ms(result.token_times[1]) == [34.275443, 39.336693, 44.397993]
    request = result.requests[0]
    assert ms(request[["prefill_done_ns", "transfer_start_ns", "transfer_end_ns"]]) == [25.49, 25.49, 29.245443]
    assert (request["transfer_bytes"], request["prefill_replica"], request["replica"]) == (134_217_728, 0, 1)
    assert (request["enqueued_ns"], request["scheduled_ns"]) == (0, 0)
    assert result.legs[["replica", "role", "how", "external_tokens"]].tolist() == [(0, 1, 2, 0), (1, 2, 1, 1023)]
    assert result.iterations["replica"].tolist() == [0, 1, 1, 1]


def test_the_same_on_one_replica_has_its_first_token_when_the_prompt_is_computed(run):
    assert ms(run(LINEAR).token_times[1])[0] == 25.49


def test_the_summary_counts_transfers(run):
    told = run().summary["kv_transfer"]

    assert (told["count"], told["bytes"], told["failed"], told["local"]) == (1, 134_217_728, 0, 0)
    assert (told["wait_ms"]["max"], told["duration_ms"]["max"]) == (0.0, 3.755443)
    assert (told["peak_concurrent"], told["mean_depth_at_start"]) == (1, 1.0)
    assert "kv_transfer" not in run(LINEAR).summary


def test_two_transfers_share_the_link(run):
    # Both prompts in one iteration of 5 + 2 x 0.01 + 2048 x 0.02 = 45.98; then 2 x 134,217,728 B behind the base:
    # 6.710886.
    trace = ONE + "0,1024,3\n"
    ends = {name: ms(run(trace=trace, overrides={"kv_transfer.contention": name}).requests["transfer_end_ns"])
            for name in ("fair", "none", "at_start", "fifo")}

    told = run(trace=trace).summary["kv_transfer"]
    assert (told["peak_concurrent"], told["mean_depth_at_start"]) == (2, 1.5)
    assert ends == {"fair": [53.090886] * 2, "none": [49.735443] * 2, "at_start": [49.735443, 53.090886],
                    "fifo": [49.735443, 53.490886]}


@pytest.mark.parametrize(("overrides", "start", "first_token"), [
    ({"kv_transfer.handshake_ms": 7.0}, 32.49, 41.275443), ({"kv_transfer.answer_hop_us": 2000.0}, 27.49, 36.275443),
    ({"kv_transfer.base_us": 0.0}, 25.49, 33.875443), ({"kv_transfer.noticed_at": "start"}, 25.49, 34.275443),
    ({"cluster.disaggregation.stage_order": "prefill_first", "cluster.disaggregation.decode.latency_s": 0.003},
     28.49, 37.275443)])
def test_what_a_hand_over_takes(run, overrides, start, first_token):
    result = run(overrides=overrides)

    assert ms([result.requests["transfer_start_ns"][0], result.requests["first_token_ns"][0]]) == [start, first_token]


def test_two_replicas_shake_hands_once(run):
    # The second request comes when the first is over.
    result = run(trace=ONE + "1,1024,3\n", overrides={"kv_transfer.handshake_ms": 7.0})

    assert ms(result.requests["transfer_start_ns"] - result.requests["prefill_done_ns"]) == [7, 0]


def test_a_decode_replica_reads_what_it_has_not(run):
    # r1 shares 512 tokens with r0, 32 blocks: 512 tokens move, or with full_prompt all 1024.
    trace = ("arrived_at,num_prefill_tokens,num_decode_tokens,prompt\n0,1024,3,s:512/a:512\n1,1024,3,s:512/b:512\n")
    missing, whole = (run(trace=trace, overrides={"kv_transfer.volume": volume}).requests["transfer_bytes"]
                      for volume in ("missing", "full_prompt"))

    assert missing.tolist() == [134_217_728, 67_108_864]
    assert whole.tolist() == [134_217_728] * 2


def test_one_whose_tokens_nobody_keeps_is_complete_when_its_prompt_is_computed(run):
    result = run(trace="arrived_at,num_prefill_tokens,num_decode_tokens\n0,1024,0\n")

    assert ms(result.requests[["first_token_ns", "completed_ns"]][0]) == [25.49, 25.49]
    assert result.summary["kv_transfer"]["count"] == 0
    assert result.legs["how"].tolist() == [records.LEG_ENDS.index("completed")]


def test_blocks_of_a_prompt_stay_until_they_are_read(run):
    # 65 usable blocks: the second prompt, which comes at 1 ms, waits for those of the first. They are read at
    # 29.245443, and known to be 2 ms later.
    result = run(trace=ONE + "0.001,1024,3\n", overrides={
        "kv_transfer.notice_us": 2000.0, "engine.max_model_len": 1040, "pools": [
        {"name": "p", "role": "prefill", "engine": {"num_gpu_blocks": 66}}, {"name": "d", "role": "decode"}]})

    assert ms(result.requests["scheduled_ns"]) == [0, 31.245443]


def test_a_full_decode_replica_holds_up_the_prefill_replica(run):
    # The decode replica has room for one request, which runs 200 tokens; the prefill replica for two prompts. The
    # fourth prompt waits until the second has been read, though nothing runs on the prefill replica for a second.
    pools = [{"name": "p", "role": "prefill", "engine": {"num_gpu_blocks": 129}},
             {"name": "d", "role": "decode", "engine": {"num_gpu_blocks": 80}}]
    result = run(trace="arrived_at,num_prefill_tokens,num_decode_tokens\n" + "0,1024,200\n" * 4, overrides={
        "engine.max_model_len": 1264, "pools": pools})

    requests = result.requests
    assert requests["scheduled_ns"][3] == requests["transfer_end_ns"][1] > requests["completed_ns"][0] > 1e9


def test_arrows_lead_from_replica_to_replica(run, tmp_path):
    run(overrides={"output.chrome_trace": True}, out=tmp_path / "out")
    events = json.loads((tmp_path / "out/trace.json").read_text())["traceEvents"]

    arrow = [(event["ph"], event["pid"], event["ts"]) for event in events if event.get("cat") == "kv_transfer"]
    assert arrow == [("X", 0, 25490.0), ("s", 0, 25490.0), ("X", 1, 29245.443), ("f", 1, 29245.443)]


def test_written_results_hold_the_columns(run, tmp_path):
    run(out=tmp_path / "out")

    requests = simulator.load_results(tmp_path / "out").requests
    assert ms(requests[["prefill_done_ns", "transfer_end_ns"]][0]) == [25.49, 29.245443]


def test_each_pool_has_a_router_of_its_own(run):
    # Round robin: one counter a pool. Two prefill replicas in turn, three decode replicas in turn.
    pools = [{"name": "p", "role": "prefill", "replicas": 2}, {"name": "d", "role": "decode", "replicas": 3}]
    result = run(trace="arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(
        f"{i},100,2\n" for i in range(6)), overrides={"pools": pools})

    assert result.requests["prefill_replica"].tolist() == [0, 1, 0, 1, 0, 1]
    assert result.requests["replica"].tolist() == [2, 3, 4, 2, 3, 4]


@pytest.mark.parametrize(("decider", "apart"), [
    ({"decider": "always"}, [True, True, True]), ({"decider": "never"}, [False, False, False]),
    # r1 finds 512 of its 1024 tokens; r2 has 40.
    ({"decider": "prefix_threshold", "non_cached_tokens": 512}, [True, True, False]),
    ({"decider": "prefix_threshold", "non_cached_tokens": 513}, [True, False, False]),
    ({"decider": "prefix_threshold", "non_cached_tokens": 0}, [False, False, False]),
    ({"decider": "prefix_threshold", "prompt_tokens": 1025}, [False, False, False]),
    ({"decider": "isl_bounding", "eff_isl_threshold": 513}, [True, False, True]),       # 40 of 40 is no small share
    ({"decider": "isl_bounding", "eff_isl_threshold": 512}, [True, True, True]),
    ({"decider": "isl_bounding", "eff_isl_ratio_threshold": 0.5}, [True, True, True]),
    ({"decider": "isl_bounding", "eff_isl_ratio_threshold": 1.1}, [False, False, False])])
def test_deciders(run, decider, apart):
    trace = ("arrived_at,num_prefill_tokens,num_decode_tokens,prompt\n"
             "0,1024,2,s:512/a:512\n1,1024,2,s:512/b:512\n2,40,2,c:40\n")
    result = run(trace=trace, overrides={f"cluster.disaggregation.{key}": value for key, value in decider.items()})

    assert (result.requests["prefill_replica"] >= 0).tolist() == apart
    assert result.summary["kv_transfer"]["local"] == apart.count(False)


@pytest.mark.parametrize(("threshold", "apart"), [(0.5, [True, False, True]), (2.0, [True, True, True])])
def test_a_busy_prefill_replica_is_passed_by(run, threshold, apart):
    # At 1 ms the replica computes 1024 tokens, half of its 2048 a batch and no more; r2 comes when it is idle.
    trace = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,1025,2\n0.001,100,2\n1,100,2\n"
    result = run(trace=trace, overrides={
        "cluster.disaggregation.decider": "prefill_load", "engine.max_num_batched_tokens": 2048,
        "cluster.disaggregation.prefill_busy_threshold": threshold})

    assert (result.requests["prefill_replica"] >= 0).tolist() == apart


@pytest.mark.parametrize(("threshold", "apart"), [(0.2, True), (0.3, False)])
def test_a_full_decode_replica_takes_no_whole_request(run, threshold, apart):
    # r1, 128 blocks, would fill 999 blocks to 0.064 + 0.128 = 0.192 + what r0 has generated: with 0.2 it may just stay.
    trace = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,2048,500\n1,2048,2\n"
    result = run(trace=trace, overrides={
        "cluster.disaggregation.decider": "isl_bounding", "cluster.disaggregation.eff_isl_ratio_threshold": 2.0,
        "cluster.disaggregation.eff_isl_threshold": 4096, "cluster.disaggregation.decode_busy_threshold": threshold})

    assert bool(result.requests["prefill_replica"][1] >= 0) is apart


def test_a_replica_of_both_roles_does_both(run):
    pools = [{"name": "p", "role": "prefill"}, {"name": "b"}, {"name": "d", "role": "decode"}]
    result = run(trace="arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(
        f"{i},100,2\n" for i in range(4)), overrides={"pools": pools})

    # prompts: 0, 1, 0, 1; the rest: 1, 2, 1, 2. The second request would be handed over by 1 to 2, the third by 0 to 1.
    assert result.requests["prefill_replica"].tolist() == [0, 1, 0, 1]
    assert result.requests["replica"].tolist() == [1, 2, 1, 2]


def test_a_request_is_not_handed_over_to_the_replica_that_computes_its_prompt(run):
    result = run(overrides={"pools": [{"name": "b"},
                                      {"name": "d", "role": "decode", "replicas": 0, "max_replicas": 1}]})

    assert result.requests["prefill_replica"].tolist() == [-1]
    assert ms(result.token_times[1])[0] == 25.49


def test_a_decider_written_in_python(run, tmp_path):
    (tmp_path / "my_lab.py").write_text(
        "from simulator.routing.disaggregation.python_decider import PythonDecider\n"
        "class Long(PythonDecider):\n"
        "    def splits_request(self, request, prefill, decode, now_ns):\n"
        "        return request.prompt_tokens > 500 and decode == 0 and prefill is None\n")
    result = run(APART + '[cluster.disaggregation]\ndecider = "my_lab:Long"\n', trace=ONE + "1,100,2\n")

    assert (result.requests["prefill_replica"] >= 0).tolist() == [True, False]


def test_the_summary_table_tells_of_transfers(run):
    assert "KV transfers 1 of 0.134 GB in all, 3.76 ms each on average" in summary_table(run().summary).splitlines()
