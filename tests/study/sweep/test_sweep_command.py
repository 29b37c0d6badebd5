"""A sweep is kept as it goes, resumed where it stopped, and the same bytes however it was run."""
import csv
import io
import json
import os
import platform
import subprocess
import sys

import h5py
import numpy as np
import pytest

import simulator
from simulator import cli
from simulator.study.sweep.merge import csv_of, runs_table
from simulator.study.sweep.plan import read
from simulator.study.sweep.segments import FOLDER, Segment, read_all
from simulator.study.sweep.trial import Finished, Trial, line_of, read_line


def sweep(study, out, *options):
    return cli.main(["sweep", str(study), "--out", str(out), "--jobs", "1", *options])


def test_tables_hold_runs_and_points(study, tmp_path, capsys):
    assert sweep(study, tmp_path / "out") == 0
    assert "\n\n8 done\n" in capsys.readouterr().out
    with h5py.File(tmp_path / "out" / "table.h5") as file:
        runs, points = file["runs"][:], file["points"][:]
        assert list(file["runs"].attrs["status_names"]) == ["done", "refused", "failed", "timeout", "killed"]
    assert runs["workload.arrival.rate_per_s"].tolist() == [10.0] * 4 + [30.0] * 4
    assert runs["engine.max_num_seqs"].tolist() == [2, 2, 8, 8] * 2
    assert runs["seed"].tolist() == [5, 6] * 4 and not runs["status"].any()
    # Each row is what a run of its own says.
    alone = simulator.run(study.with_name("base.toml"), {"engine.max_num_seqs": 8, "seed": 6,
                                                         "workload.arrival.rate_per_s": 30.0}).summary
    assert runs["ttft_ms.p99"][7] == alone["ttft_ms"]["p99"]
    # Two values: mean, and half-width t(0.975, 1) = 12.7062 x |difference| / 2.
    first, second = runs["ttft_ms.mean"][6:8]
    assert points["ttft_ms.mean"][3] == pytest.approx((first + second) / 2)
    assert points["ttft_ms.mean.ci"][3] == pytest.approx(12.7062047 * abs(first - second) / 2)
    assert points["n"].tolist() == [2] * 4


def test_one_seed_has_no_interval(study, tmp_path):
    assert sweep(study, tmp_path / "out", "--set", "study.seeds=1") == 0
    points = simulator.load_study(tmp_path / "out").points
    assert np.isnan(points["ttft_ms.mean.ci"]).all() and not np.isnan(points["ttft_ms.mean"]).any()
    rows = (tmp_path / "out" / "table.csv").read_text().splitlines()
    assert len(rows) == 5


def test_points_are_paired_with_the_baseline(study, tmp_path):
    assert sweep(study, tmp_path / "out", "--set", "study.run.baseline=0") == 0
    runs, points = simulator.load_study(tmp_path / "out")
    differences = runs["ttft_ms.mean"][2:4] - runs["ttft_ms.mean"][0:2]
    assert points["ttft_ms.mean.delta"][1] == pytest.approx(differences.mean())
    assert points["ttft_ms.mean.delta_ci"][1] == pytest.approx(12.7062047 * abs(np.diff(differences)[0]) / 2)
    assert points["ttft_ms.mean.delta"][0] == 0 and points["ttft_ms.mean.delta_ci"][0] == 0


def test_resumed_sweep_runs_what_is_missing(study, tmp_path, monkeypatch):
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    assert sweep(study, whole) == 0
    assert sweep(study, halves, "--shard", "0/2") == 0
    (segment,) = (halves / FOLDER).iterdir()
    before = segment.read_bytes()
    assert sweep(study, halves) == 0
    assert segment.read_bytes() == before and len(read_all(halves).finished) == 8
    assert (halves / "table.h5").read_bytes() == (whole / "table.h5").read_bytes()
    assert (halves / "table.csv").read_bytes() == (whole / "table.csv").read_bytes()
    monkeypatch.setattr("simulator.study.sweep.bench.Bench.run", lambda *_: pytest.fail("run again"))
    assert sweep(study, whole) == 0


@pytest.mark.parametrize("cut", [1, 2, 30, 500])
def test_torn_line_is_done_again(study, tmp_path, cut, capsys):
    out = tmp_path / "out"
    assert sweep(study, out) == 0
    tables = (out / "table.h5").read_bytes()
    (segment,) = (out / FOLDER).iterdir()
    segment.write_bytes(segment.read_bytes()[:-cut])
    stored = read_all(out)
    assert (len(stored.finished), stored.num_torn) == (7, 1)
    capsys.readouterr()
    assert sweep(study, out) == 0
    assert "note: 1 run had not been written to the end and is done again" in capsys.readouterr().err
    assert (out / "table.h5").read_bytes() == tables


def test_damage_in_the_middle_is_told_and_set_aside(study, tmp_path, capsys):
    out = tmp_path / "out"
    assert sweep(study, out) == 0
    tables = (out / "table.h5").read_bytes()
    (segment,) = (out / FOLDER).iterdir()
    lines = segment.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"done", b"dune")
    segment.write_bytes(b"".join(lines))
    capsys.readouterr()
    assert sweep(study, out) == 2
    assert f"{segment}:3: damaged: its CRC is not that of the line; `study check --repair`" in capsys.readouterr().err
    assert cli.main(["study", "check", str(out)]) == 1
    assert cli.main(["study", "check", str(out), "--repair"]) == 0
    assert sweep(study, out) == 0
    assert (out / "table.h5").read_bytes() == tables


def test_run_that_came_out_differently_is_told(study, tmp_path, capsys):
    out = tmp_path / "out"
    assert sweep(study, out) == 0
    first = next(iter(read_all(out).finished.values()))
    with Segment(out) as segment:
        segment.append(first._replace(summary=first.summary | {"ttft_ms.p99": 12.3}))
    capsys.readouterr()
    assert sweep(study, out) == 1
    error = capsys.readouterr().err
    assert f"not deterministic: id {first.id}: ttft_ms.p99" in error and "12.3" in error


def test_equal_runs_of_two_segments_count_once(study, tmp_path):
    out = tmp_path / "out"
    assert sweep(study, out) == 0
    first = next(iter(read_all(out).finished.values()))
    with Segment(out) as segment:
        segment.append(first._replace(wall_s=99.0, attempts=3))
    assert sweep(study, out) == 0


def test_changed_study_is_refused_unless_it_asks_for_more(study, rewrite, tmp_path, capsys):
    out = tmp_path / "out"
    assert sweep(study, out) == 0
    rewrite(("[2, 8]", "[2, 8, 16]"))
    capsys.readouterr()
    assert sweep(study, out) == 2
    assert "4 are new" in capsys.readouterr().err
    assert sweep(study, out, "--extend") == 0
    assert len(simulator.load_study(out).runs) == 12
    rewrite(("[2, 8, 16]", "[2]"))
    assert sweep(study, out, "--extend") == 2
    assert "8 of its 12 runs are no longer asked for" in capsys.readouterr().err


@pytest.mark.parametrize(("change", "told"), [
    ('study.statistics.warmup="mser5"', "warmup: the runs in"),
    ("study.statistics.confidence=0.9", "confidence: the runs in"),
    ('study.statistics.metrics=["e2el_ms.mean"]', "metrics: the runs in")])
def test_runs_that_were_looked_at_otherwise_are_not_taken(study, tmp_path, change, told, capsys):
    out = tmp_path / "out"
    assert sweep(study, out) == 0
    before = (out / "study.toml").read_bytes()
    assert sweep(study, out, "--set", change) == 2
    assert f"study.statistics.{told} {out} were looked at with" in capsys.readouterr().err
    assert (out / "study.toml").read_bytes() == before
    assert sweep(study, out, "--set", "study.run.timeout_s=60.0", "--set", "study.run.baseline=1") == 0


def test_longer_runs_until_the_numbers_are_sure(study, tmp_path):
    out = tmp_path / "out"
    assert sweep(study, out, "--set", "study.statistics.precision=0.3", "--set", "study.statistics.max_requests=240",
                 "--set", 'study.statistics.metrics=["ttft_ms.mean"]', "--set", "study.seeds=3") == 0
    runs, points = simulator.load_study(out)
    assert (out / "plan-2.jsonl").exists()
    assert set(runs["num_requests"].tolist()) >= {60, 120}
    is_sure = points["ttft_ms.mean.ci"] <= 0.3 * points["ttft_ms.mean"]
    assert ((points["n"] == 32) | is_sure | np.isnan(points["ttft_ms.mean.ci"])).all()
    assert sweep(study, out, "--set", "study.statistics.precision=0.3", "--set", "study.statistics.max_requests=240",
                 "--set", 'study.statistics.metrics=["ttft_ms.mean"]', "--set", "study.seeds=3") == 0


def test_twice_the_requests_begin_with_the_same(study):
    base = study.with_name("base.toml")
    short, long = (simulator.run(base, {"workload.num_requests": count}).requests for count in (60, 120))
    for name in ("arrival_ns", "prompt_tokens"):
        assert (long[name][:60] == short[name]).all()


def test_point_that_does_not_fit_is_refused_and_no_failure(rewrite, tmp_path, capsys):
    path = rewrite(
        ('"engine.max_num_seqs" = [2, 8]', '"engine" = [{num_gpu_blocks = 200}, {gpu_memory_utilization = 0.5}]'),
        ("[study]\n", '[model]\nname = "llama-3.1-70b"\n[hardware]\nname = "h100-sxm-80gb"\n[study]\n'))
    base = path.with_name("base.toml")
    base.write_text(base.read_text().replace("num_gpu_blocks = 200\n", ""))
    assert sweep(path, tmp_path / "out") == 0
    assert "\n\n4 done, 4 refused\n" in capsys.readouterr().out
    runs = simulator.load_study(tmp_path / "out").runs
    assert b"weights need" in runs["error"][2] and np.isnan(runs["ttft_ms.mean"][2])


def test_fewer_processes_run_where_memory_holds_no_more(study, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("simulator.study.sweep_command.free_bytes", lambda: 100e6)     # two of 46 MB
    assert cli.main(["sweep", str(study), "--out", str(tmp_path / "out"), "--jobs", "5"]) == 0
    told = capsys.readouterr().err
    assert "note: 5 processes of 0.046 GB each do not fit into the 0.1 GB that are free: 2 run side by side" in told


def test_stopped_sweep_asks_to_be_run_again(study, tmp_path):
    assert sweep(study, tmp_path / "out", "--stop-after", "0s") == 75
    assert not (tmp_path / "out" / FOLDER).exists() or not list((tmp_path / "out" / FOLDER).iterdir())
    assert sweep(study, tmp_path / "out") == 0


def test_kept_runs_have_their_results(study, tmp_path):
    assert sweep(study, tmp_path / "out", "--keep", "all") == 0
    folders = list((tmp_path / "out" / "runs").iterdir())
    assert len(folders) == 8 and all((folder / "results.h5").exists() for folder in folders)


def test_dry_run_writes_nothing(study, tmp_path, capsys):
    assert sweep(study, tmp_path / "out", "--dry-run") == 0
    assert capsys.readouterr().out.startswith("4 points, 8 runs\npoint 0: done, 60 requests in ")
    assert not (tmp_path / "out").exists()


def test_strange_directory_is_left_alone(study, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    assert sweep(study, tmp_path / "out") == 2
    assert "holds something else than a study (mine.txt)" in capsys.readouterr().err
    assert os.listdir(tmp_path / "out") == ["mine.txt"]


def test_status_and_table(study, tmp_path, capsys):
    sweep(study, tmp_path / "out", "--shard", "1/2")
    capsys.readouterr()
    assert cli.main(["study", "status", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out == "4 of 8 runs: 4 done\n"
    assert cli.main(["study", "table", str(tmp_path / "out"), "--format", "json"]) == 0
    assert sum(row["status"] == "done" for row in json.loads(capsys.readouterr().out)) == 4
    assert cli.main(["study", "merge", str(tmp_path / "out")]) == 0
    assert "4 runs are missing" in capsys.readouterr().out
    assert cli.main(["study", "status", str(tmp_path)]) == 2


def test_the_table_has_the_requests_of_each_run(study, tmp_path, capsys):
    assert sweep(study, tmp_path / "out") == 0
    capsys.readouterr()

    assert cli.main(["study", "table", str(tmp_path / "out")]) == 0
    printed = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    written = list(csv.DictReader(io.StringIO((tmp_path / "out/table.csv").read_text())))
    assert printed == written
    counts = {float(row["num_requests"]) for row in printed}
    assert counts == {float(row["requests.injected"]) + float(row["warmup_requests"]) for row in printed}


def test_a_workload_without_a_number_of_requests_has_a_blank():
    table = runs_table([Trial(0, "0" * 16, 0, 0, 1, {})], [None])

    assert table["num_requests"].tolist() == [-1]
    assert next(csv.DictReader(io.StringIO(csv_of(table))))["num_requests"] == ""


def test_line_is_read_back_and_a_changed_one_is_not():
    finished = Finished("0" * 16, 1, 0, 5, "done", None, 1, {"a.b": 1.5, "c": None}, {"thin": ["ä"]}, 0.25)
    line = line_of(finished)
    assert read_line(line) == finished
    assert [read_line(changed) for changed in (line.replace(b"1.5", b"1.6"), line[:-1], b"{}\n")] == [None] * 3


def test_table_is_comma_separated_values_whatever_an_error_says(study, tmp_path):
    planned = list(read(_settled(study, tmp_path / "out") / "plan.jsonl"))
    ends = [Finished(trial.id, trial.index, trial.replication, trial.seed, "failed", 'a, "b"\nc', 1,
                     {"x": 0.1, "y": None, "z": 1e22}, {"backlog": "stable"}, 0.0) for trial in planned]
    rows = list(csv.DictReader(io.StringIO(csv_of(runs_table(planned, ends)))))
    assert [row["id"] for row in rows] == [trial.id for trial in planned]
    assert {row["error"] for row in rows} == {'a, "b"\nc'} and {row["y"] for row in rows} == {""}
    assert {(float(row["x"]), float(row["z"])) for row in rows} == {(0.1, 1e22)}


def _settled(study, out):
    sweep(study, out, "--stop-after", "0s")
    return out


def test_python_gets_the_tables(study):
    studied = simulator.sweep(study)
    assert len(studied.runs) == 8 and len(studied.points) == 4


def test_tables_are_data_frames(study, tmp_path, monkeypatch):
    pytest.importorskip("pandas")
    sweep(study, tmp_path / "out", "--set", "cluster.routing.policy=round_robin", "--set",
          'study.axes={"engine.max_num_seqs"=[2, 8], "cluster.routing.policy"=["round_robin", "random"]}')
    studied = simulator.load_study(tmp_path / "out")
    points, runs = studied.to_pandas(), studied.to_pandas("runs")
    assert points["cluster.routing.policy"].tolist() == ["round_robin", "random"] * 4
    assert points["ttft_ms.mean"].tolist() == studied.points["ttft_ms.mean"].tolist()
    assert runs["status"].tolist() == ["done"] * 16 and set(runs["backlog"]) <= {"stable", "growing", "unknown"}
    assert runs["id"].tolist() == [each.decode() for each in studied.runs["id"]]
    begun = simulator.load_study(_settled(study, tmp_path / "begun")).to_pandas("runs")
    assert begun["status"].isna().all()             # none has ended
    with pytest.raises(ValueError, match=r"no table 'point'; did you mean points\?"):
        studied.to_pandas("point")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="to_pandas needs pandas: pip install pandas"):
        studied.to_pandas()


def test_a_sweep_of_which_nothing_can_run_says_why(study, tmp_path, capsys):
    """It ended with 0 and `8 refused`, and no word of why."""
    base = study.with_name("base.toml")
    base.write_text(base.read_text().partition("[workload]")[0] + '[workload]\ntype = "trace"\npath = "t.csv"\n')
    study.with_name("t.csv").write_text("")
    axes = ("--set", 'study.axes={"workload.time_scale"=[1.0]}')
    study.write_text(study.read_text().replace('"workload.arrival.rate_per_s" = [10.0, 30.0]\n', ""))

    assert sweep(study, tmp_path / "out", *axes) == 2
    assert capsys.readouterr().err.endswith(f"refused: 4 runs: {tmp_path}/t.csv: the file is empty\n")
    assert cli.main(["validate", str(study)]) == 2
    assert f"{tmp_path}/t.csv: the file is empty" in capsys.readouterr().err


def test_a_table_that_cannot_be_written_is_told(study, tmp_path):
    """HDF5 itself crashed at exit after a failed write."""
    limited = ("import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, 4_000)); "
               "from simulator import cli; sys.exit(cli.main(sys.argv[1:]))")
    sweep(study, tmp_path / "out")
    done = subprocess.run([sys.executable, "-c", limited, "study", "merge", str(tmp_path / "out")],
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"{tmp_path}/out/table.h5: cannot be written: File too large\n")
    assert sorted(path.name for path in (tmp_path / "out").glob("*.partial")) == []


def test_timings_tell_where_and_when_each_run_began(study, tmp_path):
    assert sweep(study, tmp_path / "out") == 0

    head, *rows = [line.split(",") for line in (tmp_path / "out/timings.csv").read_text().splitlines()]
    assert head == ["id", "wall_s", "attempts", "host", "began"]
    assert rows and all(row[3] == platform.node() and row[4].endswith("+00:00") for row in rows)
