"""`report DIR` on studies: it knows what they are, writes the same bytes again, and refuses what does not go."""
import re

import pytest

from simulator.cli import main
from simulator.errors import InputErrors
from simulator.study.reports.kinds import kind_of
from study.reports.made import sweep
from support.studies import EXPERIMENT, STUDY

POINTS = [({"workload.arrival.rate_per_s": rate, "engine.max_num_seqs": seqs}, (rate + seqs, rate + seqs + 1.0))
          for rate in (2.0, 4.0) for seqs in (8, 16)]


@pytest.fixture
def matplotlib():
    return pytest.importorskip("matplotlib", reason="pictures come with the extra `report`")


@pytest.fixture
def made(tmp_path):
    return sweep(tmp_path / "made", POINTS)


@pytest.fixture
def study(tmp_path):
    (tmp_path / "base.toml").write_text(EXPERIMENT)
    (tmp_path / "small.toml").write_text(STUDY)
    return str(tmp_path / "small.toml")


@pytest.mark.parametrize(("name", "kind"), [
    ("plan.jsonl", "sweep"), ("capacity.json", "capacity"), ("tune.json", "tune"), ("calibration.json", "calibrate"),
    ("results.h5", "run")])
def test_files_tell_what_a_directory_holds(tmp_path, name, kind):
    (tmp_path / name).touch()

    assert kind_of(tmp_path) == kind


def test_a_search_without_its_answer_is_known_by_its_study(tmp_path):
    (tmp_path / "look.json").touch()
    with pytest.raises(InputErrors, match="runs of a search without its answer"):
        kind_of(tmp_path)
    (tmp_path / "study.toml").write_text('[study]\nkind = "tune"\n')

    assert kind_of(tmp_path) == "tune"


def test_the_page_is_alone_small_and_the_same_again(made, matplotlib, capsys):
    assert main(["report", str(made)]) == 0
    first = (made / "report.html").read_bytes()
    assert main(["report", str(made), "--quiet"]) == 0

    assert (made / "report.html").read_bytes() == first
    text = first.decode()
    assert capsys.readouterr().out == f"report in {made / 'report.html'}\n"
    assert "<h1>made</h1>" in text and len(first) < 2_000_000
    assert not re.search(r"https?:|<script|<link|@import|url\((?!#)", text)
    for figure in re.findall(r"<figure.*?</figure>", text, re.DOTALL):
        assert "<h3>" in figure and "<details>" in figure and "<svg" in figure


def test_pictures_have_the_names_of_charts(made, matplotlib):
    assert main(["report", str(made), "--format", "svg", "--quiet"]) == 0

    assert {path.name for path in (made / "report").iterdir()} >= {"curve_0.svg", "load_latency.svg", "effect_0_0.svg"}


def test_plots_say_the_verdict_first(made, capsys):
    pytest.importorskip("plotext", reason="plots in the terminal come with the extra `report`")
    assert main(["report", str(made), "--plot"]) == 0

    assert capsys.readouterr().out.startswith("4 points, 8 runs: 8 done; no queue grows.\n")
    assert not (made / "report.html").exists()


def test_a_request_is_of_runs_alone(made, capsys):
    assert main(["report", str(made), "--request", "3"]) == 2

    assert "--request:" in (page := capsys.readouterr().err) and "holds a sweep, which keeps no requests" in page


def test_two_kinds_are_not_compared(made, tmp_path, capsys):
    (tmp_path / "capacity.json").write_text("{}")
    assert main(["report", str(made), "--against", str(tmp_path)]) == 2

    assert f"{tmp_path} holds a capacity search, {made} a sweep; expected two of a kind" in capsys.readouterr().err


def test_a_damaged_study_is_named(made, capsys):
    (made / "study.toml").write_text("[study")
    assert main(["report", str(made)]) == 2

    assert f"{made / 'study.toml'}: cannot be read" in capsys.readouterr().err


@pytest.mark.ci
def test_a_sweep_writes_its_report_and_merge_writes_it_again(study, tmp_path, matplotlib, capsys):
    out = tmp_path / "out"
    assert main(["sweep", study, "--out", str(out), "--jobs", "1", "--report", "--quiet"]) == 0
    first = (out / "report.html").read_bytes()
    (out / "report.html").unlink()
    assert main(["study", "merge", str(out), "--report"]) == 0

    assert (out / "report.html").read_bytes() == first
    assert capsys.readouterr().out.endswith(f"report in {out / 'report.html'}\n")


def test_a_report_is_refused_where_there_will_be_none(study, tmp_path, capsys):
    out = str(tmp_path / "out")
    for command in (["sweep", study, "--out", out, "--report", "--dry-run"],
                    ["sweep", study, "--out", out, "--report", "--shard", "0/2"]):
        assert main(command) == 2
        assert "--report: does not go with" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_status_takes_no_report(made, capsys):
    assert main(["study", "status", str(made), "--report"]) == 2

    assert "--report: goes with merge, not with status" in capsys.readouterr().err
