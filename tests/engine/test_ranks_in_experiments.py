"""Data-parallel ranks as experiments have them: two routers in a row, columns, and what an iteration costs."""
import json
from itertools import pairwise

import numpy as np
import pytest

import simulator
from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model, load_node_with
from simulator.domain.parallelism import Parallelism
from simulator.errors import InputErrors
from simulator.latency.blis.trained_physics import TrainedPhysics
from simulator.latency.gathering import padding_mode
from simulator.latency.linear import Linear, LinearParameters
from simulator.latency.roofline.model import Roofline

# Iterations of 5 ms, 10 us a sequence, 20 us a prompt token, 0.05 us a token of context (../shared/specs, 1.12)
EXPERIMENT = """
topology = {data_parallel = %(ranks)d, replicas = %(replicas)d}
engine = {num_gpu_blocks = 1000, max_model_len = 4000, async_scheduling = false%(engine)s}
workload = {type = "trace", path = "trace.csv"}
latency = {backend = "linear"}
output = {token_times = true}
%(more)s
"""


def run(folder, requests, *, ranks, replicas=1, engine="", tables="", more="", backend="linear"):
    """Serve requests, each (arrival in s, prompt tokens, outputs)."""
    rows = ["arrived_at,num_prefill_tokens,num_decode_tokens", *(",".join(map(str, each)) for each in requests)]
    (folder / "trace.csv").write_text("\n".join(rows) + "\n")
    settings = {"ranks": ranks, "replicas": replicas, "engine": (engine and f", data_parallel = {{{engine}}}") + tables,
                "more": more}
    (folder / "e.toml").write_text((EXPERIMENT % settings).replace('backend = "linear"', f'backend = "{backend}"'))
    return simulator.run(folder / "e.toml", out=folder / "out", overwrite=True)


def test_example_d3_a_step_takes_as_long_as_that_of_the_slowest_rank():
    # Rank 0 decodes four requests with 1000 tokens each: 5 + 0.04 + 0.2 ms; rank 1 computes a prompt of 500: 5 + 0.01 +
    # 10 ms; rank 2 executes a dummy batch: one token of a decoding request.
    model = Linear(LinearParameters())
    model.set_host(0.0, 0.0)

    assert model.predict_step_ns([((), [1000] * 4)], 3) == 5_240_000
    assert model.predict_step_ns([((), [1000] * 4), ([(500, 0)], ())], 3) == 15_010_000
    assert model.predict_step_ns([((), [1])], 3) == 5_010_050


def test_example_d3_a_rank_that_is_idle_in_a_step_has_no_row(tmp_path):
    rows = run(tmp_path, [(0, 1000, 20), (0, 500, 1)], ranks=3, engine='load_balancing = "external"').iterations
    first = rows[rows["start_ns"] == 0]

    assert first["rank"].tolist() == [0, 1]
    assert first["duration_ns"].tolist() == [25_010_000] * 2            # rank 1 alone: 15.01 ms
    assert set(rows["rank"].tolist()) == {0, 1}


@pytest.mark.parametrize(("tokens", "mode"), [
    ([3, 17, 1, 9], ("SUM_LEN", 30)), ([10, 17, 12, 9], ("MAX_LEN", 68))])
def test_example_d2_padding_of_sglang(tokens, mode):
    assert padding_mode(tokens) == mode
    assert padding_mode(tokens, has_prompts=True) == ("SUM_LEN", sum(tokens))


def test_internal_balancing_is_two_choices_and_external_one(tmp_path):
    # Round robin over two replicas, then the shortest queue of two ranks: 0 and 2, then 1 and 3.
    requests = [(0.001 * i, 100, 50) for i in range(4)]
    internal = run(tmp_path, requests, ranks=2, replicas=2).requests
    external = run(tmp_path, requests, ranks=2, replicas=2, engine='load_balancing = "external"').requests

    assert (internal["replica"].tolist(), internal["rank"].tolist()) == ([0, 2, 1, 3], [0, 0, 1, 1])
    assert (external["replica"].tolist(), external["rank"].tolist()) == ([0, 1, 2, 3], [0, 1, 0, 1])


def test_any_router_may_come_before_the_ranks(tmp_path):
    # The least loaded replica: the first has one more request in flight, whatever its ranks are.
    requests = [(0, 100, 400), (0.001, 100, 400), (0.002, 100, 400), (0.003, 100, 400)]
    result = run(tmp_path, requests, ranks=2, replicas=2, more='cluster.routing.policy = "least_loaded"')

    assert sorted(result.requests["replica"].tolist()) == [0, 1, 2, 3]


def test_second_choice_goes_by_what_ranks_reported_some_time_ago(tmp_path):
    # With reports of 10 s ago every rank looks idle but for what the front end has in flight itself
    requests = [(0.004 * i, 60 + 500 * (i % 3), 1 + 7 * (i % 5)) for i in range(120)]
    places = [run(tmp_path, requests, ranks=4, engine=f"stats_interval_s = {age}").requests["rank"].tolist()
              for age in (0.0, 10.0)]

    assert places[0] != places[1]


def test_summary_lists_the_ranks_of_each_replica(tmp_path):
    result = run(tmp_path, [(0, 100, 5)] * 6, ranks=3, replicas=2)
    replicas = json.loads((tmp_path / "out" / "summary.json").read_text())["replicas"]

    assert [each["requests"] for each in replicas] == [3, 3]
    assert [[rank["rank"] for rank in each["ranks"]] for each in replicas] == [[0, 1, 2]] * 2
    assert result.replicas["rank"].tolist() == [0, 1, 2] * 2


def test_without_ranks_the_column_is_zero_and_requests_have_none(tmp_path):
    result = run(tmp_path, [(0, 100, 5)] * 4, ranks=1, replicas=2)

    assert set(result.iterations["rank"].tolist()) == {0}
    assert "rank" not in result.requests.dtype.names


def test_ranks_of_a_dense_model_are_engines_by_themselves(tmp_path):
    model = '[model]\nname = "llama-3.1-8b"\n[hardware]\nname = "h100-sxm-80gb"\n'
    result = run(tmp_path, [(0, 100, 5), (0, 3000, 2)], ranks=2, more=model)
    first, second = (result.iterations[result.iterations["rank"] == rank] for rank in (0, 1))

    assert first["duration_ns"][0] < second["duration_ns"][0]
    with pytest.raises(InputErrors, match=r"lockstep: expected false, found true: .* has no experts"):
        run(tmp_path, [(0, 100, 5)], ranks=2, engine="lockstep = true", more=model)


@pytest.mark.parametrize("backend", [Roofline, TrainedPhysics])
def test_a_step_of_equal_batches_costs_what_the_replica_does_with_all_of_them(backend):
    # Backends price the batch of a whole replica, spread over its ranks; here each rank has its part.
    accelerator = load_accelerator("h200-sxm-141gb")
    deployment = Deployment(
        model=load_model("deepseek-v3"), accelerator=accelerator,
        parallelism=Parallelism(data_parallel=8, expert_parallel=8),
        node=load_node_with(accelerator, "hgx-h200", "node"))
    model = backend(backend.Parameters(), deployment)
    model.set_host(0.0, 0.0)
    together = model.predict_iteration_ns(decode=[1000] * 64)
    apart = model.predict_step_ns([((), [1000] * 8)] * 8, 8)
    alone = model.predict_step_ns([((), [1000] * 8)], 8)

    if backend is Roofline:             # the other has a price for each sequence that a scheduler knows
        assert apart == pytest.approx(together, abs=2)
    assert alone <= apart


@pytest.mark.parametrize("backend", ["roofline", "trained_physics"])
def test_sglang_pads_what_experts_get(tmp_path, backend):
    parts = ('[model]\nname = "qwen3-30b-a3b"\n[hardware]\nname = "h100-sxm-80gb"\n')
    text = EXPERIMENT.replace('backend = "linear"', f'backend = "{backend}"')
    durations = []
    for padding in ("none", "sglang"):
        rows = ["arrived_at,num_prefill_tokens,num_decode_tokens", *["0,1000,20"] * 60]
        (tmp_path / "trace.csv").write_text("\n".join(rows) + "\n")
        settings = {"ranks": 8, "replicas": 1, "engine": f', data_parallel = {{padding = "{padding}"}}', "more": parts}
        (tmp_path / "e.toml").write_text(text % settings)
        result = simulator.run(tmp_path / "e.toml", out=tmp_path / padding)
        durations.append(result.iterations["duration_ns"])

    assert len(durations[0]) == len(durations[1])
    assert (durations[1] >= durations[0]).all()
    assert (durations[1] > durations[0]).any()


@pytest.mark.parametrize("seed", range(6))
def test_ranks_of_priced_experts_are_the_same_with_fast_forward_and_without(tmp_path, seed):
    rng = np.random.default_rng(seed)
    requests = sorted((round(float(rng.uniform(0, 0.5)), 6), int(rng.integers(1, 900)), int(rng.integers(1, 60)))
                      for _ in range(40))
    ranks, backend = int(rng.integers(2, 5)), ("trained_physics", "roofline")[seed // 2 % 2]
    padding = ("none", "sglang")[seed % 2]
    parts = '[model]\nname = "qwen3-30b-a3b"\n[hardware]\nname = "h100-sxm-80gb"\n'
    on, off = (run(tmp_path, requests, ranks=ranks, engine=f'padding = "{padding}"', backend=backend,
                   tables=f", fast_forward = {each}", more=parts).requests for each in ("true", "false"))
    assert (on["completed_ns"] == off["completed_ns"]).all()


def test_rows_of_ranks_in_lock_step_begin_and_end_together(tmp_path):
    generator = np.random.default_rng(1)
    requests = sorted((round(float(generator.uniform(0, 1)), 6), int(generator.integers(1, 900)),
                       int(generator.integers(1, 60))) for _ in range(80))
    rows = run(tmp_path, requests, ranks=4).iterations
    spans = sorted(set(zip(rows["start_ns"].tolist(), (rows["start_ns"] + rows["duration_ns"]).tolist(), strict=True)))

    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


@pytest.mark.parametrize(("padding", "padded"), [("vllm", [24, 24, 24]), ("none", [4, 24, 16])])
def test_example_d1_ranks_run_the_graph_of_the_largest_batch(tmp_path, padding, padded):
    # Requests go to the four ranks in turn: 3, 17, none and 9 decode in the end; alone these are padded otherwise.
    counts = (3, 17, 0, 9)
    requests = [(0.001 * i, 16, 80 if i // 4 < counts[i % 4] else 1) for i in range(4 * 17)]
    found = run(tmp_path, requests, ranks=4, engine=f'load_balancing = "external", padding = "{padding}"',
                tables=', cuda_graphs = {mode = "full"}', more='cluster.routing.policy = "round_robin"').iterations
    decodes = found[(found["prefill_tokens"] == 0) & (found["start_ns"] > 150_000_000)]
    last = decodes[decodes["start_ns"] == decodes["start_ns"].min()]
    assert last["sequences"].tolist() == [3, 17, 9]
    assert last["padded_tokens"].tolist() == padded


def test_hybrid_routes_to_a_node_and_then_to_a_rank_there(tmp_path):
    requests = [(0.01 * i, 16, 4) for i in range(12)]
    rows = ["arrived_at,num_prefill_tokens,num_decode_tokens", *(",".join(map(str, each)) for each in requests)]
    (tmp_path / "trace.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "e.toml").write_text(EXPERIMENT % {
        "ranks": 16, "replicas": 1, "engine": ', data_parallel = {load_balancing = "hybrid"}',
        "more": 'cluster.routing.policy = "round_robin"'})
    found = simulator.run(tmp_path / "e.toml", out=tmp_path / "out", overrides={
        "topology.node": "hgx-h200", "hardware.name": "h200-sxm-141gb"}).requests

    assert (found["rank"] // 8).tolist() == [i % 2 for i in range(12)]
    assert len(set(found["rank"].tolist())) > 2
