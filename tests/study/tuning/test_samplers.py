"""Samplers search ranges, names and whole numbers, race over seeds, and compare on seeds that they did not see."""
import csv
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from simulator.study.sweep.axes import Axis, axis_of
from simulator.study.sweep.study_file import read_study
from simulator.study.tuning.racing import looks
from simulator.study.tuning.search import feasible_of
from simulator.study.tuning.tune_table import TuneTable, check

pytest.importorskip("optuna", reason="Optuna is in the tune extra")

FLEET = """
name = "fleet"
seed = 3
topology = {replicas = 3}
engine = {max_num_seqs = 4, max_model_len = 512, num_gpu_blocks = 100}
latency = {backend = "linear", base_us = 1e3, per_sequence_us = 9, per_prefill_token_us = 10, per_context_token_us = 0}

[cluster.routing]
policy = "llumnix"
dispatch_neutral_load_threshold = 64.0

[workload]
type = "synthetic"
num_requests = 60
arrival = {process = "poisson", rate_per_s = 250.0}
prompt_tokens = {distribution = "uniform", min = 10, max = 400}
output_tokens = {distribution = "constant", tokens = 8}
"""
STUDY = """
extends = "fleet.toml"
name = "tuned"

[study]
kind = "tune"
search = "optuna"
max_trials = 6
at_once = 2
KEYS

[study.objectives]
"ttft_ms.mean" = "min"

[study.axes]
AXES

[study.limits]
"""
AXES = """
"cluster.routing.dispatch_neutral_load_metric" = ["all_prefills_tokens_num", "num_requests", "kv_cache_hit_len"]
"cluster.routing.dispatch_neutral_load_threshold" = {from = 1.0, to = 1e4, scale = "log"}
"cluster.routing.dispatch_top_k" = {from = 1, to = 3}
"cluster.routing.kvs_chunk_size" = {from = 16, to = 16}
"""
SPEED = '"latency.base_us" = {from = 1000.0, to = 100000.0, scale = "log"}'
CONFIGS = Path(__file__).parents[3] / "configs"
RACE = 'seeds = 6\nracing = true\n'


@pytest.fixture
def fleet(tmp_path):
    """Write a study of a fleet, with keys of [study] and axes; return its path."""
    (tmp_path / "fleet.toml").write_text(FLEET)

    def write(keys="", axes=AXES, add=""):
        path = tmp_path / "tuned.toml"
        path.write_text(STUDY.replace("KEYS", keys).replace("AXES", axes) + add)
        return path

    return write


@pytest.fixture
def ranking(tmp_path):
    """Return the rows of ranking.csv by the number of the candidate."""
    def read(out="out"):
        with open(tmp_path / out / "ranking.csv") as stream:
            return {int(row["number"]): row for row in csv.DictReader(stream)}

    return read


def test_ranges_names_and_whole_numbers_vary_and_the_first_is_the_experiment(fleet, tune, ranking, tmp_path):
    status, told = tune(fleet("seeds = 2\nheld_out = 3"))
    rows = ranking()
    columns = {key: [row[f"cluster.routing.{key}"] for row in rows.values()] for key in (
        "dispatch_neutral_load_threshold", "dispatch_top_k", "dispatch_neutral_load_metric", "kvs_chunk_size")}

    assert status == 0 and told["counts"] == {"feasible": 6} and not told["complete"]
    assert columns["dispatch_neutral_load_threshold"][0] == "64.0" and columns["dispatch_top_k"][0] == "1"
    assert len(set(columns["dispatch_neutral_load_threshold"])) == 6
    assert all(1 <= float(each) <= 1e4 and len(each.rstrip("0").replace(".", "")) <= 5
               for each in columns["dispatch_neutral_load_threshold"])
    assert set(columns["dispatch_top_k"]) <= {"1", "2", "3"} and len(set(columns["dispatch_top_k"])) > 1
    assert len(set(columns["dispatch_neutral_load_metric"])) > 1 and set(columns["kvs_chunk_size"]) == {"16"}
    # What is written last goes on where it stopped, and repeats itself.
    assert tune(fleet("seeds = 2\nheld_out = 3"))[1] == told
    pair = told["held_out"]["values"]["ttft_ms.mean"]
    assert told["held_out"]["seeds"] == [5, 6, 7]
    assert pair["difference"] == pytest.approx(pair["best"] - pair["experiment"]) and pair["half_width"] >= 0


def test_a_race_drops_what_is_surely_worse_and_finds_the_same(fleet, tune, ranking, tmp_path, capsys):
    _, whole = tune(fleet("seeds = 6", SPEED), out="whole")
    capsys.readouterr()
    status, told = tune(fleet(RACE, SPEED))
    said = capsys.readouterr().out
    rows = ranking()

    assert status == 0 and told["best"] == whole["best"]
    assert told["counts"]["eliminated"] >= 3 and told["counts"]["eliminated"] + told["counts"]["feasible"] == 6
    dropped = [row for row in rows.values() if row["status"] == "eliminated"]
    assert {row["seeds"] for row in dropped} <= {"2", "3", "5"}
    assert all(row["reason"].startswith("worse than the best by ") for row in dropped)
    assert {row["seeds"] for row in rows.values() if row["rank"]} == {"6"}
    assert "eliminated: " in said and "equal seeds" in said
    slow = max(dropped, key=lambda row: float(row["ttft_ms.mean"]))
    assert float(slow["latency.base_us"]) == max(float(row["latency.base_us"]) for row in dropped)
    # Half of the runs are lost, as after Ctrl-C: the search goes on, and ends the same.
    lines = [line for each in (tmp_path / "out/segments").iterdir() for line in each.read_bytes().splitlines(True)]
    (tmp_path / "again/segments").mkdir(parents=True)
    (tmp_path / "again/look.json").write_bytes((tmp_path / "out/look.json").read_bytes())
    (tmp_path / "again/segments/a.jsonl").write_bytes(b"".join(lines[::2]))
    assert tune(fleet(RACE, SPEED), out="again") == (0, told)


def test_patience_ends_a_search_where_all_are_equal(fleet, tune):
    _, told = tune(fleet("patience = 3", '"cluster.routing.cache_aware_min_tokens" = {from = 0, to = 2000}'))

    assert told["counts"] == {"feasible": 4}        # the first, and in batches of two no better ones
    assert told["best"]["assignment"] == {"cluster.routing.cache_aware_min_tokens": 1024}      # the experiment's own


def test_nothing_meets_the_bound_and_some_runs_are_refused(fleet, tune, capsys):
    axes = '"engine.num_gpu_blocks" = {from = 2, to = 60}\n' + SPEED
    status, told = tune(fleet("held_out = 2", axes, '[study.slo]\n"ttft_ms.p99" = {max = 0.5}\nbacklog = "any"\n'))

    assert status == 3 and told["best"] is None and "held_out" not in told
    assert set(told["counts"]) <= {"infeasible", "memory", "forbidden", "refused"} and told["counts"]["infeasible"]
    assert told["nearest_miss"]["margin"] < 0
    assert "nothing qualifies; nearest: " in capsys.readouterr().out


def test_a_value_that_is_wrong_by_itself_is_refused_before_any_run(fleet, tune, tmp_path, capsys):
    assert tune(fleet("", '"cluster.routing.dispatch_top_k" = {from = 0, to = 3}'))[0] == 2
    assert "dispatch_top_k" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_items_of_a_list_that_the_file_does_not_give_do_not_vary(fleet, tune, capsys):
    assert tune(fleet("", '"cluster.routing.infer_types.0.selector.top_k" = {from = 1, to = 3}'))[0] == 2
    assert "the file gives no list cluster.routing.infer_types" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("config", "axes"), [
    ("hpa", '"autoscaling.zero.cooldown_s" = {from = 30.0, to = 300.0}\n"autoscaling.stabilization" = ["extreme"]'),
    ("hpa", '"autoscaling" = [{policy = "hpa"}, {policy = "kpa", target_concurrency = 6.0}]\n'
            '"autoscaling.min_replicas" = {from = 1, to = 2}'),
    ("dynamo_planner", '"autoscaling.ttft_ms" = {from = 100.0, to = 900.0}\n'
                       '"autoscaling.sensitivity" = ["aggressive", "conservative"]\n'
                       '"autoscaling.kalman.level_variance" = {from = 0.1, to = 10.0, scale = "log"}'),
    ("llumnix_composed", '"cluster.routing.infer_types.0.filters.3.threshold" = {from = 0.5, to = 1.0}\n'
                         '"cluster.routing.infer_types.0.selector.top_k" = {from = 1, to = 4}'),
    ("gym", '"cluster.routing.scorers.1.weight" = {from = 0.1, to = 10.0, scale = "log"}'),
])
def test_settings_of_policies_are_axes(fleet, config, axes):
    path = fleet("", axes)
    path.write_text(path.read_text().replace("fleet.toml", str(CONFIGS / f"{config}.toml")))

    assert feasible_of(check(read_study(path, None, TuneTable))) is None


def test_cma_es_is_asked_for_by_name(fleet, tune, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "cmaes", None)
    axes = SPEED + '\n"cluster.routing.dispatch_top_k" = {from = 1, to = 3}'
    assert tune(fleet('sampler = "cmaes"', axes))[0] == 2
    assert "pip install 'simulator[tune]'" in capsys.readouterr().err


@pytest.mark.skipif(find_spec("cmaes") is None, reason="cmaes is not installed")
def test_cma_es_searches_numbers(fleet, tune, ranking):
    axes = SPEED + '\n"cluster.routing.dispatch_neutral_load_threshold" = {from = 1.0, to = 1e4, scale = "log"}'
    status, told = tune(fleet('sampler = "cmaes"', axes))

    assert status == 0 and told["counts"] == {"feasible": 6}
    assert len({row["latency.base_us"] for row in ranking().values()}) == 6


@pytest.mark.parametrize(("keys", "axes", "fault"), [
    ('sampler = "cmaes"', AXES, 'axes."cluster.routing.dispatch_neutral_load_metric": expected numbers in their order'),
    ('sampler = "cmaes"', SPEED, "axes: expected two at least that vary"),
    ("racing = true", AXES, "seeds: expected at least 3 with racing, found 1"),
    ('racing = true\nload = "capacity"', AXES, 'racing: expected false with load = "capacity"'),
    ('held_out = 2\nload = "capacity"', AXES, 'held_out: takes load = "offered", found "capacity"'),
    ('design = "zip"', '"topology.replicas" = [1, 2]', 'design: expected "grid" with search = "optuna"'),
])
def test_keys_that_do_not_go_together_are_refused(fleet, tune, capsys, keys, axes, fault):
    assert tune(fleet(keys, axes))[0] == 2
    assert fault in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("key", ['sampler = "tpe"', "at_once = 4", "patience = 3", "racing = true"])
def test_keys_of_samplers_are_refused_elsewhere(study, tune, capsys, key):
    assert tune(study(('kind = "tune"', f'kind = "tune"\nsearch = "halving"\n{key}')))[0] == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f'study.{key.split()[0]}: expected none with search = "halving"' in said


def test_several_objectives_have_neither_race_nor_patience(study, tune, capsys):
    keys = 'kind = "tune"\nsearch = "optuna"\nseeds = 3\npatience = 3\nracing = true'
    assert tune(study(('kind = "tune"', keys)))[0] == 2
    said = capsys.readouterr().err
    assert "study.patience: takes one objective" in said and "study.racing: takes one objective" in said


def test_a_grid_without_a_sampler_needs_steps(study, tune, capsys):
    path = study(("[8, 64]", "{from = 8, to = 64}"), ('kind = "tune"', 'kind = "tune"\nsearch = "exhaustive"'))
    assert tune(path)[0] == 2
    assert "steps: expected an integer" in capsys.readouterr().err


def test_a_range_of_one_value_has_one():
    assert axis_of("a", {"from": 3, "to": 3}, draws=False, takes_both=True) == Axis("a", (3,))


def test_looks_grow_by_half():
    assert looks(20) == [2, 3, 5, 8, 12, 18] and looks(3) == [2]
