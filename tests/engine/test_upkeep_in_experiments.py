"""Failures and autoscaling as an experiment file asks for them."""
import inspect
import textwrap

import numpy as np
import pytest

import simulator
from simulator import registry
from simulator.domain import records
from simulator.errors import InputErrors
from simulator.scaling.base import Autoscaler

BASE = """
name = "up"
[engine]
num_gpu_blocks = 1000
max_model_len = 2000
[latency]
backend = "linear"
[workload]
type = "synthetic"
num_requests = 200
[workload.arrival]
process = "constant"
rate_per_s = 100.0
[workload.prompt_tokens]
distribution = "constant"
tokens = 50
[workload.output_tokens]
distribution = "constant"
tokens = 10
"""


def write(folder, more):
    folder.mkdir(exist_ok=True)
    path = folder / "up.toml"
    path.write_text(BASE + textwrap.dedent(more), encoding="utf-8")
    return path


@pytest.mark.parametrize(("failure", "count"), [
    ("", 1), ("kind = 'cache'\nat_s = 0.5", 1), ("kind = 'slow'\nat_s = 0.5", 1), ("kind = 'link'\nat_s = 9.0", 0)])
def test_health_checks_that_find_nothing_are_named(tmp_path, failure, count):
    file = write(tmp_path, "[cluster.health]\ndetection_delay_s = 0.1\n" + (failure and f"[[failures]]\n{failure}\n"))
    notes = simulator.run(file).summary["diagnosis"]
    assert sum(note.startswith("cluster.health has no effect") for note in notes) == count
    assert not any("cluster.health" in note for note in simulator.run(file, {
        "cluster.health.detection_delay_s": 0.0}).summary["diagnosis"])


def test_failures_reach_the_results(tmp_path):
    result = simulator.run(write(tmp_path, """
        [topology]
        replicas = 2
        [cluster.health]
        detection_delay_s = 0.1
        [[failures]]
        kind = "stop"
        which = 1
        at_s = 0.5
        duration_s = 0.5
        """), out=tmp_path / "out")
    rows = result.lifecycle
    assert [(row["time_ns"], row["state"], row["cause"]) for row in rows if row["replica"] == 1] == [
        (0, 4, 0), (500_000_000, 8, 2), (600_000_000, 8, 3), (1_000_000_000, 4, 4), (1_000_000_000, 4, 5)]
    assert result.summary["requests"]["completed"] == 200
    assert result.summary["retries"] == int(result.requests["retries"].sum()) > 0
    down = (result.requests["dispatched_ns"] > 600_000_000) & (result.requests["dispatched_ns"] < 1_000_000_000)
    assert set(result.requests["replica"][down].tolist()) == {0}


def test_the_example_of_a_policy_works(tmp_path):
    # At night eight replicas would be too many; the experiment is over before the first morning.
    example = textwrap.dedent(inspect.getdoc(Autoscaler).partition("    class ")[2])
    source = "class " + example.partition("\n\n")[0].replace("\n    ", "\n")
    module = f"from simulator.scaling.base import Autoscaler, spread\n\n\n{source}\n"
    (tmp_path / "night_lab.py").write_text(module, encoding="utf-8")
    result = simulator.run(write(tmp_path, """
        [topology]
        replicas = 3
        [autoscaling]
        policy = "night_lab:Nightly"
        interval_s = 0.1
        max_replicas = 8
        """))
    last = {int(row["replica"]): records.STAGE_NAMES[row["state"]] for row in result.lifecycle}
    assert sorted(last.values()) == ["off"] * 7 + ["up"]


def test_every_policy_can_be_chosen(tmp_path):
    keys = {"slo_attainment": "ttft_ms = 1.0",          # that it must have; it comes last
            "queueing": "alpha = 5.0\nbeta = 0.5\ngamma = 0.001",
            "mix": "input_tokens = [100]\noutput_tokens = [20]\nwindow_s = 0.5\n"
                   'profiles = [{pool = "default", requests_per_s = [[40.0]]}]'}
    names = [name for name in registry.KINDS["autoscaler"].entries if not registry.load("autoscaler", name).needs_roles]
    for policy in sorted(names, key="slo_attainment".__eq__):
        table = f'[autoscaling]\npolicy = "{policy}"\n{keys.get(policy, "")}\ninterval_s = 0.1\nmax_replicas = 3\n'
        result = simulator.run(write(tmp_path, table))
        assert result.summary["requests"]["completed"] == 200
    assert np.isin(records.STAGE_NAMES.index("up"), result.lifecycle["state"][3:])      # 1 ms is never kept


@pytest.mark.parametrize(("more", "message"), [
    ("[[failures]]\nkind = 'stop'", "failures[0]: give either at_s or mtbf_s"),
    ("[[failures]]\nkind = 'stop'\nat_s = 1.0\nwhich = 7", "failures[0].which: expected a replica 0 .. 0, found 7"),
    ("[[failures]]\nkind = 'stop'\nat_s = 1.0\npool = 'a'", 'failures[0].pool: there is no pool "a"'),
    ("[autoscaling]\npolicy = 'utilization'", 'no autoscaler "utilization"; did you mean utilisation?'),
])
def test_faults_are_named(tmp_path, more, message):
    with pytest.raises(InputErrors) as caught:
        simulator.run(write(tmp_path, more))
    assert message in str(caught.value)


@pytest.mark.parametrize("more", [
    # four overlapping failures: the next one always begins before the last repair
    """
    [topology]
    replicas = 4
    [[failures]]
    kind = "slow"
    which = "each"
    mtbf_s = 0.1
    duration_s = 10.0
    """,
    # decisions come five times as often as they take effect, and each wants one replica more
    """
    [autoscaling]
    policy = "slo_attainment"
    ttft_ms = 0.001
    interval_s = 0.1
    max_replicas = 3
    actuation_delay = {mean_s = 0.5}
    """])
def test_an_experiment_ends_with_its_requests_whatever_else_goes_on(tmp_path, more):
    result = simulator.run(write(tmp_path, more + """
        [output]
        replica_samples_s = 0.1
        """), out=tmp_path / "out")
    assert result.summary["complete"]
    assert result.replica_samples["time_ns"].max() <= result.summary["clock_s"] * 1e9 + 1


def test_the_clock_runs_until_the_last_request_is_given_up(tmp_path):
    # The one replica stops at 0.1 s; at 3 s it becomes known, and its requests are lost.
    result = simulator.run(write(tmp_path, """
        [cluster.health]
        detection_delay_s = 2.9
        [[failures]]
        kind = "stop"
        at_s = 0.1
        on_failure = "lost"
        """))
    assert sum(result.summary["requests"][name] for name in ("completed", "dropped", "failed")) == 200
    assert result.summary["clock_s"] == 3.0


def test_the_clock_runs_until_the_last_iteration_ends(tmp_path):
    # Async scheduling does not count on drafts: another iteration has begun when the last token comes. Arrival: 10 ms.
    result = simulator.run(write(tmp_path, """
        [topology]
        replicas = 2
        """), {"engine.async_scheduling": True, "engine.speculative": {"num_tokens": 2, "acceptance": [2]},
               "workload.num_requests": 1})
    replica = result.summary["replicas"][0]
    assert result.summary["clock_s"] == pytest.approx(0.01 + replica["busy_s"])
    assert result.summary["clock_s"] > result.summary["duration_s"]


@pytest.mark.parametrize(("keys", "completed"), [
    ({"min_replicas": 0}, 2), ({"min_replicas": 0, "zero": {"cooldown_s": 1.0}}, 3), ({"min_replicas": 1}, 4)])
def test_requests_that_come_to_no_replica_are_refused_unless_a_queue_keeps_them(tmp_path, keys, completed):
    # The only replica is removed after the first two. The third brings it back with `zero` alone.
    (tmp_path / "requests.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,50,5\n0.1,50,5\n"
                                           "60,50,5\n90,50,5\n")
    settings = {"workload": {"type": "trace", "path": str(tmp_path / "requests.csv")}, "autoscaling": {
        "policy": "queue", "target_waiting": 1.0, "interval_s": 1.0} | keys}
    result = simulator.run(write(tmp_path, ""), settings)
    kept = simulator.run(write(tmp_path, ""), settings | {"cluster.gateway_queue": {"tick_s": 0.01, "saturation": {
        "detector": "concurrency", "max_concurrency": 8}}})

    assert (result.requests["status"] == records.COMPLETED).sum() == completed
    assert (kept.requests["status"] == records.COMPLETED).all()
    for each, refused in ((result, 4 - completed), (kept, 0)):
        text = f"came while no replica served were refused, {refused} in all"
        assert any(text in note for note in each.summary["diagnosis"]) == (refused > 0)


@pytest.mark.parametrize("upstream_compat", [False, True])
def test_a_replica_without_its_link_is_not_busy(tmp_path, upstream_compat):
    # BLIS counts an iteration when it begins, all others when it ends: the pause of 5 s counts for neither.
    experiment = write(tmp_path, """
        [[failures]]
        kind = "link"
        at_s = 0.5
        duration_s = 5.0
        """)
    engine = {"engine.scheduler": "blis", "engine.upstream_compat": upstream_compat}
    paused, free = (simulator.run(path, engine).summary["replicas"][0]
                    for path in (experiment, write(tmp_path / "free", "")))
    assert paused["iterations"] > 0
    assert 0 < paused["busy_s"] <= free["busy_s"]


SCALES = """
    [topology]
    replicas = 1
    [autoscaling]
    policy = "hpa"
    targets = [{metric = "requests", average_value = 0.01}]
    interval_s = 0.5
    max_replicas = 2
    weights = {gb_per_s = 10.0}
    """


def test_a_new_replica_reads_the_weights_of_its_model(tmp_path):
    # Llama 3.2 1B: 1,235,814,400 weights of 2 bytes, 10 bytes a ns.
    result = simulator.run(write(tmp_path, SCALES + '[model]\n    name = "llama-3.2-1b"\n'))
    times_ns = [int(row["time_ns"]) for row in result.lifecycle if row["replica"] == 1]
    assert times_ns == [0, 500_000_000, 500_000_000 + 247_162_880]


def test_without_a_model_weights_have_no_size(tmp_path):
    with pytest.raises(InputErrors, match=r"autoscaling\.weights\.size_gb: missing; without \[model\] give the size"):
        simulator.run(write(tmp_path, SCALES))
