"""Ranks in lock step together with closed loops, hand-overs, failures and autoscaling."""
import itertools

import numpy as np
import pytest

import simulator
from simulator.domain import records
from simulator.errors import InputErrors

# Iterations of 5 ms, 10 us a sequence, 20 us a prompt token, 0.05 us a token of context (../shared/specs, 1.12)
BASE = """
latency = {backend = "linear"}
engine = {num_gpu_blocks = 1000, max_model_len = 4000, async_scheduling = false}
output = {token_times = true}
"""
RANKS = "topology = {data_parallel = %d, replicas = %d}\n"
DRAWN = """
[workload]
type = "synthetic"
num_requests = %d
prompt_tokens = {distribution = "uniform", min = 100, max = 900}
output_tokens = {distribution = "uniform", min = 5, max = 60}
"""
CLOSED = '[workload.load]\nmode = "concurrency"\nconcurrency = 13\n'
OPEN = "arrival = {process = \"poisson\", rate_per_s = 60}\n"
APART = """
kv_transfer = {protocol = "%s", kv_bytes_per_token = 131072, bandwidth_gb_per_s = 40}
[[pools]]
name = "p"
role = "prefill"
topology = {data_parallel = %d, replicas = 2}
[[pools]]
name = "d"
role = "decode"
topology = {data_parallel = %d, replicas = 1}
"""


@pytest.fixture
def run(tmp_path):
    """Return a function that runs a TOML text, fast-forward on unless said otherwise."""
    numbers = itertools.count()

    def run(text, **overrides):
        (tmp_path / "e.toml").write_text(text)
        return simulator.run(tmp_path / "e.toml", out=tmp_path / f"out{next(numbers)}",
                             overrides={key.replace("__", "."): value for key, value in overrides.items()})

    return run


def equal(one, other):
    """Say whether two runs had the same requests and iterations."""
    return (one.requests == other.requests).all() and (one.iterations == other.iterations).all()


def trace(folder, *requests):
    """Write a trace, each (arrival in s, prompt tokens, outputs); return the table that names it."""
    rows = ["arrived_at,num_prefill_tokens,num_decode_tokens", *(",".join(map(str, each)) for each in requests)]
    (folder / "trace.csv").write_text("\n".join(rows) + "\n")
    return '[workload]\ntype = "trace"\npath = "trace.csv"\n'


# ---- closed loops

@pytest.mark.parametrize("seed", range(4))
def test_a_closed_loop_is_the_same_visited_one_by_one(run, seed):
    text = BASE + RANKS % (4, 2) + DRAWN % 120 + CLOSED
    fast, slow = (run(text, seed=seed, engine__fast_forward=is_fast) for is_fast in (True, False))

    assert equal(fast, slow)
    assert (fast.requests["status"] == records.STATUS_NAMES.index("completed")).all()


def test_whoever_comes_because_a_step_ended_is_in_the_next(run):
    # Two clients, two ranks: each has one request at a time, and the next begins when the step ends that ended it.
    text = BASE + RANKS % (2, 1) + """
[workload]
type = "synthetic"
num_requests = 6
prompt_tokens = {distribution = "constant", value = 100}
output_tokens = {distribution = "constant", value = 3}
[workload.load]
mode = "concurrency"
concurrency = 2
"""
    requests = run(text).requests
    by_client = [requests[requests["rank"] == rank] for rank in (0, 1)]

    for mine in by_client:
        assert mine["scheduled_ns"][1:].tolist() == mine["completed_ns"][:-1].tolist()
        # prompts of both: 5 + 0.01 + 2 ms; then two steps of 5.01 ms and 0.05 us a token of context, 101 and 102
        assert (mine["completed_ns"] - mine["scheduled_ns"]).tolist() == [7_010_000 + 5_015_050 + 5_015_100] * 3


# ---- prompts computed apart

@pytest.mark.parametrize("protocol", ["nixl", "nixl_push"])
@pytest.mark.parametrize(("prefill", "decode"), [(2, 4), (1, 2), (3, 1)])
def test_hand_over_is_the_same_visited_one_by_one(run, protocol, prefill, decode):
    text = APART % (protocol, prefill, decode)
    text = BASE + text.replace("[[pools]]", DRAWN % 80 + OPEN + "[[pools]]", 1)
    fast, slow = (run(text, engine__fast_forward=is_fast) for is_fast in (True, False))

    assert equal(fast, slow)
    assert fast.summary["kv_transfer"]["count"] == 80


@pytest.mark.parametrize("order", ["decode_first", "prefill_first"])
def test_a_front_end_chooses_the_rank_when_the_request_comes_to_it(run, order):
    # Chosen when the request arrives at the gateway, a rank would look idle until prompts before it are computed.
    text = APART % ("nixl", 1, 4)
    text = BASE + text.replace("[[pools]]", DRAWN % 400 + CLOSED.replace("13", "100") + "[[pools]]", 1)
    ranks = run(text, cluster__disaggregation__stage_order=order).requests["rank"]

    assert all(np.ptp(np.bincount(ranks[first:first + 100], minlength=4)) <= 6 for first in range(0, 400, 100))


def test_ranks_execute_dummies_while_kv_is_on_its_way(run, tmp_path):
    # The prompt is computed at 5 + 0.01 + 20.48 ms and moved by 400 us + 134,217,728 B / 40 GB/s. Rank 0 of the decode
    # replica hears of it at 25.49 ms; dummies of 5.01005 ms begin, since it has an unfinished request. What has come
    # at 29.245443 it sees at the end of the first, and computes the last token of the prompt: 5.01 ms and 0.02.
    table = trace(tmp_path, (0, 1024, 2))
    requests = run(BASE + (APART % ("nixl", 1, 2)).replace("[[pools]]", table + "[[pools]]", 1)).requests

    assert requests["transfer_end_ns"][0] == 29_245_443
    assert requests["first_token_ns"][0] == 25_490_000 + 5_010_050 + 5_030_000


@pytest.mark.parametrize(("key", "value", "match"), [
    ("kv_transfer.protocol", "mooncake", 'expected "nixl" or "nixl_push" with .*, found "mooncake"'),
    ("engine.async_scheduling", True, "async_scheduling: expected false with .*, found true"),
    ("kv_transfer.noticed_at", "start", 'expected "end" with .*, found "start"')])
def test_hand_over_whose_rules_are_not_known_is_refused(run, tmp_path, key, value, match):
    table = trace(tmp_path, (0, 1024, 2))
    text = BASE + (APART % ("nixl", 1, 2)).replace("[[pools]]", table + "[[pools]]", 1)

    with pytest.raises(InputErrors, match=match):
        run(text, **{key.replace(".", "__"): value})


def test_ranks_of_dense_models_hand_over_as_engines_by_themselves(run, tmp_path):
    table = trace(tmp_path, *[(0.01 * i, 300, 5) for i in range(20)])
    parts = '[model]\nname = "llama-3.1-8b"\n[hardware]\nname = "h100-sxm-80gb"\n'
    text = BASE.replace("async_scheduling = false", "async_scheduling = true")
    text += (APART % ("mooncake", 2, 2)).replace("[[pools]]", table + parts + "[[pools]]", 1)

    assert run(text).summary["kv_transfer"]["count"] == 20


def test_ranks_that_wait_for_blocks_go_on_when_these_are_read(run, tmp_path):
    # The prefill ranks have room for one prompt each: the second of each rank waits until the first has been read.
    table = trace(tmp_path, *[(0, 1024, 2)] * 8)
    text = BASE + (APART % ("nixl", 2, 1)).replace("[[pools]]", table + "[[pools]]", 1)
    text = text.replace('name = "p"\n', 'name = "p"\nengine = {num_gpu_blocks = 80}\n')
    requests = run(text).requests
    order = np.argsort(requests["scheduled_ns"], kind="stable")

    assert (requests["status"] == records.STATUS_NAMES.index("completed")).all()
    assert requests["prefill_done_ns"].max() > requests["transfer_end_ns"][order[:4]].min()
