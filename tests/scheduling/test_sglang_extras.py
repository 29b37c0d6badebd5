"""LoRA adapters, grammars and sizes of graphs under SGLang, by timelines worked out by hand: batches of 10 ms."""
import pytest
from msgspec.structs import replace

from simulator.domain.facts import load_accelerator, load_model
from simulator.scheduling.sglang import Sglang
from simulator.scheduling.sglang_arguments import SglangParameters
from simulator.scheduling.sglang_overheads import graph_sizes
from simulator.scheduling.sglang_tables import SglangGrammars, SglangLora
from support import recording, sglang
from support.small_models import deploy

MS = 1_000_000
TEN_MS = {"base": 0.01, "per_token": 0.0, "per_req": 0.0}
COPIES = {"adapter_mb": 50.0, "h2d_gb_per_s": 10.0}         # 5 ms each
pytestmark = pytest.mark.parametrize("fast_forward", [True, False])


def run(requests, fast_forward, options=None, grammars=None, **tables):
    """Return the recording of requests (arrival in ms, outputs, adapter); grammars: code of each request's grammar."""
    requests = [{"id": f"r{i}", "arrival": arrival / 1e3, "prompt": [["uniq", 16]], "output_len": outputs, "lora": lora}
                for i, (arrival, outputs, lora) in enumerate(requests)]
    case = sglang.load({"options": options or {}, "step_time": TEN_MS, "requests": requests}, fast_forward)
    if grammars is not None:
        case.workload.labels["grammar"] = [str(code) for code in range(max(grammars) + 1)]
        case.workload.demands["grammar"] = grammars
    pool = case.plan.pools[0]
    parameters, latency = replace(pool.parameters, **tables), pool.latency
    for go_around in Sglang.around(parameters, None):
        latency = go_around(latency)
    return recording.record(case.workload, replace(case.plan, pools=(replace(
        pool, parameters=parameters, latency=latency),)))


def ms(recorded, name):
    return (recorded.requests[name] / MS).tolist()


def durations_ms(recorded):
    return (recorded.iterations["duration_ns"] / MS).tolist()


# ---- adapters

def test_requests_without_an_adapter_take_a_slot(fast_forward):
    table = SglangLora(max_loras_per_batch=2, step_factor=1.0, **COPIES)
    # one of two slots is that of requests without: 1 and 2 take turns in the other
    alone = [(0, 1, 1), (100, 1, 2), (200, 1, 1)]
    assert durations_ms(run(alone, fast_forward, lora=table)) == [15, 15, 15]
    # 1 and 2 in one batch take both; then a request without an adapter takes that of 1, the least recently used
    after = [(300, 1, 1), (300, 1, 2), (400, 1, 2), (500, 1, None), (600, 1, 2), (700, 1, 1)]
    assert durations_ms(run(alone + after, fast_forward, lora=table)) == [15, 15, 15, 15, 10, 10, 10, 15]


def test_kernels_of_adapters_run_in_each_batch(fast_forward):
    table = SglangLora(step_factor=1.2, per_adapter_us=1000.0)
    recorded = run([(0, 2, None), (100, 2, 1)], fast_forward, lora=table)
    assert durations_ms(recorded) == [12, 12, 13, 13]


def test_later_requests_overtake_one_without_a_place_for_its_adapter(fast_forward):
    # r1 has no adapter, which counts as one; r2 has that of r0, and its prompt goes before the decodes of r0
    table = SglangLora(max_loras_per_batch=1, step_factor=1.0)
    recorded = run([(0, 3, 1), (5, 1, None), (6, 1, 1)], fast_forward, lora=table)
    assert ms(recorded, "scheduled_ns") == [0, 40, 10]
    assert ms(recorded, "completed_ns") == [40, 50, 20]


# ---- grammars

def test_a_grammar_is_known_when_a_pass_has_seen_its_end(fast_forward):
    # r1 compiles the grammar of r0 again, from 10 to 40; r2 comes when it is known, and is ahead of r1
    table = SglangGrammars(compile_ms=30.0, mask_us=0.0)
    recorded = run([(0, 1, None), (10, 1, None), (35, 1, None)], fast_forward, {"prefill_max_requests": 1},
                   [0, 0, 0], structured_outputs=table)
    assert ms(recorded, "scheduled_ns") == [30, 50, 40]


def test_a_pass_reads_a_request_before_its_grammar_compiles(fast_forward):
    table = SglangGrammars(compile_ms=30.0, mask_us=0.0)
    recorded = run([(0, 1, None), (4, 1, None)], fast_forward, grammars=[-1, 0], structured_outputs=table)
    assert ms(recorded, "scheduled_ns") == [0, 40]


@pytest.mark.parametrize(("arrival", "scheduled"), [(4, 20), (14, 40)])
def test_a_request_waits_for_a_pass_that_reads_before_its_grammar_compiles(fast_forward, arrival, scheduled):
    # behind prompts the pass at 10 reads, behind decodes the second one: at 30
    table = SglangGrammars(compile_ms=5.0, mask_us=0.0)
    recorded = run([(0, 6, None), (arrival, 2, None)], fast_forward, {"scheduler_recv_interval": 2}, [-1, 0],
                   structured_outputs=table)
    assert ms(recorded, "scheduled_ns") == [0, scheduled]
    assert recorded.requests["output_tokens"].tolist() == [6, 2]


def test_threads_take_turns(fast_forward):
    # one CPU: five threads
    table = SglangGrammars(compile_ms=30.0, mask_us=0.0, cpus=1)
    recorded = run([(0, 1, None)] * 6, fast_forward, grammars=[*range(6)], structured_outputs=table)
    assert ms(recorded, "scheduled_ns") == [30] * 5 + [60]


def test_no_grammar_is_looked_for_in_passes_without_prompts(fast_forward):
    # r1 could be admitted at 20; passes for two decodes follow each batch with prompts
    table = SglangGrammars(compile_ms=15.0, mask_us=0.0)
    recorded = run([(0, 9, None), (1, 1, None)], fast_forward, {"prefill_decode_interval": 3}, [-1, 0],
                   structured_outputs=table)
    assert ms(recorded, "scheduled_ns") == [0, 40]


def test_a_request_with_a_failing_grammar_leaves(fast_forward):
    table = SglangGrammars(compile_ms=30.0, mask_us=0.0, failing=("0",))
    recorded = run([(0, 1, None), (0, 1, None), (90, 1, None)], fast_forward, grammars=[0, 1, 0],
                   structured_outputs=table)
    assert recorded.requests["status"].tolist() == [7, 3, 7]
    assert ms(recorded, "completed_ns")[1] == 40


@pytest.mark.parametrize("overlaps", [True, False])
def test_masks_outlast_a_short_batch(fast_forward, overlaps):
    table = SglangGrammars(compile_ms=0.0, mask_us=6000.0)
    recorded = run([(0, 3, None)] * 3, fast_forward, {"disable_overlap_schedule": not overlaps}, [0, 1, -1],
                   structured_outputs=table)
    assert durations_ms(recorded) == [12, 12, 12]


def test_requests_that_wait_for_grammars_are_not_in_the_queue(fast_forward):
    # a limit of one: r1 waits for its grammar and does not count; r2 fills the queue, r3 is refused
    table = SglangGrammars(compile_ms=50.0, mask_us=0.0)
    recorded = run([(0, 3, None), (1, 1, None), (2, 1, None), (3, 1, None)], fast_forward, {
        "max_queued_requests": 1, "max_running_requests": 1}, [-1, 0, -1, -1], structured_outputs=table)
    assert ms(recorded, "scheduled_ns")[:3] == [0, 60, 30]
    assert recorded.requests["status"].tolist() == [3, 3, 3, 4]


# ---- graphs

def test_decode_graphs_reach_to_the_running_requests(fast_forward):
    card = deploy(load_model("llama-3.1-8b"), accelerator=load_accelerator("h100-sxm-80gb"))
    few, many = SglangParameters(max_running_requests=10), SglangParameters(max_running_requests=2048)
    assert graph_sizes(few, card) == (1, 2, 4, 8, 10)
    assert graph_sizes(many, card)[-1] == 256
    assert graph_sizes(few, None) == ()
    assert graph_sizes(replace(many, cuda_graph_max_bs_decode=6), None) == (1, 2, 4, 6)
    assert graph_sizes(replace(many, cuda_graph_bs_decode=(7, 3)), card) == (3, 7)
    assert graph_sizes(replace(few, cuda_graph_bs_decode=(3, 64)), card) == (3, 10)
