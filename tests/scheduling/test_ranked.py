"""Schedulers that rank who waits, by hand: one request at a time, in iterations of 1 ms."""
import numpy as np
import pytest
from msgspec import structs

import simulator
from simulator.latency.linear import Linear, LinearParameters
from simulator.scheduling.edf import Edf
from simulator.scheduling.fastserve import Fastserve
from simulator.scheduling.sarathi_slo import SarathiSlo
from simulator.scheduling.sjf_aging import SjfAging
from simulator.scheduling.vtc import Vtc
from support.engine import plan_of
from support.every_key import read
from support.recording import record
from support.workloads import plain_workload

MS = 1_000_000
PRICES = LinearParameters(base_us=1000.0, per_sequence_us=0.0, per_prefill_token_us=0.0, per_context_token_us=0.0)


@pytest.fixture
def completed_ms(tmp_path):
    """Return when each request of a trace completes, in ms."""
    def completed_ms(trace, scheduler, **engine):
        (tmp_path / "trace.csv").write_text(trace)
        extras = {"output_knowledge": {"predictor": "column"}} if "predicted" in trace else {}
        extras |= {"cancel_at_deadline": False} if "deadline" in trace else {}
        result = simulator.run(read({
            "engine": {"scheduler": scheduler, "num_gpu_blocks": 100, "block_size": 4, "max_model_len": 100,
                       "max_num_seqs": 1} | engine,
            "latency": {"backend": "linear", "base_us": 1000.0, "per_sequence_us": 0.0, "per_prefill_token_us": 0.0,
                        "per_context_token_us": 0.0},
            "workload": {"type": "trace", "path": str(tmp_path / "trace.csv")} | extras}))
        assert not result.summary["diagnosis"]
        return (result.requests["completed_ns"] / MS).tolist()
    return completed_ms


# ---- edf: outputs of 6, 2, 4 and 1 tokens; the first is alone when it comes

DUE = ("arrived_at,num_prefill_tokens,num_decode_tokens,deadline_s\n"
       "0,3,6,9\n0.0001,3,2,5\n0.0001,3,4,1\n0.0001,3,1,\n")


def test_the_earliest_deadline_goes_first(completed_ms):
    assert completed_ms(DUE, "edf") == [6, 12, 10, 13]                              # nobody waits for the last


def test_who_says_nothing_is_due_by_default(completed_ms):
    assert completed_ms(DUE, "edf", default_deadline_ms=2000.0) == [6, 13, 10, 11]  # after 1 s, before 5 s


def test_the_latest_deadline_makes_room():
    # 5 blocks of 4 tokens: prompts of 8 take 2 each, and the 9th token of both a third. The one due later starts over.
    workload = plain_workload([0, 0], 8, 4)
    workload.demands["due_ns"] = [2 * MS, 1 * MS]
    first, second = _run(workload, Edf).requests

    assert (first["preemptions"], second["preemptions"]) == (1, 0)
    assert second["completed_ns"] < first["completed_ns"]


# ---- sjf_aging

PREDICTED = ("arrived_at,num_prefill_tokens,num_decode_tokens,predicted_tokens\n"
             "0,3,6,6\n0.0001,3,2,2\n0.0001,3,4,1\n0.0001,3,1,\n")
AGED = ("arrived_at,num_prefill_tokens,num_decode_tokens,predicted_tokens\n"
        "0,3,6,6\n0.001,3,4,4\n0.005,3,1,1\n")


def test_the_shortest_predicted_goes_first(completed_ms):
    # of the last nothing is known but its limit, which is its output: 1, as much as the third, whose id is smaller
    assert completed_ms(PREDICTED, "sjf_aging", aging_tokens_per_s=0.0) == [6, 13, 10, 11]


@pytest.mark.parametrize(("aging", "expected"), [
    (0.0, [6, 11, 7]),
    (700.0, [6, 11, 7]),        # the second is 4 ms older: 4 - 2.8 > 1
    (800.0, [6, 10, 11]),       # 4 - 3.2 < 1
])
def test_the_older_counts_for_shorter(completed_ms, aging, expected):
    assert completed_ms(AGED, "sjf_aging", aging_tokens_per_s=aging) == expected


def test_the_longest_predicted_makes_room():
    workload = plain_workload([0, 0], 8, 4)
    workload.demands["expected_tokens"] = [9, 4]

    assert _run(workload, SjfAging).requests["preemptions"].tolist() == [1, 0]


# ---- vtc

# The first tenant asks for four answers of 4 tokens, the second for two: 2 + 2 x 4 = 10 of service each.
SHARED = ("arrived_at,num_prefill_tokens,num_decode_tokens,tenant\n"
          "0,2,4,a\n0,2,4,a\n0,2,4,a\n0,2,4,a\n0,2,4,b\n0,2,4,b\n")


def test_tenants_take_turns(completed_ms):
    # both at 0: a's came first; then b has less, 10 : 10, a again, b, and a's last two
    assert completed_ms(SHARED, "vtc") == [4, 12, 20, 24, 8, 16]


def test_service_counts_by_weight(completed_ms):
    # prompts alone count, of 1 token and of 3: b has a turn, a three, and at 3 : 3 b, which came first
    trace = ("arrived_at,num_prefill_tokens,num_decode_tokens,tenant\n"
             "0,3,1,b\n0,3,1,b\n0,1,1,a\n0,1,1,a\n0,1,1,a\n0,1,1,a\n")
    assert completed_ms(trace, "vtc", output_token_weight=0) == [1, 5, 2, 3, 4, 6]
    # answers alone count, all alike: they take turns
    assert completed_ms(trace, "vtc", input_token_weight=0) == [1, 3, 2, 4, 5, 6]


def test_who_was_away_claims_nothing_for_it(completed_ms):
    # b comes at 4.5 ms; at 5 ms a has 10 of its first request, 2 + 2 of its second, and b begins with these 14. At 8 ms
    # a has 20, so b goes twice (18, 22), a's third (30), and b's last. From 0 on, b would have gone four times first.
    trace = ("arrived_at,num_prefill_tokens,num_decode_tokens,tenant\n"
             "0,2,4,a\n0,2,4,a\n0,2,4,a\n0.0045,2,1,b\n0.0045,2,1,b\n0.0045,2,1,b\n0.0045,2,1,b\n")
    assert completed_ms(trace, "vtc") == [4, 8, 14, 9, 10, 15, 16]


@pytest.mark.ci
@pytest.mark.parametrize("seed", range(10))
def test_tenants_that_wait_all_the_time_have_equal_service(seed):
    # arXiv 2401.00588, theorem 4.4: counters differ by at most 2 max(w_in * longest prompt, w_out * M), M: tokens of a
    # full batch, here those in all KV blocks
    rng = np.random.default_rng(seed)
    workload = plain_workload(np.zeros(300, np.int64), rng.integers(1, 40, 300), rng.integers(1, 30, 300))
    workload.demands["tenant"] = rng.choice([0, 1], 300, p=[0.8, 0.2])
    workload = structs.replace(workload, labels={"tenant": ("a", "b")})
    recording = record(workload, plan_of(
        Vtc.Parameters(max_num_seqs=8), Linear(PRICES), scheduler=Vtc, num_gpu_blocks=31, block_size=8,
        max_model_len=100, enable_prefix_caching=False))
    requests, tenant = recording.requests, workload.demands["tenant"]
    backlogged_until = min(requests["scheduled_ns"][tenant == each].max() for each in (0, 1))
    times = {row: np.asarray(recording.token_times[row]) for row in range(300)}

    for now in np.linspace(0, backlogged_until, 200):
        served = [sum(int(requests["prompt_tokens"][row]) * (requests["scheduled_ns"][row] <= now)
                      + 2 * int((times[row] <= now).sum()) for row in np.flatnonzero(tenant == each))
                  for each in (0, 1)]
        assert abs(served[0] - served[1]) <= 2 * max(40, 2 * 30 * 8)


# ---- fastserve: quanta of 2, 4, 8 ms

LONG = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,3,10\n0.0001,3,10\n"
SKIPS = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,3,2\n0.0001,10,1\n0.0002,3,1\n"


def test_each_gives_way_once_a_quantum(completed_ms):
    # The first has 3 tokens when it has spent more than 2 ms, at 3, and sinks. The second sinks at 6, to the queue of
    # the first, and again when it has spent 2 + 4 ms, at 10, with 7 tokens. The first has spent 1 of its 4 ms, and
    # sinks at 14, to the queue of the second: it is through at 17, and the second has its last three tokens then.
    assert completed_ms(LONG, "fastserve", quantum_ms=2.0) == [17, 20]
    assert completed_ms(LONG, "fastserve", quantum_ms=10.0) == [10, 20]     # the first is in a later queue at 11


def test_prompts_skip_queues_that_they_do_not_fit_in(completed_ms):
    # 10 ms need the fourth queue, 16 ms, 3 ms the second
    assert completed_ms(SKIPS, "fastserve", quantum_ms=2.0, prefill_us_per_token=1000.0) == [2, 4, 3]
    assert completed_ms(SKIPS, "fastserve", quantum_ms=2.0, prefill_us_per_token=0.0) == [2, 3, 4]
    # A prompt of 3 in 1 ms is known at the second iteration only: these came before, and join the first queue.
    assert completed_ms(SKIPS, "fastserve", quantum_ms=2.0) == [2, 3, 4]
    # From then on 0.33 ms a token: 3.3 ms need the second queue, 1 ms the first.
    later = SKIPS.replace("0.0001", "0.0011").replace("0.0002", "0.0012")
    assert completed_ms(later, "fastserve", quantum_ms=2.0) == [2, 4, 3]


@pytest.mark.parametrize(("starvation_s", "longest_gap_ms"), [(0.01, 11), (3.0, 58)])
def test_who_was_away_for_so_long_rises(starvation_s, longest_gap_ms):
    # The first sinks at 3 ms; two of the others, which come each ms, wait then, so that one does until all are through.
    workload = plain_workload([0, *range(MS, 58 * MS, MS)], 3, [20] + [1] * 57)
    gaps = np.diff(_run(workload, Fastserve, num_gpu_blocks=100, max_num_seqs=1, quantum_ms=2.0,
                        prefill_us_per_token=0.0, starvation_s=starvation_s).token_times[0])

    assert gaps.max() == longest_gap_ms * MS


@pytest.mark.parametrize(("prompt", "gave_way", "began_ms"), [
    (8, [True, False], 4),      # at 4 ms 1 block of 8 is free, and the first, which has sunk, has 2
    (20, [False, True], 6)])    # these are too few, and it stays; at 6 ms the second has sunk, and has 5
def test_nobody_gives_way_in_vain(prompt, gave_way, began_ms):
    workload = plain_workload([0, 5 * MS // 2, 7 * MS // 2], [3, 16, prompt], [9, 6, 1])
    found = _run(workload, Fastserve, num_gpu_blocks=9, max_num_seqs=3, quantum_ms=2.0, prefill_us_per_token=0.0)

    assert found.requests["scheduled_ns"][2] == began_ms * MS
    assert (found.requests["preemptions"][:2] > 0).tolist() == gave_way


# ---- andes: a token a ms, expected from the start; gains of 10 ms ahead

READERS = {"expected_ttft_s": 0.0, "tokens_per_s": 1000.0, "horizon_s": 0.01, "token_latency_ms": 1.0}


def test_the_least_context_gains_the_most(completed_ms):
    # at 2 ms the third has 1 - (0.2 / 10.2)^2 to gain for 4 tokens, the second as much for 40
    trace = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,4,2\n0.0001,40,1\n0.0002,4,1\n"
    assert completed_ms(trace, "andes", preemptions_per_request=0.0, **READERS) == [2, 4, 3]


@pytest.mark.parametrize(("settings", "expected"), [
    # At 1 ms the second gains 1 - (0.9 / 10.9)^2 = 0.993 for 4 tokens, the first (10 / 11)^2 = 0.826 for 5: it gives
    # way. At 2 ms 0.8333 for 5 against 0.8333 for 5: the first by a hair, which half as much again outweighs.
    ({}, [6, 4]),
    ({"running_bonus": 0.0}, [4, 6]),           # one preemption for each of two requests: the first has its last tokens
    ({"running_bonus": 0.0, "preemptions_per_request": 0.5}, [6, 4]),
    ({"preemptions_per_request": 0.0}, [3, 6])])
def test_who_gains_more_takes_the_place(completed_ms, settings, expected):
    trace = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,4,3\n0.0001,4,3\n"
    assert completed_ms(trace, "andes", **READERS | settings) == expected


@pytest.mark.parametrize(("kv_watermark", "expected"), [(0.9, [6, 2, 3]), (0.0, [6, 3, 2])])
def test_where_all_have_room_they_go_as_they_came(completed_ms, kv_watermark, expected):
    # Beside a token of the first 49 are left at 1 ms, for prompts of 48 and 4: who is second has its last tokens then.
    trace = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,4,6\n0.0001,48,1\n0.0002,4,1\n"
    assert completed_ms(trace, "andes", max_num_seqs=9, max_num_batched_tokens=50, kv_watermark=kv_watermark,
                        **READERS) == expected


def test_preemptions_for_places_are_told(tmp_path):
    (tmp_path / "trace.csv").write_text(LONG)
    summary = simulator.run(read({
        "engine": {"scheduler": "fastserve", "num_gpu_blocks": 100, "max_model_len": 100, "max_num_seqs": 1,
                   "quantum_ms": 2.0},
        "latency": {"backend": "linear", "base_us": 1000.0}, "workload": {
            "type": "trace", "path": str(tmp_path / "trace.csv")}})).summary

    assert summary["preemptions_by_cause"] == {"places": 2, "blocks": 0}
    assert summary["preemptions"] == 2


# ---- sarathi_slo

def test_chunks_follow_what_iterations_take():
    # 1 ms, and 0.1 ms for each token of a prompt: 10 in 2 ms. Beside the first request's tokens the second has at first
    # 16 (2.6 ms: too long), 8 (1.8), 12 (2.2), 6 (1.6), 10 (2.0), and of the 14 that are allowed then the last 12.
    workload = plain_workload([0, MS // 2], [10, 64], [20, 1])
    recording = _run(workload, SarathiSlo, num_gpu_blocks=40, price_us=100.0, tbt_slo_ms=2.0, chunk_tokens=16,
                     min_chunk_tokens=4, chunk_step_tokens=4)

    chunks = recording.iterations["prefill_tokens"].tolist()
    assert chunks[:7] == [10, 16, 8, 12, 6, 10, 12]
    assert not any(chunks[7:])


def test_chunks_are_never_shorter_than_that():
    workload = plain_workload([0, MS // 2], [10, 64], [20, 1])
    recording = _run(workload, SarathiSlo, num_gpu_blocks=40, price_us=100.0, tbt_slo_ms=1.0, chunk_tokens=16,
                     min_chunk_tokens=8)

    assert recording.iterations["prefill_tokens"].tolist()[:8] == [10, 16, 8, 8, 8, 8, 8, 8]


# ---- edf

@pytest.mark.parametrize("seed", range(5))
def test_who_is_admitted_is_due_before_all_that_wait(seed):
    rng = np.random.default_rng(seed)
    workload = plain_workload(np.sort(rng.integers(0, 50 * MS, 60)), 5, rng.integers(1, 9, 60))
    workload.demands["due_ns"] = rng.integers(1, 10**9, 60)
    requests = _run(workload, Edf, num_gpu_blocks=40, max_num_seqs=2).requests

    began = requests["scheduled_ns"]
    for row in range(60):
        waited = (requests["enqueued_ns"] < began[row]) & (began > began[row])
        assert (workload.demands["due_ns"][row] < workload.demands["due_ns"][waited]).all()


def _run(workload, scheduler, num_gpu_blocks=6, price_us=0.0, **parameters):
    """Serve a workload with blocks of 4 tokens, one of them held back."""
    prices = structs.replace(PRICES, per_prefill_token_us=price_us)
    return record(workload, plan_of(
        scheduler.Parameters(**parameters), Linear(prices), scheduler=scheduler, num_gpu_blocks=num_gpu_blocks,
        block_size=4, max_model_len=100, enable_prefix_caching=False))
