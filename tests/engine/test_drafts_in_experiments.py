"""What a run says of its drafts, whatever else goes on."""
import itertools

import pytest

import simulator

BASE = """
latency = {backend = "linear", base_us = 1000.0, per_sequence_us = 1.0, per_context_token_us = 0.5}
[engine]
num_gpu_blocks = 400
max_model_len = 1000
max_num_seqs = 16
[engine.speculative]
num_tokens = 3
acceptance = {rates = [0.7, 0.5]}
[workload]
type = "synthetic"
num_requests = 200
prompt_tokens = {distribution = "uniform", min = 20, max = 300}
output_tokens = {distribution = "uniform", min = 2, max = 120}
arrival = {process = "poisson", rate_per_s = 300.0}
"""
SPECULATIVE = "[engine.speculative]\nnum_tokens = 3\nacceptance = {rates = [0.7, 0.5]}\n"
TIGHT = {"engine__num_gpu_blocks": 70, "engine__max_model_len": 500, "engine__scheduler_reserve_full_isl": False}
RANKS = {"topology__data_parallel": 2, "topology__replicas": 2}
FAILING = {"topology__replicas": 2, "failures": [
    {"kind": "stop", "target": "replica", "which": "each", "mtbf_s": 0.2, "mttr_s": 0.05}]}
SYNC, ASYNC = ({"engine__async_scheduling": is_async} for is_async in (False, True))


@pytest.fixture
def run(tmp_path):
    """Return a function that runs a text with settings."""
    numbers = itertools.count()

    def run(threads=1, text=BASE, **settings):
        (tmp_path / "e.toml").write_text(text)
        return simulator.run(tmp_path / "e.toml", out=tmp_path / f"out{next(numbers)}", threads=threads,
                             overrides={key.replace("__", "."): value for key, value in settings.items()})

    return run


@pytest.mark.parametrize("settings", [
    SYNC, ASYNC, SYNC | TIGHT, ASYNC | TIGHT, SYNC | RANKS, SYNC | FAILING, ASYNC | {"topology__pipeline_parallel": 2},
    SYNC | {"horizon_s": 0.3}, SYNC | {"topology__replicas": 3}],
    ids=["plain", "async", "preemptions", "async, preemptions", "ranks", "failures", "stages", "horizon", "replicas"])
def test_the_counts_are_those_of_a_run_visited_one_by_one(run, settings):
    fast, slow = (run(engine__fast_forward=is_fast, **settings).summary for is_fast in (True, False))

    told = fast["speculation"]
    assert told == slow["speculation"]
    assert told["num_draft_tokens"] > 1000
    assert 0.3 < told["acceptance_rate"] < 0.6          # 0.7, 0.35 and 0.175 are accepted: 0.41
    assert fast["preemptions"] > 0 or "engine__num_gpu_blocks" not in settings


def test_threads_change_no_count(run):
    one, several = (run(threads, topology__replicas=4, **SYNC).summary["speculation"] for threads in (1, 4))
    assert one == several


@pytest.mark.parametrize("settings", [SYNC, ASYNC, SYNC | TIGHT], ids=["plain", "async", "preemptions"])
def test_tokens_are_those_that_steps_brought(run, settings):
    # Each request gets a token of its prompt, and 1 + accepted of each step; of the last one no more than it lacks.
    # What admissions after a preemption bring, one token each, no step has brought.
    result = run(**settings)
    told, requests = result.summary["speculation"], result.requests
    brought = len(requests) + told["num_drafts"] + told["num_accepted_tokens"]
    outputs, preemptions = int(requests["output_tokens"].sum()), result.summary["preemptions"]
    assert brought - 3 * len(requests) <= outputs <= brought + preemptions


def test_a_constant_acceptance_by_hand(run):
    # Ten requests of 9 tokens: 1 of the prompt, then steps of 3, 3 and 2 more: three steps, two accepted in each.
    told = run(engine__speculative__acceptance=[2], workload__num_requests=10, **SYNC, workload__output_tokens={
        "distribution": "constant", "tokens": 9}).summary["speculation"]
    assert told == {
        "num_drafts": 30, "num_draft_tokens": 90, "num_accepted_tokens": 60, "acceptance_rate": 2 / 3,
        "mean_acceptance_length": 3.0, "num_accepted_tokens_per_pos": [30, 30, 0],
        "per_position_acceptance_rates": [1.0, 1.0, 0.0]}


def test_drafts_cut_at_max_model_len_are_none(run):
    # A text of 20 tokens may have 24: at most 24 - 1 - 21 = 2 drafts fit behind its first token, then none.
    settings = {"engine__max_model_len": 24, "engine__speculative__acceptance": [3], "workload__num_requests": 1,
                "workload__prompt_tokens": {"distribution": "constant", "tokens": 20},
                "workload__output_tokens": {"distribution": "constant", "tokens": 30}}
    told = run(**settings, **SYNC).summary["speculation"]
    assert (told["num_drafts"], told["num_draft_tokens"], told["num_accepted_tokens"]) == (1, 2, 2)


def test_without_speculation_nothing_is_said(run):
    assert "speculation" in run(workload__num_requests=3).summary
    assert "speculation" not in run(workload__num_requests=3, text=BASE.replace(SPECULATIVE, "")).summary


@pytest.mark.parametrize("version", ["0.32", "0.10"])
@pytest.mark.parametrize(("method", "cached"), [
    ("eagle", 64), ("eagle3", 64), ("mtp", 64), ("draft_model", 80), ("medusa", 80), ("ngram", 80)])
def test_drafters_that_read_hidden_states_compute_the_last_block_of_a_hit_again(tmp_path, method, cached, version):
    # Of 83 tokens 82 may be found, 5 whole blocks of 16; of hidden states there are none for what is not computed.
    (tmp_path / "trace.csv").write_text(
        "arrived_at,num_prefill_tokens,num_decode_tokens,prompt\n0,83,4,a:83\n5,83,4,a:83\n9,83,4,a:83\n")
    price = {"ngram": "", "medusa": "drafter_forward_us = 1.0\n"}.get(method, "drafter_share = 0.0\n")
    (tmp_path / "e.toml").write_text(BASE[:BASE.index("[workload]")] + (
        f'method = "{method}"\ndrafter_per_sequence_us = 0.0\n{price}[workload]\ntype = "trace"\npath = "trace.csv"\n'))
    found = simulator.run(tmp_path / "e.toml", overrides={"engine.vllm_version": version})

    assert found.requests["cached_tokens"].tolist() == [0, cached, cached]


@pytest.mark.slow
def test_a_drafter_of_the_model_beside_windows_and_a_tier(tmp_path):
    # Five prompts, each asked twice, in blocks for about two: those of the second round come from the host. Of 1000
    # tokens 62 blocks are found, and the drafter's group leaves one: 61. By default vLLM keeps the window of the last
    # alone, and then nothing is found.
    rows = [f"{2 * number},1000,5,s{number % 5}:1000" for number in range(10)]
    (tmp_path / "t.csv").write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens,prompt", *rows]))
    (tmp_path / "a.toml").write_text("""
model = {name = "gpt-oss-20b"}
hardware = {name = "h100-sxm-80gb"}
kv_tiers = {protocol = "vllm_offload", cpu_gib = 4}
workload = {type = "trace", path = "t.csv"}
[engine]
num_gpu_blocks = 160
max_model_len = 1100
max_num_batched_tokens = 512
prefix_cache_retention_interval = "dense"
speculative = {method = "eagle3", num_tokens = 3, acceptance = [2, 1, 3], drafter_share = 0.05}
""")
    fast, stepwise = (simulator.run(tmp_path / "a.toml", {"engine.fast_forward": each}) for each in (True, False))
    host, = fast.summary["kv_tiers"]

    assert host["loads"] == 5 and fast.requests["cached_tokens"].tolist() == [0] * 5 + [61 * 16] * 5
    assert fast.requests.tobytes() == stepwise.requests.tobytes()
    assert fast.summary == stepwise.summary
    by_default = simulator.run(tmp_path / "a.toml", {"engine.prefix_cache_retention_interval": 0})
    assert not by_default.requests["cached_tokens"].any()
