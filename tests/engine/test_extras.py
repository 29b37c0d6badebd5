"""What requests bring besides tokens, by timelines worked out by hand: iterations of 10 ms without it."""
import numpy as np
import pytest
from msgspec.structs import replace

from simulator.latency.linear import Linear
from simulator.scheduling.vllm import Vllm
from simulator.scheduling.vllm_tables import LoraParameters, StructuredOutputParameters
from support import engine
from support.scenario import load

MS = 1_000_000
TEN_MS = {"base": 0.01, "per_token": 0.0, "per_req": 0.0}


def run(requests, fast_forward=True, options=None, **tables):
    """Return the recording of requests (arrival in ms, prompt tokens, outputs, what else each says)."""
    requests = [{"id": f"r{i}", "arrival": arrival / 1e3, "prompt": [["uniq", prompt]], "output_len": outputs} | more
                for i, (arrival, prompt, outputs, more) in enumerate(requests)]
    scenario = load({"options": {"num_blocks": 100} | (options or {}), "step_time": TEN_MS, "requests": requests})
    parameters = replace(scenario.parameters, **tables)
    latency = Linear(scenario.prices)
    for go_around in Vllm.around(parameters, None):
        latency = go_around(latency)
    workload = replace(scenario.workload, requests=scenario.workload.requests.copy())
    return engine.record(workload, parameters, latency, fast_forward=fast_forward, **scenario.cache)


def ms(recording, name):
    return (recording.requests[name] / MS).tolist()


def durations_ms(recording):
    return (recording.iterations["duration_ns"] / MS).tolist()


def lora(name):
    return {"lora": name}


@pytest.mark.parametrize("fast_forward", [True, False])
def test_an_adapter_is_loaded_once_before_the_iteration_that_needs_it(fast_forward):
    # 50 MB: 25 ms from the disk at 2 GB/s, 5 ms to the accelerator at 10 GB/s; 1.2 x 10 ms and 1 ms for one adapter.
    table = LoraParameters(max_loras=2, adapter_mb=50.0, disk_gb_per_s=2.0, h2d_gb_per_s=10.0, step_factor=1.2,
                           per_adapter_us=1000.0)
    recording = run([(0, 16, 3, lora(1)), (60, 16, 2, {})], fast_forward, lora=table)
    assert durations_ms(recording) == [30 + 13, 13, 13, 10, 10]
    assert ms(recording, "completed_ns") == [69, 89]


def test_all_wait_for_the_load_of_one():
    table = LoraParameters(max_loras=2, adapter_mb=50.0, h2d_gb_per_s=10.0, step_factor=1.0)
    recording = run([(0, 16, 4, {}), (15, 16, 1, lora(1))], lora=table)
    assert durations_ms(recording) == [10, 10, 15, 10]


def test_what_was_not_used_for_longest_goes_and_host_memory_keeps_it():
    # One slot, two places in host memory: 5 ms to the accelerator each time, 25 ms from the disk the first time.
    table = LoraParameters(max_loras=1, max_cpu_loras=2, adapter_mb=50.0, disk_gb_per_s=2.0, h2d_gb_per_s=10.0,
                           step_factor=1.0)
    requests = [(100 * i, 16, 1, lora(adapter)) for i, adapter in enumerate([1, 1, 2, 1, 3, 1, 2])]
    assert durations_ms(run(requests, lora=table)) == [40, 10, 40, 15, 40, 15, 40]


def test_an_adapter_of_members_stays_though_it_was_loaded_first():
    table = LoraParameters(max_loras=2, adapter_mb=50.0, h2d_gb_per_s=10.0, step_factor=1.0)
    requests = [(0, 16, 40, lora(1)), (100, 16, 1, lora(2)), (200, 16, 1, lora(3)), (300, 16, 1, lora(1))]
    assert durations_ms(run(requests, lora=table)).count(15) == 3


@pytest.mark.parametrize("fast_forward", [True, False])
def test_a_slot_is_free_when_its_adapter_no_longer_runs(fast_forward):      # example L1: A1 B1 A2
    table = LoraParameters(max_loras=1, step_factor=1.0)
    recording = run([(0, 16, 3, lora("A")), (0, 16, 1, lora("B")), (0, 16, 2, lora("A"))], fast_forward, lora=table)
    assert ms(recording, "scheduled_ns") == [0, 30, 0]


@pytest.mark.parametrize("fast_forward", [True, False])
@pytest.mark.parametrize(("structured", "drafts", "expected_ms"), [(64, 0, 12.0), (64, 3, 12.8), (200, 0, 12.0)])
def test_masks_are_filled_beside_the_forward_pass(structured, drafts, expected_ms, fast_forward):   # example F1
    latency = engine.Linear(engine_prices(12_000.0))
    parameters = grammar_parameters(structured, drafts)
    for go_around in Vllm.around(parameters, None):
        latency = go_around(latency)
    scenario = load({"options": {"num_blocks": 2000, "max_num_seqs": 256, "max_num_batched_tokens": 8192},
                     "step_time": TEN_MS, "requests": [
                         {"id": f"r{i}", "arrival": 0, "prompt": [["uniq", 16]], "output_len": 40,
                          "grammar": {"compile": 0}} for i in range(structured)]})
    recording = engine.record(scenario.workload, parameters, latency, fast_forward=fast_forward, **scenario.cache)
    decodes = recording.iterations[recording.iterations["decode_tokens"] == structured * (1 + drafts)]
    assert len(decodes) > 2
    assert np.allclose(decodes["duration_ns"] / MS, expected_ms)


def engine_prices(base_us):
    from simulator.latency.linear import LinearParameters

    return LinearParameters(base_us=base_us, per_sequence_us=0.0, per_prefill_token_us=0.0, per_context_token_us=0.0)


def grammar_parameters(structured, drafts):
    from simulator.scheduling.speculative import SpeculativeParameters
    from simulator.scheduling.vllm import VllmParameters

    speculative = SpeculativeParameters(num_tokens=drafts, acceptance=(0,)) if drafts else None
    return VllmParameters(
        max_num_seqs=256, max_num_batched_tokens=8192, speculative=speculative, async_scheduling=False,
        structured_outputs=StructuredOutputParameters(compile_ms=0.0, mask_us=50.0, cpus=16))


def test_many_masks_outlast_a_short_forward_pass():
    table = StructuredOutputParameters(compile_ms=0.0, mask_us=6000.0)
    recording = run([(0, 16, 3, {"grammar": {"compile": 0}}), (0, 16, 3, {"grammar": {"compile": 0}}), (0, 16, 3, {})],
                    structured_outputs=table)
    assert durations_ms(recording) == [12, 12, 12]


def test_equal_grammars_compile_once_and_workers_take_turns():
    # 4 CPUs: two workers; four grammars of 30 ms are ready at 30, 30, 60 and 60, whoever asks a second time waits not.
    table = StructuredOutputParameters(compile_ms=30.0, mask_us=0.0, cpus=4)
    requests = [(0, 16, 1, {"grammar": {"compile": 0}}) for _ in range(4)]
    assert ms(run(requests, structured_outputs=table), "scheduled_ns") == [30, 30, 60, 60]


def test_requests_whose_grammar_fails_end_as_failed_and_others_go_on():
    table = StructuredOutputParameters(compile_ms=30.0, mask_us=0.0, failing=("r0",))
    requests = [(0, 16, 1, {"grammar": {"compile": 0}}) for _ in range(2)]
    recording = run(requests, structured_outputs=table)
    assert recording.requests["status"].tolist() == [7, 3]
    assert ms(recording, "completed_ns")[1] == 40
