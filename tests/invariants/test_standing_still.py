"""Batches of prompts alone: the group stands still, and whatever happens meanwhile is as if each had been visited."""
from dataclasses import replace

import numpy as np
import pytest

from invariants.test_invariants import assert_identical, samples_of
from simulator.domain import records
from simulator.domain.failures import Failure
from simulator.latency.linear import Linear, LinearParameters
from simulator.registry import load as load_policy
from support import upkeep
from support.engine import record
from support.migration import serve as serve_moving
from support.scenario import load
from support.workloads import plain_workload

MS = 1_000_000
TEN_MS = {"base_us": 10_000.0, "per_sequence_us": 0.0, "per_prefill_token_us": 0.0, "per_context_token_us": 0.0}
KEYS = {"vllm_v0": {}, "lightllm": {"max_waiting_iters": 1}, "sglang": {"disable_overlap_schedule": True},
        "sglang, overlap": {}}
ARRIVALS_MS, OUTPUTS = (0, 0, 25, 35), (12, 8, 6, 4)
every_scheduler = pytest.mark.parametrize("name", KEYS)
every_instant = pytest.mark.parametrize("half_ms", range(3, 160, 5))


def options_of(name, **keys):
    scheduler = load_policy("scheduler", name.partition(",")[0])
    return {"scheduler": scheduler, "parameters": scheduler.Parameters(**(KEYS[name] | keys)), "num_gpu_blocks": 1000,
            "block_size": 1 if name == "lightllm" else 16, "max_model_len": 200}


def workload_of(deadlines=(), outputs=OUTPUTS):
    """Return four requests, of which the third and the fourth come while the others decode.

    deadlines : [(row, ns)].
    """
    workload = plain_workload(np.array(ARRIVALS_MS) * MS, [10] * 4, outputs)
    for row, deadline_ns in deadlines:
        workload.demands["deadline_ns"][row] = deadline_ns
    return workload


def run(name, *, fast_forward=True, deadlines=(), outputs=OUTPUTS, horizon_ns=-1, keys=(), **options):
    setup = options_of(name, **dict(keys)) | options | ({"horizon_ns": horizon_ns} if horizon_ns >= 0 else {})
    return record(workload_of(deadlines, outputs), latency=Linear(LinearParameters(**TEN_MS)), details=False,
                  fast_forward=fast_forward, **setup)


def assert_same_slowly(name, **options):
    one = run(name, **options)
    assert_identical(one, run(name, fast_forward=False, **options))
    return one


@pytest.mark.parametrize("name", ["vllm_v0", "sglang"])
def test_the_next_token_of_members_is_late_by_all_batches_of_prompts(name):
    # Prompts of the first two end at 10 ms, decodes at 20 and 30 ms; the third's prompt at 40, the fourth's at 50 ms,
    # and all decode from then on, at 60, 70, ... ms
    recording = run(name)

    times_ms = {row: [time_ns // MS for time_ns in times] for row, times in recording.token_times.items()}
    assert times_ms == {0: [10, 20, 30, *range(60, 150, 10)], 1: [10, 20, 30, *range(60, 110, 10)],
                        2: [40, *range(60, 110, 10)], 3: [50, 60, 70, 80]}
    assert samples_of(recording) == {10 * MS: (2 + 8) + (2 + 4) + 4 + 3, 20 * MS: 1, 30 * MS: 2}


def test_where_batches_overlap_a_prompt_comes_one_batch_later():
    # The third comes at 25 ms, while the decodes of 20 to 30 ms execute and those of 30 to 40 ms were chosen
    recording = run("sglang, overlap")

    times_ms = {row: [time_ns // MS for time_ns in times] for row, times in recording.token_times.items()}
    assert times_ms == {0: [10, 20, 30, 40, *range(70, 150, 10)], 1: [10, 20, 30, 40, *range(70, 110, 10)],
                        2: [50, *range(70, 120, 10)], 3: [60, 70, 80, 90]}
    assert samples_of(recording) == {10 * MS: 11 + 7 - 2 + 4 + 3, 20 * MS: 1, 30 * MS: 2}


@every_scheduler
@pytest.mark.parametrize("outputs", [(1, 1, 1, 1), (4, 3, 1, 1), (4, 4, 6, 1), (3, 3, 2, 2), (30, 4, 1, 9)])
def test_who_is_complete_with_the_prompt_or_with_the_turn_before_it_leaves(name, outputs):
    recording = assert_same_slowly(name, outputs=outputs)
    assert recording.requests["status"].tolist() == [records.COMPLETED] * 4


@every_scheduler
@pytest.mark.parametrize("row", range(4))
@every_instant
def test_who_gives_up_meanwhile_keeps_its_tokens(name, row, half_ms):
    assert_same_slowly(name, deadlines=[(row, half_ms * MS // 2)])


@every_scheduler
@every_instant
def test_when_the_clock_stops_everybody_has_its_tokens(name, half_ms):
    assert_same_slowly(name, horizon_ns=half_ms * MS // 2)


@pytest.mark.parametrize("num_blocks", range(3, 9))
def test_who_restarts_when_all_go_on_is_late_by_what_passed(num_blocks):
    # 10 tokens of each prompt take one block of 16, and a second one from the seventh output on
    recording = assert_same_slowly("vllm_v0", num_gpu_blocks=num_blocks, keys={"watermark_blocks_fraction": 0.0})
    assert (recording.requests["preemptions"].sum() > 0) == (num_blocks in (3, 4, 5)), recording.requests["preemptions"]


@every_scheduler
@pytest.mark.parametrize("kind", ["stop", "link"])
@every_instant
def test_a_replica_that_fails_meanwhile_loses_nothing_but_time(name, kind, half_ms):
    def serve(**more):
        described = [{"id": str(row), "arrival": ms / 1e3, "prompt": [["uniq", 10]], "output_len": tokens}
                     for row, (ms, tokens) in enumerate(zip(ARRIVALS_MS, OUTPUTS, strict=True))]
        options = options_of(name)
        scenario = replace(load({"options": {}, "prices": TEN_MS, "requests": described}),
                           parameters=options.pop("parameters"))
        return upkeep.run(scenario, failures=[Failure(kind=kind, which=0, at_s=half_ms / 2e3, duration_s=0.0033)],
                          **options, **more)

    one, other = serve(), serve(fast_forward=False)
    np.testing.assert_array_equal(one.requests, other.requests)
    assert (one.token_times, one.gaps) == (other.token_times, other.gaps)


@pytest.mark.parametrize("name", ["vllm_v0", "lightllm", "sglang", "sglang, overlap"])
@pytest.mark.parametrize("row", [0, 2])
@every_instant
def test_who_moves_meanwhile_has_the_same_gaps(name, row, half_ms):
    def serve(**more):
        return serve_moving(workload_of(), [(half_ms / 2, row, 1)], replicas=2, front=None, **options_of(name), **more)

    one, other = serve(), serve(fast_forward=False)
    np.testing.assert_array_equal(one.requests, other.requests)
    assert (one.token_ms, one.gaps, one.counts) == (other.token_ms, other.gaps, other.counts)
