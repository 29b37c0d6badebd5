"""Pipeline stages: examples worked by hand. An iteration costs 100 us whatever it computes, unless said otherwise."""
import pytest

from simulator.latency.linear import Linear, LinearParameters
from simulator.scheduling.vllm import VllmParameters
from support.engine import record
from support.workloads import plain_workload

US = 1000
CACHE = {"num_gpu_blocks": 1000, "block_size": 16, "max_model_len": 4096}
FLAT = {"base_us": 100.0, "per_sequence_us": 0.0, "per_prefill_token_us": 0.0, "per_context_token_us": 0.0}


def serve(workload, layers, prices=FLAT, host_us=0.0, cache=CACHE, **parameters):
    """Return the recording of one replica whose stages hold `layers`."""
    latency = Linear(LinearParameters(**prices))
    latency.set_host(host_us, 0.0)
    latency.set_stages(layers)
    return record(workload, VllmParameters(**parameters), latency, **cache)


def visits_us(recording):
    """Return for each batch its [(start, end)] in us, stage by stage."""
    return [[(start // US, end // US) for start, end in step["stages"]]
            for step in recording.steps if step["scheduled"]]


def token_times_us(recording):
    return {row: [time // US for time in times] for row, times in recording.token_times.items()}


# ---- one request: nothing to overlap

@pytest.mark.parametrize("layers", [(1,), (1, 1), (1, 3), (2, 1, 1)])
def test_a_lone_decode_takes_as_long_as_without_stages(layers):
    recording = serve(plain_workload(0, 10, 3), layers)

    assert token_times_us(recording) == {0: [100, 200, 300]}
    assert recording.replicas["busy_ns"].tolist() == [300 * US]
    assert recording.replicas["iterations"].tolist() == [3]


def test_a_batch_passes_one_stage_after_the_other():
    recording = serve(plain_workload(0, 10, 2), (1, 3))

    assert visits_us(recording) == [[(0, 25), (25, 100)], [(100, 125), (125, 200)]]


# ---- one long prompt: its chunks follow each other through the stages

def test_chunks_of_a_prompt_overlap_in_equal_stages():
    # 4 chunks, 2 stages of 50 us: (4 + 2 - 1) x 50. The third is scheduled when the first has left, at 100.
    recording = serve(plain_workload(0, 40, 1), (1, 1), max_num_batched_tokens=10, max_num_seqs=4)

    assert visits_us(recording) == [
        [(0, 50), (50, 100)], [(50, 100), (100, 150)], [(100, 150), (150, 200)], [(150, 200), (200, 250)]]
    assert [step["t_ns"] // US for step in recording.steps] == [0, 0, 100, 150]
    assert token_times_us(recording) == {0: [250]}
    assert recording.replicas["busy_ns"].tolist() == [250 * US]


def test_the_slowest_stage_sets_the_pace():
    # Stages of 25 and 75 us: the second is busy from 25 on. Then 75 and 25: the first is.
    last = serve(plain_workload(0, 40, 1), (1, 3), max_num_batched_tokens=10, max_num_seqs=4)
    first = serve(plain_workload(0, 40, 1), (3, 1), max_num_batched_tokens=10, max_num_seqs=4)

    assert visits_us(last) == [
        [(0, 25), (25, 100)], [(25, 50), (100, 175)], [(100, 125), (175, 250)], [(175, 200), (250, 325)]]
    assert visits_us(first) == [
        [(0, 75), (75, 100)], [(75, 150), (150, 175)], [(150, 225), (225, 250)], [(225, 300), (300, 325)]]


def test_as_many_batches_as_stages_are_in_flight():
    # Three stages of 100 us: the fourth of 4 chunks is scheduled when the first has left the last stage, at 300.
    recording = serve(plain_workload(0, 40, 1), (1, 1, 1), FLAT | {"base_us": 300.0}, max_num_batched_tokens=10,
                      max_num_seqs=4)

    assert [step["t_ns"] // US for step in recording.steps] == [0, 0, 0, 300]
    assert token_times_us(recording) == {0: [600]}


def test_unequal_batches_wait_for_each_other_without_overtaking():
    # 10 us a prompt token, stages alike: chunks of 8 and 2 tokens take 40 and 10 us in each. The second has left the
    # first stage at 50 and the first the second stage at 80.
    prices = FLAT | {"base_us": 0.0, "per_prefill_token_us": 10.0}
    recording = serve(plain_workload(0, 10, 1), (1, 1), prices, max_num_batched_tokens=8, max_num_seqs=4)

    assert visits_us(recording) == [[(0, 40), (40, 80)], [(40, 50), (80, 90)]]


# ---- decoding

def test_two_requests_in_one_batch_leave_every_other_slot_empty():
    # Their tokens have to be back before either can go on: as without stages.
    recording = serve(plain_workload([0, 0], 10, 3), (1, 1))

    assert token_times_us(recording) == {0: [100, 200, 300], 1: [100, 200, 300]}
    assert [sorted(row for row, _ in step["scheduled"]) for step in recording.steps] == [[0, 1]] * 3


def test_requests_whose_prompts_went_apart_decode_apart_and_fill_the_stages():
    # Budget of two prompts: requests 0 and 1 share a batch, 2 has the next, and so it stays.
    recording = serve(plain_workload([0, 0, 0], 10, 3), (1, 1), max_num_batched_tokens=20, max_num_seqs=4)

    assert [[row for row, _ in step["scheduled"]] for step in recording.steps] == [[0, 1], [2]] * 3
    assert token_times_us(recording) == {0: [100, 200, 300], 1: [100, 200, 300], 2: [150, 250, 350]}
    assert visits_us(recording)[2:4] == [[(100, 150), (150, 200)], [(150, 200), (200, 250)]]


def test_an_arrival_during_an_iteration_waits_for_its_end():
    # The engine blocks on the result in flight once nothing can be scheduled; at 100 both go into one batch.
    recording = serve(plain_workload([0, 20 * US], 10, 2), (1, 1))

    assert [(step["t_ns"] // US, [row for row, _ in step["scheduled"]]) for step in recording.steps] == [
        (0, [0]), (100, [0, 1]), (200, [1])]


def test_a_saturated_pipeline_makes_a_batch_each_turn_of_its_slowest_stage():
    # 40 prompts of a batch each, stages of 20, 50 and 30 us: the second is never idle from 20 on; the last adds 30.
    recording = serve(plain_workload([0] * 40, 10, 1), (2, 5, 3), max_num_batched_tokens=10, max_num_seqs=8)

    # The second batch of each three waits for the end of the first, at 100: 3 x 50 > 100 hides it.
    assert recording.requests["completed_ns"].max() == (20 + 40 * 50 + 30) * US


# ---- time

def test_host_time_belongs_to_the_first_stage():
    recording = serve(plain_workload(0, 10, 1), (1, 1), host_us=10.0)

    assert visits_us(recording) == [[(0, 60), (60, 110)]]


def test_ends_of_stages_are_rounded_not_their_lengths():
    latency = Linear(LinearParameters(**FLAT | {"base_us": 0.005}))     # 5 ns in halves: ends at 2.5 and 5
    latency.set_stages((1, 1))
    assert latency.predict_stages_ns(decode=[1]) == [3, 2]
    latency = Linear(LinearParameters(**FLAT | {"base_us": 5.0}))       # truncated to whole us
    latency.set_stages((1, 1))
    latency.set_host(0.0, 1.0)
    assert latency.predict_stages_ns(decode=[1]) == [2 * US, 3 * US]


def test_each_stage_takes_a_nanosecond_at_least():
    latency = Linear(LinearParameters(**FLAT | {"base_us": 0.0}))
    latency.set_stages((1, 1, 1))
    assert latency.predict_stages_ns(decode=[1]) == [1, 1, 1]


# ---- preemption

def test_a_victim_is_admitted_again_only_when_its_token_is_back():
    # 4 blocks of 4, three stages of 100 us, prompts of 4 in batches of their own. Request 0 decodes at 300, 600, ...,
    # request 1 at 400, 700, ...; each has 2 blocks when 0 asks for its third at 1500 and 1, the last admitted, goes.
    # The token that 1 was promised at 1300 comes at 1600. Only then it starts again, with a first chunk of 4.
    cache = {"num_gpu_blocks": 5, "block_size": 4, "max_model_len": 32, "enable_prefix_caching": False}
    recording = serve(plain_workload([0, 0], 4, 6), (1, 1, 1), FLAT | {"base_us": 300.0}, cache=cache,
                      max_num_batched_tokens=4, max_num_seqs=4, scheduler_reserve_full_isl=False)

    steps = [(step["t_ns"] // US, step["scheduled"], step["preempted"]) for step in recording.steps]
    assert steps[9:12] == [(1300, [(1, 1)], []), (1500, [(0, 1)], [1]), (1600, [(1, 4)], [])]
    assert token_times_us(recording)[1][:5] == [400, 700, 1000, 1300, 1600]
