"""What runs say reaches the reader of a study, each sentence once, whoever ran what."""
import json
import re
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import simulator
from simulator import cli, registry
from simulator.config.load import load_experiment
from simulator.study.reports.of_directory import page_of
from simulator.study.sweep.segments import FOLDER
from simulator.study.sweep.trial import line_of, read_line
from simulator.study.telling.said import Said, accuracy_of, aged_prices
from support.studies import EXPERIMENT, STUDY

ROOT = Path(__file__).parents[3]
CUT = "max_model_len = 62"              # of prompts of 10 to 60 tokens and outputs of 2 to 20 some are cut
EXPERIMENT = EXPERIMENT.replace("max_model_len = 512", CUT)
CAPACITY = """
[study]
kind = "capacity"
from = 5.0
to = 80.0
rel_tol = 0.2
max_seeds = 3
[study.slo]
"ttft_ms.mean" = {max = 1000.0}
"""
TUNE = """
[study]
kind = "tune"
[study.objectives]
output_throughput = "max"
[study.axes]
"engine.max_num_seqs" = [2, 8]
"""


@pytest.fixture
def file(tmp_path):
    """Return a function that writes an experiment, and what is asked of it; returns the path as text."""
    def write(text, name="asked.toml"):
        (tmp_path / "base.toml").write_text(EXPERIMENT)
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def words(text):
    """Return a text without the breaks of its lines."""
    return " ".join(text.split())


# ---- by hand

def test_a_sentence_is_told_once_with_how_many_runs_say_it():
    said = Said()
    for id, texts in (("a", ["3 of 9 were cut", "no laws for h100"]), ("b", ["no laws for h100"]), ("c", [])):
        said.add(id, texts)
    said.add("a", ["3 of 9 were cut", "no laws for h100"])          # asked for twice, one run

    assert [(each.text, each.runs, each.of) for each in said.remarks] == [
        ("no laws for h100", ("a", "b"), 3), ("3 of 9 were cut", ("a",), 3)]
    assert said.warnings() == ["warning: in 2 of 3 runs: no laws for h100", "warning: in 1 of 3 runs: 3 of 9 were cut"]
    assert said.warnings("variants", names=True)[0] == "warning: in 2 of 3 variants (a, b): no laws for h100"


def test_sentences_that_differ_in_numbers_alone_are_one():
    said = Said()
    for id, text in (("a", "3 of 9 were cut"), ("b", "4 of 9 were cut"), ("c", "4 of 9 were cut"),
                     ("d", "no laws for h100"), ("e", "no laws for h200"), ("f", "1 output was cut"),
                     ("g", "2 outputs were cut")):
        said.add(id, [text])

    assert said.warnings() == ["warning: in 3 of 7 runs, for instance: 4 of 9 were cut",
                               "warning: in 2 of 7 runs, for instance: 1 output was cut",
                               "warning: in 1 of 7 runs: no laws for h100",
                               "warning: in 1 of 7 runs: no laws for h200"]


def test_runs_of_older_versions_are_told():
    said = Said()
    said.add("old", None)
    said.add("new", ["odd"])

    assert said.warnings()[0] == "warning: in 1 of 1 runs: odd"
    assert said.warnings()[1] == "note: 1 runs are of an older version, which did not keep their warnings"
    assert said.content()["untold_runs"] == 1


def test_a_screen_has_so_many_warnings_and_the_json_all():
    said = Said()
    said.add("a", [f"odd {'x' * i}" for i in range(30)])

    assert said.warnings()[-1] == "note: 10 warnings more are in the JSON of the study"
    assert len(said.content()["diagnosis"]) == 30


TEXTS = st.lists(st.sampled_from(["1 cut", "2 cut", "3 of 4 lost", "no laws", "7 of 4 lost"]), max_size=4)


@given(st.dictionaries(st.sampled_from("abcdef"), st.none() | TEXTS), st.randoms())
def test_what_is_told_does_not_depend_on_the_order(runs, random):
    one, halves = Said(), (Said(), Said())
    for id, texts in runs.items():
        one.add(id, texts, ["roofline"])
    for id in random.sample(sorted(runs), len(runs)):
        halves[random.randrange(2)].add(id, runs[id], ["roofline"])
    halves[0].merge(halves[1])

    assert one.content() == halves[0].content()
    assert all(0 < each.content()["runs"] <= each.of <= len(runs) for each in one.remarks)


# ---- how far backends were checked

def test_each_backend_says_how_far_it_was_checked_and_as_the_guide_has_it():
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| ([^|]*) \|$", (ROOT / "docs/guide/iteration_times.md").read_text(),
                           re.MULTILINE))
    for name in registry.KINDS["latency"].entries:
        (own,) = accuracy_of([name])
        told = re.sub(r"\. <!-- score \w+ -->(.*)<!-- -->", "", rows[name])
        assert own["checked"] == told and own["source"]
        assert (own["score"] or "") in rows[name]
        assert bool(own["score"]) == ("<!-- score" in rows[name])


def test_of_a_class_of_a_users_nothing_is_known():
    assert accuracy_of(["mylab:Mine"]) == [
        {"backend": "mylab:Mine", "checked": "a class of your own, of which nothing is known", "score": None,
         "source": None}]


def test_an_old_price_is_told_as_a_run_tells_it():
    experiment = load_experiment(ROOT / "configs/quickstart.toml", [
        'prices={"h100-sxm-80gb" = {per_gpu_hour = 2.0, currency = "USD", date = "2024-01-01", source = "a list"}}'])

    assert words(" ".join(aged_prices(experiment, date(2026, 1, 1)))) == (
        "warning: prices.h100-sxm-80gb: 2 an hour is 731 days old (2024-01-01, a list)")
    assert not list(aged_prices(experiment, date(2024, 2, 1)))


# ---- through the commands

def test_a_sweep_tells_what_its_runs_say(file, tmp_path, capsys):
    study = file(STUDY)
    assert cli.main(["sweep", study, "--out", str(tmp_path / "out"), "--jobs", "1"]) == 0
    told = capsys.readouterr().out
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())

    (remark,) = summary["diagnosis"]
    assert (remark["runs"], remark["of"]) == (8, 8) and "cut at max_model_len" in remark["text"]
    assert f"warning: in 8 of 8 runs, for instance: {remark['text']}" in words(told)
    assert "accuracy of linear: not compared with real servers; checked: by hand" in words(told)
    assert [each["backend"] for each in summary["accuracy"]] == ["linear"]
    alone = simulator.run(tmp_path / "base.toml", {"workload.arrival.rate_per_s": 10.0, "engine.max_num_seqs": 2})
    assert remark["text"] in [*alone.summary["diagnosis"], *simulator.run(tmp_path / "base.toml", {"seed": 6}).summary[
        "diagnosis"]]
    (section,) = [each for each in page_of(tmp_path / "out").after if each.title == "What the runs say"]
    assert section.rows == (("8 of 8", f"for instance: {remark['text']}"),) and "linear" in section.says
    assert simulator.load_study(tmp_path / "out").said["diagnosis"] == [remark]


def test_quiet_leaves_the_points_and_warnings_on_stderr(file, tmp_path, capsys):
    assert cli.main(["sweep", file(STUDY), "--out", str(tmp_path / "out"), "--jobs", "1", "--quiet"]) == 0
    told = capsys.readouterr()

    assert len(told.out.splitlines()) == 5 and told.out.split()[:2] == ["rate_per_s", "max_num_seqs"]
    assert told.err.startswith("warning: 1 of 4 points have no steady state: their queue grows\n"
                               "warning: in 8 of 8 runs") and "accuracy" not in told.err


def test_quiet_numbers_lists_of_tables_leaves_out_constant_axes_and_warns_of_thin_points(file, tmp_path, capsys):
    axes = """"cluster.routing.scorers" = [
    [{name = "queue-depth", weight = 1.0}], [{name = "kv-utilization", weight = 2.0}]]
"cluster.routing.policy" = ["weighted"]
[study.statistics]
metrics = ["ttft_ms.p99"]
"""
    text = STUDY[:STUDY.index("[study.axes]")] + "[study.axes]\n" + axes
    assert cli.main(["sweep", file(text), "--out", str(tmp_path / "out"), "--jobs", "1", "--quiet"]) == 0
    told = capsys.readouterr()

    assert "policy" not in told.out
    assert 'scorers 1: [{"name": "queue-depth", "weight": 1.0}]\n' in told.out
    assert [line.split()[0] for line in told.out.splitlines()[1:3]] == ["1", "2"]
    assert told.err.startswith("warning: 2 of 2 points have percentiles of too few requests (thin)\n")


def test_shards_in_any_order_give_the_same_texts_and_bytes(file, tmp_path):
    study, whole, shared = file(STUDY), tmp_path / "whole", tmp_path / "shared"
    assert cli.main(["sweep", study, "--out", str(whole), "--jobs", "1", "--quiet"]) == 0
    for shard in ("2/3", "0/3", "1/3"):
        assert cli.main(["sweep", study, "--out", str(shared), "--jobs", "1", "--quiet", "--shard", shard]) == 0
    assert cli.main(["study", "merge", str(shared)]) == 0

    for name in ("summary.json", "table.csv", "table.h5"):
        assert (whole / name).read_bytes() == (shared / name).read_bytes()


def as_of_an_older_version(out):
    """Take out of the segments of a study what older versions did not write."""
    for path in (out / FOLDER).iterdir():
        ends = [read_line(line) for line in path.read_bytes().splitlines(keepends=True)]
        path.write_bytes(b"".join(line_of(end._replace(extra={
            key: value for key, value in end.extra.items() if key not in ("diagnosis", "backends")})) for end in ends))


def test_studies_of_older_versions_are_read(file, tmp_path, capsys):
    out = tmp_path / "out"
    assert cli.main(["sweep", file(STUDY), "--out", str(out), "--jobs", "1", "--quiet"]) == 0
    before = (out / "table.h5").read_bytes()
    as_of_an_older_version(out)
    capsys.readouterr()

    assert cli.main(["study", "merge", str(out)]) == 0
    assert "note: 8 runs are of an older version" in capsys.readouterr().out
    assert (out / "table.h5").read_bytes() == before
    assert len(simulator.load_study(out).runs) == 8 and simulator.load_study(out).said["diagnosis"] == []
    assert "What the runs say" in [each.title for each in page_of(out).after]
    assert cli.main(["study", "check", str(out)]) == 0


@pytest.mark.parametrize(("command", "asks", "name"), [("capacity", CAPACITY, "capacity.json"),
                                                       ("tune", TUNE, "tune.json")])
def test_a_search_tells_what_its_runs_say(file, tmp_path, capsys, command, asks, name):
    study, out = file(EXPERIMENT + asks), tmp_path / "out"
    assert cli.main([command, study, "--out", str(out)]) == 0
    told, content = capsys.readouterr().out, json.loads((out / name).read_text())

    (remark,) = [each for each in content["diagnosis"] if "cut at max_model_len" in each["text"]]
    assert 0 < remark["runs"] <= remark["of"] == len({
        read_line(line).id for path in (out / FOLDER).iterdir() for line in path.read_bytes().splitlines(True)})
    example = "" if remark["alike"] else ", for instance"
    assert f"warning: in {remark['runs']} of {remark['of']} runs{example}: {remark['text']}" in words(told)
    assert "accuracy of linear: " in words(told) and content["accuracy"][0]["backend"] == "linear"
    (section,) = [each for each in page_of(out).after if each.title == "What the runs say"]
    assert any(remark["text"] in row[1] for row in section.rows)
    bytes_of = (out / name).read_bytes()
    assert cli.main([command, study, "--out", str(out), "--quiet"]) == 0        # nothing is run again
    assert (out / name).read_bytes() == bytes_of
    assert capsys.readouterr().err.count("cut at max_model_len") == 1


def test_a_search_for_rates_in_processes_tells_the_same(file, tmp_path):
    study = file(EXPERIMENT + TUNE.replace('"tune"\n', '"tune"\nload = "capacity"\nrel_tol = 0.3\nmax_seeds = 3\n'
                                           'slo = {"ttft_ms.mean" = {max = 1000.0}}\n'))
    for jobs in ("1", "2"):
        assert cli.main(["tune", study, "--out", str(tmp_path / jobs), "--jobs", jobs, "--quiet"]) == 0

    one, two = ((tmp_path / jobs / "tune.json").read_text() for jobs in ("1", "2"))
    assert one == two and "cut at max_model_len" in one


def test_a_comparison_names_the_variants_that_say_something(file, tmp_path, capsys):
    path = file('base = "base.toml"\n[[variants]]\nname = "short"\n[[variants]]\nname = "long"\n'
                "engine = {max_model_len = 512}\n")
    assert cli.main(["compare", path, "--out", str(tmp_path / "out")]) == 0
    told, content = words(capsys.readouterr().out), json.loads((tmp_path / "out" / "comparison.json").read_text())

    (remark,) = content["diagnosis"]
    assert (remark["names"], remark["runs"], remark["of"]) == (["short"], 1, 2)
    assert f"warning: in 1 of 2 variants (short): {remark['text']}" in told and "accuracy of linear: " in told
    assert content["accuracy"][0]["backend"] == "linear"


@pytest.mark.parametrize("name", ["throughput", "serve", "latency"])
def test_a_benchmark_tells_what_its_run_says(file, tmp_path, capsys, name):
    path, out = file(EXPERIMENT.replace(CUT, "max_model_len = 2048")), tmp_path / "result.json"
    save = ["--save-result", "--result-filename", str(out)] if name == "serve" else ["--output-json", str(out)]
    count = ["--num-iters", "1"] if name == "latency" else ["--num-prompts", "4"]
    assert cli.main(["bench", name, path, *save, *count]) == 0
    content = json.loads(out.read_text())

    assert content["accuracy"][0]["backend"] == "linear" and isinstance(content["diagnosis"], list)
    assert "accuracy of linear: " in capsys.readouterr().err
    assert cli.main(["bench", name, path, *count, "--quiet"]) == 0
    assert "accuracy" not in capsys.readouterr().err
