"""The progress of runs, studies and live fleets, as `watch` shows it."""
import os

import pytest

import simulator
from simulator import cli
from simulator.results import progress
from simulator.study.exploring import watching
from simulator.study.exploring.watching import Watched
from support.explored import FILE


def test_a_place_without_anything_waits(tmp_path):
    state = Watched(str(tmp_path / "later")).state()

    assert (state["state"], state["notes"]) == ("waiting", [f"{tmp_path}/later: there are no results and no study yet"])


def test_a_run_has_its_progress_beside_its_place(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "FILE_S", 0.0)
    growing, watched = tmp_path / ".results.1.2.partial", Watched(str(tmp_path / "results"))
    growing.mkdir()

    assert (watched.state()["state"], watched.state()["progress"]) == ("running", None)
    with progress.ProgressFile(growing, 200) as file:
        file.show(3_500_000_000, 50)
        shown = watched.state()["progress"]
    assert (shown["done"], shown["total"]) == (50, 200)
    assert shown["words"].startswith("50 of 200 requests, 3.5 s simulated in 0 s, about 0 s left")
    assert os.listdir(growing) == []


def test_a_run_notes_its_progress_while_it_lasts(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "FILE_S", 0.0)
    seen = []
    monkeypatch.setattr(progress.os, "replace", lambda new, file: seen.append(file))    # a file is renewed so
    simulator.run(FILE, {"workload.num_requests": 20_000}, out=tmp_path / "results")

    assert seen
    assert seen[0].name == "progress.json"
    assert seen[0].parent.name.startswith(".results.")


def test_results_are_shown_as_facts_and_charts(tmp_path):
    simulator.run(FILE, {"workload.num_requests": 60}, out=tmp_path / "results")
    state = Watched(str(tmp_path / "results")).state()

    assert (state["title"], state["state"]) == ("quickstart", "complete")
    assert state["facts"][0] == ("requests", "60 of 60 completed")
    assert [chart["name"] for chart in state["charts"]][::4] == ["ttft_ms_cdf", "timeline"]
    assert not (tmp_path / "results" / "progress.json").exists()


def test_a_sweep_has_its_runs(tmp_path):
    file, out = tmp_path / "study.toml", str(tmp_path / "sweep")
    file.write_text(f'extends = "{FILE}"\n[workload]\nnum_requests = 20\n[study]\nkind = "sweep"\n'
                    '[study.axes]\n"engine.max_num_seqs" = [4, 8]\n')
    assert cli.main(["sweep", str(file), "--quiet", "--jobs", "1", "--out", out]) == 0
    state = Watched(out).state()

    assert (state["state"], state["progress"]) == ("complete", {
        "done": 2, "total": 2, "words": "2 of 2 runs: 2 done"})
    assert {row[0] for row in state["tables"][0]["rows"]} == {"max_num_seqs 4", "max_num_seqs 8"}


def test_a_live_fleet_is_sampled(monkeypatch):
    pages = {"http://here:1/v1/replicas": '[{"name": "replica-0", "running": 3, "waiting": 1, "kv_cache_usage": 0.5},'
                                          ' {"name": "replica-1", "running": 2, "waiting": 0, "kv_cache_usage": 0}]',
             "http://here:1/metrics": "vllm:x 3\nsimulator:speed 2\n"}
    monkeypatch.setattr(watching, "_fetched", pages.__getitem__)
    state = Watched("http://here:1/").state()

    assert state["facts"] == [["speed", "2"]]
    assert state["tables"][0]["rows"][0] == ["replica-0", "3", "1", "50.0%"]
    assert [panel["marks"][0]["y"].tolist() for panel in state["charts"][0]["panels"]] == [[5.0], [1.0], [25.0]]


def test_a_fleet_that_does_not_answer_is_named():
    state = Watched("http://127.0.0.1:9").state()       # the port of discard, where nothing listens

    assert state["notes"][0].startswith("http://127.0.0.1:9/v1/replicas: no live fleet answers: ")


def test_the_command_names_a_place_that_cannot_be(capsys):
    with pytest.raises(SystemExit):
        cli.main(["watch"])
    assert "DIR" in capsys.readouterr().err


def test_a_file_is_no_place_to_watch(tmp_path, capsys):
    (tmp_path / "summary.json").touch()

    assert cli.main(["watch", str(tmp_path / "summary.json"), "--port", "0"]) == 2
    assert "summary.json: a file, expected a directory" in capsys.readouterr().err
