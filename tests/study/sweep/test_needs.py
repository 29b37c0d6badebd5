"""Numbers that an experiment cannot have are refused before anything runs, in sweeps and capacity searches."""
import pytest

import simulator
from simulator import cli
from simulator.errors import InputErrors
from simulator.study.sweep.needs import missing
from simulator.study.sweep.study_file import read_study

PRICES = 'prices={"h100-sxm-80gb" = {per_gpu_hour = 2.0, currency = "USD", date = "2026-11-01", source = "a list"}}'
HARDWARE = 'hardware={name = "h100-sxm-80gb"}'
NO_SLO = "the experiment has no [slo], which says which requests are good"


def metrics(*keys):
    return f"study.statistics.metrics={list(keys)}".replace("'", '"')


@pytest.fixture
def never_runs(monkeypatch):
    monkeypatch.setattr("simulator.study.sweep.bench.Bench.run", None)


@pytest.mark.parametrize(("key", "fault"), [
    ("ttft_ms.p98", 'summary.json has no number "ttft_ms.p98"; did you mean ttft_ms.p99?'),
    ("ttft_ms", 'summary.json has no number "ttft_ms"'), ("kv_cache.mean_usage", None),
    ("by_tenant.a.ttft_ms.p99", None),
    ("request_goodput", f"study.statistics.metrics.request_goodput: {NO_SLO}"), ("by_tenant.a.request_goodput", NO_SLO),
    ("slo_attainment", NO_SLO), ("cost.total", "the experiment has no [prices] of its accelerators"),
    ("by_pool.default.cost", "the experiment has no [prices]"), ("energy.kwh", "the experiment has no [power]"),
    ("energy.carbon_g", "the experiment has no [carbon]"),
    ("energy.electricity_cost", "the experiment has no [electricity]"),
    ("fitness.total", "the experiment has no [fitness]"),
    ("uncertainty.interval_frac", "the experiment has no latency.uncertainty")])
def test_a_metric_of_a_sweep_that_no_run_has_is_refused(study, tmp_path, capsys, monkeypatch, key, fault):
    options = ["sweep", str(study), "--out", str(tmp_path / "out"), "--jobs", "1", "--set", metrics(key)]
    if fault is None:
        assert cli.main(options) == 0
        return
    monkeypatch.setattr("simulator.study.sweep.bench.Bench.run", None)
    assert cli.main(options) == 2
    assert fault in capsys.readouterr().err and not (tmp_path / "out").exists()
    with pytest.raises(InputErrors):
        simulator.sweep(study, [metrics(key)])


@pytest.mark.parametrize(("bring", "key"), [
    ("slo.ttft_ms=100.0", "request_goodput"), ("slo.classes=[{name = 'chat', ttft_ms = 5.0}]", "slo_attainment"),
    (PRICES, "cost.total")])
def test_a_table_of_the_experiment_brings_it_in(study, tmp_path, bring, key):
    extra = ["--set", HARDWARE] if bring is PRICES else []
    assert cli.main(["sweep", str(study), "--out", str(tmp_path / "out"), "--jobs", "1", "--set", metrics(key), "--set",
                     bring.replace("'", '"'), *extra]) == 0


def test_an_axis_brings_it_in(rewrite):
    study = read_study(rewrite(('"engine.max_num_seqs" = [2, 8]', '"slo.ttft_ms" = [5.0, 9.0]')))

    assert missing(study, "request_goodput") is None and missing(study, "cost.total")


def test_what_nobody_has_measured_is_told(rewrite, tmp_path, capsys):
    # no request has more than one token, so that none has a time per output token
    path = rewrite(('["ttft_ms.mean", "request_throughput"]', '["ttft_ms.mean", "tpot_ms.mean"]'))
    assert cli.main(["sweep", str(path), "--out", str(tmp_path / "out"), "--jobs", "1", "--set",
                     "workload.output_tokens.min=1", "--set", "workload.output_tokens.max=1"]) == 0

    assert "tpot_ms.mean: there is nothing to measure at 4 of 4 points" in capsys.readouterr().out


@pytest.mark.parametrize(("bound", "fault"), [
    ("request_goodput>=5", f"study.slo.request_goodput: {NO_SLO}"), ("goodput_share=0.9", NO_SLO),
    ("cost.cost_per_million_output_tokens=3", "the experiment has no [prices]"),
    ("energy.joules_per_output_token=3", "the experiment has no [power]")])
def test_a_bound_of_capacity_that_no_run_has_is_refused(study, tmp_path, capsys, never_runs, bound, fault):
    assert cli.main(["capacity", str(study.parent / "base.toml"), "--out", str(tmp_path / "out"), "--slo", bound]) == 2
    assert fault in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_difference_of_plans_is_told_in_words(study, rewrite, tmp_path, capsys):
    assert cli.main(["sweep", str(study), "--out", str(tmp_path / "out"), "--jobs", "1"]) == 0
    rewrite(("[2, 8]", "[2, 9]"))
    assert cli.main(["sweep", str(study), "--out", str(tmp_path / "out"), "--jobs", "1"]) == 2

    told = capsys.readouterr().err
    assert "workload.arrival.rate_per_s = 10.0, engine.max_num_seqs = 8, seed 5" in told and "{" not in told
