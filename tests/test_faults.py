"""Small experiments over features that meet, each of which once led to what no run may lead to."""
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import simulator
from simulator.domain import records

ROOT = Path(simulator.__file__).parents[1]
FAULTS = ROOT.parent / "shared" / "data" / "cases" / "faults"
pytestmark = pytest.mark.skipif(not FAULTS.exists(), reason=f"no cases at {FAULTS}")
ENDED = range(records.COMPLETED, records.FAILED + 1)


def in_folder(folder, name, **traces):
    """Copy a case, and write traces beside it; return its path."""
    for file, lines in traces.items():
        (folder / f"{file}.csv").write_text("\n".join(lines) + "\n")
    return Path(shutil.copy(FAULTS / f"{name}.toml", folder))


def run_apart(path):
    """Run an experiment in a process of its own, which is given a minute; return what it printed."""
    done = subprocess.run([sys.executable, "-m", "simulator", "run", path, "--out", path.with_suffix("")], cwd=ROOT,
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and all(line.startswith("warning: ") for line in done.stderr.splitlines()), done.stderr
    return done.stdout


@pytest.mark.parametrize(("name", "counts"), [
    ("hang_pp_grammar_deadline", "13 of 60 completed, 47 timed out"),
    ("hang_pp_grammar_link", "164 of 250 completed, 86 rejected")])
def test_who_waits_for_a_grammar_and_leaves_lets_the_stages_sleep(name, counts, tmp_path):
    assert counts in run_apart(in_folder(tmp_path, name))


def tables_of(result):
    """Return {name: array or dict} of all that a run has written down."""
    found = {"summary": result.summary}
    for name in ("requests", "iterations", "replicas", "lifecycle", "journeys", "legs", "transfers", "kv_tiers"):
        try:
            found[name] = getattr(result, name)
        except (AttributeError, LookupError):
            continue
    return found


def assert_same_both_ways(path, overrides=None):
    """Check that fast-forward changes no column of any table; return the results with it."""
    fast, slow = (simulator.run(path, (overrides or {}) | {"engine.fast_forward": way}) for way in (True, False))
    one, other = tables_of(fast), tables_of(slow)
    assert one.keys() == other.keys()
    assert one.pop("summary") == other.pop("summary")
    for name, table in one.items():
        np.testing.assert_array_equal(table, other[name], err_msg=name)
    return fast


def test_the_longest_unused_adapter_goes_whether_its_last_user_was_alone_or_not(tmp_path):
    result = assert_same_both_ways(in_folder(tmp_path, "lora_fast_forward"))

    assert result.summary["adapters"]["evictions"] > 100


# One adapter a batch, two stages of 5 ms: who uses the other adapter goes into the next batch, and waits for no answer.
TWO_ADAPTERS = ("arrived_at,num_prefill_tokens,num_decode_tokens,adapter",
                "0,10,80,a", "0.012,10,80,b", "0.023,10,5,a", "0.031,10,5,b")


def test_batches_in_other_stages_take_no_adapter_from_one(tmp_path):
    path = in_folder(tmp_path, "lora_pp_fast_forward", lp2=TWO_ADAPTERS)
    result = assert_same_both_ways(path, {"engine.vllm_version": "0.32"})       # 0.33 counts them in any stage

    requests = result.requests
    assert ((requests["first_token_ns"] - requests["arrival_ns"]) < 40e6).all()


@pytest.mark.parametrize("name", ["lora_pp_fast_forward", "lora_fast_forward"])
@pytest.mark.parametrize("overrides", [
    {"topology.pipeline_parallel": 3}, {"engine.async_scheduling": False}, {"engine.lora.max_cpu_loras": 3},
    {"engine.max_num_batched_tokens": 16, "engine.max_num_seqs": 4}, {"topology.pipeline_parallel": 2}],
    ids=["three stages", "sync", "host memory", "small batches", "two stages"])
def test_adapters_go_in_the_same_order_in_neighbours(name, overrides, tmp_path):
    assert_same_both_ways(in_folder(tmp_path, name, lp2=TWO_ADAPTERS), overrides)


def test_whose_grammar_fails_leaves_a_rank_when_the_step_ends(tmp_path):
    result = assert_same_both_ways(in_folder(tmp_path, "grammar_dp_fast_forward"))

    assert result.summary["requests"]["failed"] > 0


@pytest.mark.parametrize("overrides", [{"topology.data_parallel": 1}, {"topology": {"pipeline_parallel": 2}},
                                       {"engine.async_scheduling": False}], ids=["one rank", "two stages", "sync"])
def test_whose_grammar_fails_leaves_in_neighbours_too(overrides, tmp_path):
    assert_same_both_ways(in_folder(tmp_path, "grammar_dp_fast_forward"), overrides)


def test_the_first_state_of_a_text_gives_no_block_back(tmp_path):
    result = assert_same_both_ways(in_folder(tmp_path, "hybrid_peak_fast_forward"))

    assert result.summary["kv_cache"]["peak_used_blocks"] == 20
    assert result.iterations["used_blocks"].min() >= 0


def of_traffic(distance_ms=1.0, count=60, prompt=60, output=30):
    """Return a native trace."""
    return ("arrived_at,num_prefill_tokens,num_decode_tokens",
            *(f"{i * distance_ms / 1e3:.6f},{prompt},{output}" for i in range(count)))


@pytest.mark.parametrize("overrides", [
    {}, {"engine.scheduler": "orca"}, {"topology.pipeline_parallel": 2}, {"engine.async_scheduling": False},
    {"failures": [{"kind": "stop", "mtbf_s": 0.013, "mttr_s": 0.003}]}, {"horizon_s": 0.2}])
def test_a_pause_of_what_never_ends_is_no_busy_time(overrides, tmp_path):
    path = in_folder(tmp_path, "negative_busy_link_horizon", trace=of_traffic())

    result = assert_same_both_ways(path, overrides)

    replicas, cache = result.replicas, result.summary["kv_cache"]
    assert (replicas["busy_ns"] >= 0).all()
    assert (replicas["used_block_ns"] >= 0).all()
    assert (replicas["used_block_ns"] <= replicas["peak_used_blocks"] * replicas["busy_ns"].astype(float) + 1).all()
    assert all(pool["utilisation"] >= 0 for pool in result.summary.get("by_pool", {}).values())
    assert cache["mean_usage"] is None or cache["mean_usage"] >= 0


def test_nobody_completes_behind_the_horizon(tmp_path):
    result = assert_same_both_ways(in_folder(tmp_path, "completed_after_horizon"))

    requests, horizon_ns = result.requests, round(0.014416966356759613 * 1e9)
    has_completed = requests["status"] == records.COMPLETED
    assert requests["completed_ns"].max() <= horizon_ns
    assert requests["first_token_ns"].max() <= horizon_ns
    assert has_completed.any()
    assert (requests["status"] == records.RUNNING).any()
    assert (requests["completed_ns"][~has_completed] == -1).all()
    assert result.replicas["completed"].sum() == has_completed.sum()


@pytest.mark.parametrize("chunks", [True, False])
def test_no_text_is_longer_than_max_model_len(chunks, tmp_path):
    result = assert_same_both_ways(
        in_folder(tmp_path, "one_token_past_max_model_len"), {"engine.enable_chunked_prefill": chunks})

    requests = result.requests
    lengths = requests["prompt_tokens"] + requests["output_tokens"]
    assert lengths[requests["status"] == records.COMPLETED].max() == 128
    assert (requests["status"][requests["prompt_tokens"] == 128] == records.REJECTED).all()


def test_a_replica_that_is_switched_off_has_nothing_in_its_cache_and_routers_know(tmp_path):
    # a debug build compares what routers know with the caches, and raises
    result = assert_same_both_ways(in_folder(tmp_path, "live_caches_changed_unseen_debug"))

    assert set(result.requests["status"].tolist()) <= {*ENDED, records.NOT_SENT}


# Steps of 700 s, one at a time, and ticks of the gateway between them: 600 s without anything end a run.
SLOW_STEPS = """
engine = {max_num_seqs = 1, max_model_len = 100, num_gpu_blocks = 100}
latency = {backend = "linear", base_us = 700e6, per_sequence_us = 0, per_prefill_token_us = 0, per_context_token_us = 0}
workload = {type = "trace", path = "slow.csv"}
[cluster.gateway_queue]
dispatch = "ticks"
tick_s = %s
saturation = {detector = "concurrency", max_concurrency = 1}
"""


@pytest.mark.parametrize("tick_s", [1.0, 10.0, 650.0, 1500.0])
def test_an_iteration_that_takes_long_is_no_silence(tick_s, tmp_path):
    (tmp_path / "slow.csv").write_text("\n".join(of_traffic(distance_ms=1000.0, count=4, prompt=10, output=1)))
    (tmp_path / "experiment.toml").write_text(SLOW_STEPS % tick_s)

    result = assert_same_both_ways(tmp_path / "experiment.toml")

    assert result.summary["requests"]["completed"] == 4
    assert not result.summary["diagnosis"]
