"""The board of scores: ranking, causes, the gate of the published points, data sets of a user's own."""
import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from simulator import cli
from simulator.study.accuracy.ranking import Run, _answers, kendall_tau
from support.accuracy import POINTS, TEXT, score, write_set
from support.goldens import GOLDENS

ROOT = Path(__file__).parents[2]
RATES = [f"{name},h100-sxm-80gb,llama-3.1-8b,,,1,100,20,{clients},20,{tpot},20,{peer}"
         for name, clients, tpot, peer in (("a", 1, 8, 9), ("b", 2, 12, 8), ("c", 4, 20, 30))]


class Anything:
    """A data set whose measurements are all compared."""

    says = None

    @staticmethod
    def why_unusable(metric, model):
        return None


def test_kendalls_tau_is_that_worked_out_by_hand():
    # Of three pairs two are in order, one is not: 1/3. A tie on one side: 2 of sqrt(2 x 3).
    assert kendall_tau(np.array([1.0, 3.0, 2.0]), np.array([1.0, 2.0, 3.0])) == pytest.approx(1 / 3)
    assert kendall_tau(np.array([1.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0])) == pytest.approx(2 / 6 ** 0.5)
    assert kendall_tau(np.array([1.0, 1.0, 1.0]), np.array([1.0, 2.0, 3.0])) is None
    assert kendall_tau(np.array([1.0, 2.0]), np.array([1.0, 2.0])) is None


def test_choices_are_those_worked_out_by_hand():
    # Limits: sqrt(8 x 12) = 9.8 and sqrt(12 x 20) = 15.5 ms.
    def answers(*predicted):
        runs = zip((1.0, 2.0, 4.0), (8.0, 12.0, 20.0), predicted, strict=True)
        return _answers(Anything, "m", [Run("", load, {"tpot": measured}, {"tpot": ours})
                                        for load, measured, ours in runs])

    right = {"questions": 2, "unanswered_pct": 0.0, "broken_pct": 0.0, "regret_pct": 0.0}
    assert answers(8.0, 12.0, 20.0) == right
    # b is chosen below 9.8 ms, and takes 12; at 15.5 it is right
    assert answers(8.0, 9.0, 20.0) == right | {"broken_pct": 50.0}
    # a is chosen at 15.5 ms: 1/8 in place of 2/12 clients per ms
    assert answers(8.0, 16.0, 20.0) == pytest.approx(right | {"regret_pct": 100 * (1 - 0.125 / (2 / 12)) / 2})
    assert answers(30.0, 31.0, 32.0) == {
        "questions": 2, "unanswered_pct": 100.0, "broken_pct": None, "regret_pct": None}


def test_runs_are_ranked_by_each_predictor(tmp_path):
    write_set(tmp_path, points=RATES)
    _, found = score(tmp_path, "--backend", "linear")
    rankings = {each["backend"]: each for each in found["rankings"]}

    assert rankings["Peer (published)"]["kendall"] == {"tpot": pytest.approx(1 / 3)}
    assert rankings["linear"]["questions"] == rankings["Peer (published)"]["questions"] == 2
    assert rankings["linear"]["kendall"] == {}                      # every iteration takes 10 ms
    assert "| llama-3.1-8b, h100-sxm-80gb (made-up) | linear | 3 |" in (tmp_path / "out/score.md").read_text()


def test_the_worst_rows_have_their_causes(tmp_path):
    write_set(tmp_path, TEXT + '[[causes]]\nmetrics = ["ttft"]\nbackend = "linear"\ncause = "a slow front end"\n')
    score(tmp_path, "--backend", "linear", "--backend", "roofline")
    text = (tmp_path / "out/score.md").read_text().split("## Worst rows")[1]

    assert "| linear | llama-3.1-8b, h100-sxm-80gb (made-up) | TTFT | a slow front end | 2 | 37.5 | -12.5 |" in text
    assert "| TPOT | not understood |" in text and "| roofline |" in text


def test_the_gate_compares_points_of_what_is_scored(tmp_path, capsys):
    write_set(tmp_path)
    score(tmp_path, "--backend", "linear", "--backend", "roofline", out="before")
    gate = ("--backend", "linear", "--gate", str(tmp_path / "before/points.csv"))
    assert score(tmp_path, *gate)[0] == 0
    # TTFT 37.5 to 41.25 %: by 3.75 points, and exactly a tenth; 42 is more; TPOT 10 to 9 %
    assert score(tmp_path, *gate, "--set", "latency.base_us=11_000.0")[0] == 0
    assert score(tmp_path, *gate, "--set", "latency.base_us=11_200.0")[0] == 1
    worse = [line for line in capsys.readouterr().err.splitlines() if line.startswith("worse: ")]
    assert worse == ["worse: made-up, linear, ttft: MAPE grew from 37.50 to 42.00 %, by more than 10 % and 2 points; "
                     "most of all: b 25.0 to 40.0 %; a 50.0 to 44.0 %"]
    write_set(tmp_path, points=POINTS[:1])
    assert score(tmp_path, *gate)[0] == 1
    assert "made-up, linear, ttft: 1 of 2 points are gone" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "fault"), [
    (None, "No such file"), ("a,b\n1,2\n", "points.csv:1: no column data_set"),
    ("data_set,backend,label,metric,unit,measured,predicted\nx,linear,a,ttft,ms,1,fast\n", "points.csv:2: ")])
def test_points_that_cannot_be_read_are_refused(tmp_path, capsys, text, fault):
    write_set(tmp_path)
    if text is not None:
        (tmp_path / "points.csv").write_text(text)
    assert cli.main(["score", str(tmp_path / "sets"), "--gate", str(tmp_path / "points.csv")]) == 2
    assert fault in capsys.readouterr().err


@pytest.fixture
def mine(tmp_path):
    """Return a data set as `import` writes it, its experiment filled in."""
    (tmp_path / "elsewhere").mkdir()
    folder = write_set(tmp_path / "elsewhere", TEXT.replace("made-up", "mine").replace(
        "[experiment.engine]", '[experiment.model]\nname = "llama-3.1-8b"\n[experiment.hardware]\n'
        'name = "h100-sxm-80gb"\n[experiment.engine]'), POINTS[:2])
    file = folder / "dataset.toml"
    (folder / "one.csv").write_bytes((tmp_path / "elsewhere/one.csv").read_bytes())
    file.write_text(file.read_text().replace('path = "one.csv"', 'path = "./one.csv"'))
    return folder


def test_data_sets_of_ones_own_stay_on_the_board(tmp_path, mine):
    write_set(tmp_path)
    sets = [score(tmp_path, "--backend", "linear", *options)[1]["data_sets"] for options in (
        (), ("--add", str(mine)), (), ("--add", str(mine)))]

    assert [[each["name"] for each in one] for one in sets] == [["made-up"], *[["made-up", "mine"]] * 3]
    assert (tmp_path / "out/own/mine/one.csv").read_bytes() == (mine / "one.csv").read_bytes()


@pytest.mark.parametrize(("change", "fault"), [
    (("./one.csv", "{root}/one.csv"), "lies elsewhere"), (("[experiment.model]", "[other]"), "other"),
    (('[experiment.hardware]\nname = "h100-sxm-80gb"\n', ""), "experiment.hardware: missing"),
    (("./one.csv", "./two.csv"), "not found")])
def test_data_sets_that_cannot_be_added_are_refused_and_nothing_is_copied(tmp_path, mine, capsys, change, fault):
    write_set(tmp_path)
    file = mine / "dataset.toml"
    shutil.copy(mine / "one.csv", tmp_path / "one.csv")
    file.write_text(file.read_text().replace(change[0], change[1].format(root=tmp_path)))
    status = cli.main(["score", str(tmp_path / "sets"), "--root", str(tmp_path), "--out", str(tmp_path / "out"),
                       "--add", str(mine), "--quiet"])

    assert status == 2 and fault in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_board_must_be_named(tmp_path, mine, capsys):
    assert cli.main(["score", str(tmp_path), "--add", str(mine)]) == 2
    assert "--add: --out must name the board" in capsys.readouterr().err


def test_published_points_and_scores_are_of_the_same_data_sets():
    board = ROOT / "docs/scoreboard"
    known = {each["name"] for each in json.loads((board / "score.json").read_text())["data_sets"]}
    with (board / "points.csv").open() as stream:
        points = list(csv.DictReader(stream))

    assert {each["data_set"] for each in points} == known
    assert {each["backend"] for each in points} == {"operators", "roofline"}


@pytest.mark.ci
@pytest.mark.skipif(not (GOLDENS.parent / "data/measured_gpu").is_dir(), reason="no measurements beside the recordings")
@pytest.mark.parametrize("name", ["h200_minimax", "h200_deepseek_sglang", "a100_qwen3_14b_bursts"])
def test_no_deployment_of_a_sample_is_worse_than_published(name, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    status = cli.main(["score", f"bench/accuracy/{name}", "--root", str(GOLDENS.parent / "data"), "--backend",
                       "roofline", "--gate", "--quiet"])

    assert status == 0, capsys.readouterr().err
