"""Loads of experts that change while requests are served: each iteration against a model of its arrangement."""

import numpy as np
import pytest

import simulator
from simulator.assembly.latency import latency_model
from simulator.assembly.site import Site
from simulator.config.load import load_experiment
from simulator.errors import InputErrors
from simulator.experts.timeline import Arrangement, ExpertTimeline

BASE = """
name = "shifts"
[model]
name = "qwen3-30b-a3b"
[hardware]
name = "h100-sxm-80gb"
[topology]
tensor_parallel = 4
expert_parallel = 4
node = "dgx-h100"
[engine]
max_model_len = 1000
num_gpu_blocks = 2000
[engine.experts]
popularity = {distribution = "zipf", s = 1.0, drift_steps = 50}
[latency]
mfu_prefill = 0.001
mfu_decode = 0.001
[workload]
type = "trace"
"""
ONE = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,10,150\n"
SYNC = {"engine.experts.eplb": {"window_size": 20, "step_interval": 40, "use_async": False}}
ASYNC = {"engine.experts.eplb": {"window_size": 20, "step_interval": 40}}
every_way = pytest.mark.parametrize("fast", [True, False], ids=["fast", "slow"])


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "shifts.toml"
    path.write_text(BASE + f'path = "{tmp_path}/one.csv"\n')
    (tmp_path / "one.csv").write_text(ONE)
    return path


def serve(file, overrides=None, fast=True):
    return simulator.run(file, {"engine.fast_forward": fast, "output.token_times": False} | (overrides or {}))


def timed(file, overrides, arrangement_of):
    """Return the durations of a lone request's iterations, each by a model of the arrangement that it should have."""
    pool = load_experiment(file, overrides).all_pools()[0]
    site, models, found = Site(pool).check(), {}, []
    for step in range(150):
        arrangement = arrangement_of(step)
        if arrangement not in models:
            models[arrangement] = latency_model(site, arrangement=arrangement)
        batch = {"prefill": [(10, 0)]} if step == 0 else {"decode": [10 + step]}
        found.append(models[arrangement].predict_iteration_ns(**batch))
    return np.array(found), ExpertTimeline(site.deployment)


def durations(result):
    return result.iterations["duration_ns"].astype(np.int64)


@every_way
def test_popularity_drifts_at_the_very_iteration(file, fast):
    expected, _ = timed(file, {}, lambda step: Arrangement(step // 50, 0))

    result = serve(file, fast=fast)
    assert durations(result).tolist() == expected.tolist()
    assert len(set(expected[[49, 50, 99, 100]].tolist())) == 4
    assert any("loads changed 3 times in all replicas together, over 4 arrangements" in told    # after the last, too
               for told in result.summary["diagnosis"])


@every_way
def test_an_iteration_waits_for_weights_that_are_moved_while_nothing_runs(file, fast):
    # rearranged after 10, 50, 90, 130 iterations: the next one takes longer by the bytes over 450 GB/s
    changes = (10, 50, 90, 130)
    expected, line = timed(file, SYNC, lambda step: Arrangement(step // 50, sum(step >= each for each in changes)))
    stalls = [int(np.ceil(line.moved_bytes(i + 1) / 450e9 * 1e9)) for i in range(4)]
    for step, stall in zip(changes, stalls, strict=True):
        expected[step] += stall

    assert [stall > 100_000 for stall in stalls] == [True, False, True, True]     # nothing new was seen by 50
    assert np.abs(durations(serve(file, SYNC, fast)) - expected).max() <= 1     # two sums, rounded once each


@every_way
def test_an_old_placement_serves_until_weights_have_come(file, fast):
    _, line = timed(file, ASYNC, lambda step: Arrangement())
    moving_ns = [int(np.ceil(line.moved_bytes(i + 1) / 450e9 * 1e9)) for i in range(4)]
    result = serve(file, ASYNC, fast)
    starts = result.iterations["start_ns"].astype(np.int64)
    # looked at while iteration n - 1 runs, at the latest when it ends: weights come between these and as much later
    earliest = [starts[n - 1] + ns for n, ns in zip((10, 50, 90, 130), moving_ns, strict=True)]
    latest = [starts[n] + ns for n, ns in zip((10, 50, 90, 130), moving_ns, strict=True)]

    def arrangements(step):
        return {Arrangement(step // 50, sum(starts[step] >= each for each in bound)) for bound in (earliest, latest)}

    for pick in (min, max):
        expected, _ = timed(file, ASYNC, lambda step, pick=pick: pick(arrangements(step)))
        certain = np.array([len(arrangements(step)) == 1 for step in range(150)])
        assert certain.sum() > 120
        assert (durations(result)[certain] == expected[certain]).all()


@pytest.mark.ci
@pytest.mark.parametrize("overrides", [{}, SYNC, ASYNC, ASYNC | {"topology.replicas": 3}], ids=str)
def test_results_do_not_depend_on_runs_ahead(file, overrides, tmp_path):
    draw = np.random.default_rng(5)
    rows = [f"{0.01 * i:.2f},{int(draw.integers(1, 600))},{int(draw.integers(1, 120))}" for i in range(60)]
    (tmp_path / "one.csv").write_text("\n".join([ONE.split("\n")[0], *rows]) + "\n")
    overrides = overrides | {"engine.max_num_seqs": 8, "engine.num_gpu_blocks": 150}
    fast, slow, again = (serve(file, overrides, each) for each in (True, False, True))

    assert fast.requests.tobytes() == slow.requests.tobytes() == again.requests.tobytes()
    assert fast.iterations.tobytes() == slow.iterations.tobytes() == again.iterations.tobytes()
    assert fast.summary["diagnosis"] == slow.summary["diagnosis"]
    still = serve(file, overrides | {"engine.experts.popularity.drift_steps": 10**6})
    assert still.requests.tobytes() != fast.requests.tobytes()


RANKS = {"topology.tensor_parallel": 1, "topology.data_parallel": 4, "engine.async_scheduling": False}


@pytest.mark.ci
@every_way
def test_ranks_in_lock_step_change_together(file, fast):
    # One request on four ranks; the others execute dummies. When it has ended, dummies go on until the ranks agree, at
    # step 160; the next request, on another rank, is from step 160 on.
    (file.parent / "one.csv").write_text(ONE + "5,10,60\n")
    pool = load_experiment(file, RANKS).all_pools()[0]
    site, expected = Site(pool).check(), []
    for begin, length in ((0, 150), (160, 60)):
        for step in range(begin, begin + length):
            model = latency_model(site, arrangement=Arrangement(step // 50, 0))
            batch = ([(10, 0)], []) if step == begin else ([], [10 + step - begin])
            expected.append(model.predict_step_ns([batch], 4))

    result = serve(file, RANKS, fast)
    assert durations(result).tolist() == expected
    assert result.iterations["rank"].tolist() == [0] * 150 + [1] * 60


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("overrides", [SYNC, ASYNC], ids=["waits", "serves"])
def test_results_of_ranks_do_not_depend_on_runs_ahead(file, overrides, is_async, tmp_path):
    draw = np.random.default_rng(6)
    rows = [f"{0.01 * i:.2f},{int(draw.integers(1, 600))},{int(draw.integers(1, 120))}" for i in range(60)]
    (tmp_path / "one.csv").write_text("\n".join([ONE.split("\n")[0], *rows]) + "\n")
    overrides = overrides | RANKS | {"engine.max_num_seqs": 8, "engine.num_gpu_blocks": 150, "topology.replicas": 2,
                                     "engine.async_scheduling": is_async}
    fast, slow = (serve(file, overrides, each) for each in (True, False))

    assert fast.requests.tobytes() == slow.requests.tobytes()
    assert fast.iterations.tobytes() == slow.iterations.tobytes()
    assert fast.summary["diagnosis"] == slow.summary["diagnosis"]


def test_a_replica_that_stops_goes_on_counting(file):
    result = serve(file, {"failures": [{"kind": "stop", "which": 0, "at_s": 0.2, "duration_s": 0.05}],
                          "cluster.routing.retry_timeout_s": 10.0, "cluster.routing.retry_interval_s": 0.01})

    assert result.summary["requests"]["completed"] == 1


@pytest.mark.parametrize(("overrides", "message"), [
    ({"latency.backend": "linear", "latency.mfu_prefill": None}, None),
    ({"failures": [{"kind": "slow", "at_s": 1.0}]},
     r'failures\[0\]\.kind: expected "stop" or "link" or "cache" with eplb or popularity\.drift_steps'),
    ({"engine.experts.dbo": {"enabled": True}}, r"engine\.experts\.dbo\.enabled: expected false with topology"),
    ({"engine.experts.all2all_backend": "deepep_low_latency"},
     r'engine\.experts\.all2all_backend: expected none with topology\.data_parallel = 1, found "deepep_low_latency"'),
    ({"engine.experts.all2all_backend": "nixl_ep"}, "expected .*allgather_reducescatter.*nixl_ep"),
    ({"engine.experts.eplb": {"num_redundant_experts": 3}},
     "num_redundant_experts: 128 experts and 3 redundant ones cannot be spread evenly over .* = 4 ranks; expected 0"),
    ({"engine.experts.eplb": {}, "engine.experts.placement": "round_robin"},
     r'expected "linear" with \[engine\.experts\.eplb\]'),
    ({"engine.experts.eplb": {}, "topology.expert_parallel": 1},
     r"eplb: expected none with topology\.expert_parallel = 1"),
    ({"model.name": "llama-3.1-8b", "topology.expert_parallel": 1}, r"engine\.experts: expected no such table"),
    ({"engine.experts.popularity.distribution": "file"}, r'popularity: distribution = "file": s goes with "zipf"'),
    ({"engine.experts.popularity.distribution": "uniform"}, 'distribution = "uniform": s goes with "zipf"')], ids=str)
def test_what_cannot_be_is_refused(file, overrides, message):
    if message is None:
        text = file.read_text().replace("mfu_prefill = 0.001\nmfu_decode = 0.001", 'backend = "linear"')
        file.write_text(text)
        overrides = {}
        message = r'engine\.experts: expected none with latency\.backend = "linear": it does not price experts'
    with pytest.raises(InputErrors, match=message):
        serve(file, overrides)


@pytest.mark.parametrize(("backend", "asked", "why"), [
    ("aicb", {"all2all_backend": "deepep_low_latency"}, "all2all_backend.*bytes of the exchange from its tables"),
    ("aicb", {"dbo": {"enabled": True}}, "dbo.*tables of whole batches"),
    ("trained_physics", {"dbo": {"enabled": True}}, "dbo.*fitted to iterations without overlap")])
def test_why_a_backend_does_not_price_an_exchange_is_said(backend, asked, why, file):
    lines = f'backend = "{backend}"' + "\ntables = \"t\"" * (backend == "aicb")
    file.write_text(file.read_text().replace("mfu_prefill = 0.001\nmfu_decode = 0.001", lines))
    with pytest.raises(InputErrors, match=why):
        load_experiment(file, {f"engine.experts.{key}": value for key, value in asked.items()})


@pytest.mark.parametrize(("latency", "message"), [
    ({"backend": "operators", "all2all_backend": "deepep_low_latency"}, "refused"),
    ({"backend": "operators", "expert_load": "power_law_1.2"}, "expert_load"),
    ({"backend": "trained_physics", "expert_exchange": "all_to_all"}, "refused")], ids=str)
def test_one_name_for_one_thing(latency, message, file):
    """Two places that say how tokens are exchanged must not contradict each other."""
    lines = "\n".join(f'{key} = "{value}"' for key, value in latency.items())
    file.write_text(file.read_text().replace("mfu_prefill = 0.001\nmfu_decode = 0.001", lines))
    agree = "allgather_reducescatter"
    for asked, is_refused in ((agree, True), ("deepep_low_latency", message == "expert_load")):
        with pytest.raises(InputErrors) as caught:      # of the size of expert parallelism beside
            load_experiment(file, {"engine.experts.all2all_backend": asked, "topology.data_parallel": 2})
        of_it = "latency.expert_load" if message == "expert_load" else " with engine.experts.all2all_backend = "
        assert (of_it in str(caught.value)) == is_refused
