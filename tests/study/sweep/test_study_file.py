"""A study file says which experiments are run, and every fault of it is told at once."""
import itertools

import numpy as np
import pytest
from msgspec.structs import replace

from simulator import cli
from simulator.config.load import load_experiment
from simulator.domain import facts
from simulator.errors import InputErrors
from simulator.study.studies import load_study
from simulator.study.sweep.axes import axis_of
from simulator.study.sweep.design import points_of
from simulator.study.sweep.identity import hash_of, id_of
from simulator.study.sweep.manifest import text_of
from simulator.study.sweep.plan import trials_of
from simulator.study.sweep.study_file import check_points, read_study
from simulator.study.sweep.trial import STATUSES


def faults(call, *arguments, **named):
    with pytest.raises(InputErrors) as refused:
        call(*arguments, **named)
    return list(refused.value.faults)


THREE_AXES = """
[study.axes]
"workload.arrival.rate_per_s" = [4, 8, 16]
"engine.max_num_seqs" = {from = 64, to = 1024, steps = 5, scale = "log"}
"topology" = [{tensor_parallel = 1, replicas = 4}, {tensor_parallel = 2, replicas = 2}]
"""


@pytest.fixture
def worked(rewrite):
    """The worked example: 3 x 5 x 2 points, 5 seeds."""
    return rewrite(('[study.axes]\n"workload.arrival.rate_per_s" = [10.0, 30.0]\n"engine.max_num_seqs" = [2, 8]\n',
                    THREE_AXES), ("seeds = 2", "seeds = 5"))


def test_thirty_points_and_a_hundred_and_fifty_runs(worked):
    study = read_study(worked, {"model.name": "llama-3.1-8b", "hardware.name": "h100-sxm-80gb"})
    points = check_points(study)
    assert (len(points), len(trials_of(study, points))) == (30, 150)
    assert [axis.values for axis in study.axes if axis.key == "engine.max_num_seqs"] == [(64, 128, 256, 512, 1024)]
    assert [point["topology"]["tensor_parallel"] for point in points[:2]] == [1, 2]        # the last axis fastest


def test_excluded_points_are_dropped(worked, rewrite):
    rewrite(("[study.statistics]", '[[study.exclude]]\n"engine.max_num_seqs" = 1024\n"topology.tensor_parallel" = 1\n'
                                   "[study.statistics]"))
    study = read_study(worked, {"model.name": "llama-3.1-8b", "hardware.name": "h100-sxm-80gb"})
    points = check_points(study)
    assert (len(points), len(trials_of(study, points))) == (27, 135)


def test_seeds_follow_the_experiments(study):
    assert read_study(study).seeds == (5, 6)
    assert read_study(study, {"study.seeds": [11, 12, 13]}).seeds == (11, 12, 13)


def test_all_faults_are_told_at_once(rewrite):
    path = rewrite(('seeds = 2', 'seed = 2'), ('"none"', '"nome"'))
    assert faults(read_study, path) == [
        f'{path}: study.statistics.warmup: expected one of "mser5", "none" or a table, found "nome"; '
        "did you mean none?",
        f"{path}: study.seed: unknown key; did you mean seeds?"]


def test_faults_of_points_come_once_with_their_number(rewrite):
    path = rewrite(("[2, 8]", "[2, 0, -1]"))
    study = read_study(path)
    told = faults(check_points, study)
    assert told == [
        f"{path}: point 1 of 6: engine.max_num_seqs: expected an integer from 1 to 1048576, found 0 (and 1 more)",
        f"{path}: point 2 of 6: engine.max_num_seqs: expected an integer from 1 to 1048576, found -1 (and 1 more)"]


def test_axis_that_no_experiment_reads_is_refused(rewrite):
    path = rewrite(('"engine.max_num_seqs"', '"engine.max_num_seq"'))
    (told,) = faults(check_points, read_study(path))
    assert "engine.max_num_seq: unknown key; did you mean max_num_seqs?" in told and told.endswith("(and 3 more)")


@pytest.mark.parametrize(("old", "new", "told"), [
    ("[10.0, 30.0]", "[]", "expected at least one value"),
    ("[10.0, 30.0]", "7", "expected a list of values, or a table with from and to; found 7"),
    ("[10.0, 30.0]", "{from = 1, to = 4}", "steps: expected an integer from 1 to 1000000, found none"),
    ("[10.0, 30.0]", "{from = 4, to = 1, steps = 2}", "expected from <= to, found 4 and 1"),
    ("[10.0, 30.0]", '{from = 0, to = 1, steps = 2, scale = "log"}', 'expected from > 0 with scale = "log", found 0'),
    ("[10.0, 30.0]", "{form = 0}", "unknown key form; did you mean from?")])
def test_axes_that_are_none(rewrite, old, new, told):
    path = rewrite((old, new))
    assert faults(read_study, path)[0].startswith(f'{path}: study.axes."workload.arrival.rate_per_s": ')
    assert told in faults(read_study, path)[0]


def test_values_of_unequal_number_do_not_go_side_by_side(rewrite):
    path = rewrite(("seeds = 2", 'seeds = 2\ndesign = "zip"'), ("[2, 8]", "[2, 4, 8]"))
    assert faults(read_study, path) == [
        f'{path}: study.axes: expected as many values of each with design = "zip"; workload.arrival.rate_per_s has 2, '
        "engine.max_num_seqs has 3"]


def test_listed_points(rewrite):
    path = rewrite(('[study.axes]\n"workload.arrival.rate_per_s" = [10.0, 30.0]\n"engine.max_num_seqs" = [2, 8]\n',
                    '[[study.points]]\n"engine.max_num_seqs" = 3\n[[study.points]]\nseed_free = 1\n'),
                   ("seeds = 2", 'seeds = 2\ndesign = "list"'))
    assert "seed_free: unknown key" in faults(check_points, read_study(path))[0]


def test_item_of_a_list_is_an_axis(rewrite):
    path = rewrite(('"engine.max_num_seqs" = [2, 8]', '"pools.0.replicas" = [1, 3]'),
                   ("[study]\n", '[[pools]]\nname = "a"\n[study]\n'))
    study = read_study(path)
    assert [study.experiment_of(point).pools[0].replicas for point in check_points(study)] == [1, 3, 1, 3]
    assert "pools has no item 1" in faults(study.experiment_of, {"pools.1": 3})[0]


def test_study_is_no_experiment_and_an_experiment_no_study(study, capsys):
    assert cli.main(["run", str(study)]) == 2
    assert capsys.readouterr().err == f"{study}: a study, not an experiment; `simulator sweep` runs it\n"
    assert faults(read_study, study.with_name("base.toml")) == [
        f'{study.with_name("base.toml")}: no study: expected a table [study] with kind = "sweep"; `simulator run` runs '
        "an experiment"]


@pytest.mark.parametrize("design", ["random", "lhs"])
def test_another_axis_never_changes_the_draws_of_one(design):
    first = axis_of("a.b", {"from": 0.0, "to": 1.0}, True)
    other = axis_of("c.d", {"from": 1, "to": 1000, "scale": "log"}, True)
    alone = [point["a.b"] for point in points_of(design, [first], (), 8, 3)]
    assert [point["a.b"] for point in points_of(design, [other, first], (), 8, 3)] == alone
    assert all(isinstance(point["c.d"], int) and 1 <= point["c.d"] <= 1000
               for point in points_of(design, [other, first], (), 8, 3))


def test_latin_hypercube_has_a_point_in_each_stratum():
    axes = [axis_of(key, {"from": 0.0, "to": 1.0}, True) for key in ("a", "b")]
    points = list(points_of("lhs", axes, (), 16, 1))
    for key in ("a", "b"):
        assert sorted(int(point[key] * 16) for point in points) == list(range(16))
    listed = [axis_of("c", ["x", "y"], True)]
    assert sorted(point["c"] for point in points_of("lhs", listed, (), 4, 1)) == ["x", "x", "y", "y"]


def test_sobol_points_fill_each_half(rewrite):
    pytest.importorskip("scipy", reason="SciPy comes with the extra `fit`")
    axes = [axis_of("a", {"from": 0.0, "to": 1.0}, True)]
    values = [point["a"] for point in points_of("sobol", axes, (), 8, 1)]
    assert np.sum(np.array(values) < 0.5) == 4
    path = rewrite(("seeds = 2", 'design = "sobol"\npoints = 6'))
    assert any("expected a power of two" in fault for fault in faults(read_study, path))


def test_id_is_the_hash_of_canonical_json():
    assert hash_of({"workload.arrival.rate_per_s": 2.0, "engine.max_num_seqs": 64}) == "79276000a0c05e15"


def test_id_is_of_contents_not_of_names(tmp_path, study):
    base = study.with_name("base.toml")
    one = load_experiment(base)
    assert id_of(one) == id_of(load_experiment(base, {"name": "other", "output.token_times": True}))
    assert id_of(one) != id_of(load_experiment(base, {"seed": 6}))
    rows = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,5,5\n"
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "t.csv").write_text(rows)
    traces = [{"workload": {"type": "trace", "path": str(tmp_path / folder / "t.csv")}} for folder in ("a", "b")]
    base.write_text(base.read_text().split("[workload]")[0])
    before = [id_of(load_experiment(base, trace)) for trace in traces]
    assert before[0] == before[1]
    (tmp_path / "b" / "t.csv").write_text(rows + "1,5,6\n")
    assert id_of(load_experiment(base, traces[1])) != before[1]


def test_id_is_of_what_facts_and_classes_of_users_say(tmp_path, study, monkeypatch):
    base = study.with_name("base.toml")
    base.write_text(base.read_text() + '[model]\nname = "llama-3.1-8b"\n[hardware]\nname = "h100-sxm-80gb"\n')
    before = id_of(load_experiment(base))
    (tmp_path / "model").mkdir()
    text = facts.path_of("model", "llama-3.1-8b").read_text()
    (tmp_path / "model" / "llama-3.1-8b.toml").write_text(text + "# as measured\n")
    built_in = facts.folder
    monkeypatch.setattr(facts, "folder", lambda kind: tmp_path / kind if kind == "model" else built_in(kind))
    assert id_of(load_experiment(base)) != before

    for number in range(2):         # of one name, in two folders
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "mine_of_ids.py").write_text(
            "from simulator.workload.types.synthetic import Synthetic\n"
            f"class Mine(Synthetic):\n    number = {number}\n")
        (folder / "base.toml").write_text(base.read_text().replace('"synthetic"', '"mine_of_ids:Mine"'))
    ids = [id_of(load_experiment(tmp_path / str(number) / "base.toml")) for number in range(2)]
    assert ids[0] != ids[1]


RANGE, WHOLE, LIST = {"from": 8.0, "to": 32.0, "steps": 3}, {"from": 2, "to": 8, "steps": 2, "scale": "log"}, [4, 16]
TABLES = [{"gpu_memory_utilization": 0.8, "max_num_batched_tokens": 4096}, {"gpu_memory_utilization": 0.9}]
OPEN = {"from": 8.0, "to": 32.0}
AXES = {"workload.arrival.rate_per_s": RANGE, "engine.max_num_seqs": LIST, "engine": TABLES}


@pytest.mark.parametrize("order", list(itertools.permutations(AXES)))
def test_a_written_study_has_the_same_plan(study, tmp_path, order):
    asked = read_study(study)
    axes = {key: AXES[key] for key in order}
    assert_survives(with_axes(asked, axes, "grid"), tmp_path)
    assert_survives(with_axes(asked, axes | {"engine.max_num_seqs": WHOLE}, "grid"), tmp_path)
    assert_survives(with_axes(asked, axes | {"workload.arrival.rate_per_s": OPEN}, "lhs", 5), tmp_path)


def test_each_card_of_a_study_brings_its_own_defaults_also_when_the_study_was_written(study, tmp_path):
    base = study.with_name("base.toml")
    base.write_text('hardware.name = "h100-sxm-80gb"\n' + base.read_text().replace("max_num_seqs = 4\n", ""))
    asked = with_axes(read_study(study), {"hardware.name": ["l40s", "b200-sxm-180gb"]}, "grid")
    (tmp_path / "written.toml").write_text(text_of(asked))

    for each in (asked, read_study(tmp_path / "written.toml")):
        engines = [each.experiment_of(point).engine.parameters for point in each.points()]
        assert [engine.max_num_batched_tokens for engine in engines] == [2048, 16384]


def test_rules_and_listed_points_survive_being_written(study, tmp_path):
    asked = with_axes(read_study(study), AXES, "grid")
    drop = ({"engine": {"max_num_seqs": 4}}, {"workload.arrival.rate_per_s": 8.0})
    assert_survives(asked._replace(settings=replace(asked.settings, exclude=drop)), tmp_path)
    listed = ({"engine": {"max_num_seqs": 4}, "workload.arrival.rate_per_s": 8.0}, {"engine.max_num_seqs": 16})
    assert_survives(with_axes(asked, {}, "list", listed), tmp_path)


def with_axes(asked, axes, design, points=()):
    made = tuple(axis_of(key, given, design == "lhs") for key, given in axes.items())
    return asked._replace(axes=made, settings=replace(asked.settings, axes=axes, design=design, points=points))


def assert_survives(asked, folder):
    path = folder / "written.toml"
    path.write_text(text_of(asked), encoding="utf-8")
    again = read_study(path)
    assert trials_of(again, again.points()) == trials_of(asked, asked.points())
    assert [axis.key for axis in again.axes] == [axis.key for axis in asked.axes]


def test_paths_of_axes_are_relative_to_their_file(tmp_path, rewrite, monkeypatch):
    """They were relative to the current folder, and a study that was kept did not find them."""
    study = rewrite(('"workload.arrival.rate_per_s" = [10.0, 30.0]', '"workload.path" = ["./one two.csv", "t.csv"]'))
    base = study.with_name("base.toml")
    base.write_text(base.read_text().partition("[workload]")[0] + '[workload]\ntype = "trace"\npath = "t.csv"\n')
    for name in ("one two.csv", "t.csv"):
        study.with_name(name).write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,5,5\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert cli.main(["sweep", str(study), "--out", "out", "--quiet"]) == 0
    assert load_study("out").runs["status"].tolist() == [STATUSES.index("done")] * 8
    paths = {point["workload.path"] for point in read_study(study).points()}
    assert paths == {str(tmp_path / "one two.csv"), str(tmp_path / "t.csv")}
    assert cli.main(["sweep", str(study), "--out", "over", "--quiet", "--set", 'study.axes={"workload.path"=["t.csv"]}'
                     ]) == 2                        # of the command line: relative to the current folder, and not there
    assert set(load_study("over").runs["status"].tolist()) == {STATUSES.index("refused")}


def test_own_files_of_facts_are_axes_and_repositories_of_the_hub_stay(tmp_path, rewrite):
    study = rewrite(('"workload.arrival.rate_per_s" = [10.0, 30.0]',
                     '"model.name" = ["meta-llama/Llama-3.1-8B", "mine/m.toml", "llama-3.1-8b"]'))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "m.toml").write_text(facts.path_of("model", "llama-3.1-8b").read_text())
    assert [axis.values for axis in read_study(study).axes if axis.key == "model.name"] == [
        ("meta-llama/Llama-3.1-8B", str(tmp_path / "mine" / "m.toml"), "llama-3.1-8b")]
