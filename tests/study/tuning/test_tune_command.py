"""`tune` ranks deployments, writes experiments that `run` repeats, and goes on where it stopped."""
import csv
import os
import signal
import subprocess
import sys
import time

import pytest

import simulator
from simulator import cli
from simulator.study.sweep.bench import leaves
from simulator.study.sweep.segments import read_all

ONE = ('output_throughput_per_gpu = "max"\ntokens_per_s_per_user = "max"', '"e2el_ms.mean" = "min"')
SEEDS = ('kind = "tune"', 'kind = "tune"\nseeds = 2')
OPEN = ('layouts = ["aggregated", "disaggregated"]', 'layouts = ["aggregated"]')


def rows_of(path):
    with open(path) as stream:
        return list(csv.DictReader(stream))


def test_ranking_front_and_counts(study, tune, tmp_path, capsys):
    status, told = tune(study())
    rows = rows_of(tmp_path / "out" / "ranking.csv")
    ranked = [row for row in rows if row["rank"]]

    assert status == 0 and told["complete"] and told["search"] == "exhaustive"
    assert told["counts"] == {"feasible": 10, "too_many_gpus": 2} and told["candidates"] == len(rows) == 12
    assert [int(row["rank"]) for row in ranked] == list(range(1, 11))
    assert told["front"] == [row["id"] for row in ranked if row["front"] == "1"]
    assert rows_of(tmp_path / "out" / "pareto.csv") == [row for row in ranked if row["front"] == "1"]
    assert {row["reason"] for row in rows if not row["rank"]} == {"4 GPUs, 3 are allowed"}
    # Each row of the front is larger than every other row in one of the two.
    points = [(float(row["output_throughput_per_gpu"]), float(row["tokens_per_s_per_user"])) for row in ranked]
    for row, mine in zip(ranked, points, strict=True):
        beaten = any(other != mine and other[0] >= mine[0] and other[1] >= mine[1] for other in points)
        assert beaten == (row["front"] == "0")
    assert capsys.readouterr().out.startswith("12 candidates: 10 feasible, 2 too many gpus\n")


@pytest.mark.parametrize(("sizes", "said"), [
    ([64, 32, 128], "3 candidates: 3 feasible\n"), ([32], "1 candidate: 1 feasible\n")])
def test_of_equal_candidates_the_one_listed_first_wins_and_the_tie_is_named(study, tune, capsys, tmp_path, sizes, said):
    status, _ = tune(study(OPEN, ONE, ('"topology.tensor_parallel" = [1, 2]\n', ""), ("[8, 64]", str(sizes)),
                           ("gpus = 3\n", "gpus = 1\n"), ("base.toml", "linear.toml")))
    printed = capsys.readouterr().out

    assert status == 0 and printed.startswith(said)
    assert [int(row["engine.max_num_seqs"]) for row in rows_of(tmp_path / "out" / "ranking.csv")] == sizes
    assert ("3 candidates have the values of the first: the choice among them is free" in printed) == (len(sizes) > 1)


@pytest.mark.parametrize("changes", [(), (("num_requests = 80", "num_requests = 400"),)], ids=["few", "cut"])
def test_winners_are_experiments_that_run_repeats_to_the_last_digit(study, tune, tmp_path, changes):
    path = study(*changes[:0], SEEDS)
    base = tmp_path / "base.toml"
    for old, new in changes:
        base.write_text(base.read_text().replace(old, new))
    _, told = tune(path)
    known = read_all(tmp_path / "out").finished
    rows = rows_of(tmp_path / "out" / "ranking.csv")
    winners = sorted((tmp_path / "out" / "winners").iterdir())
    cut = 0

    assert [winner.name for winner in winners] == ["0001.toml", "0002.toml", "0003.toml"]
    for winner, row in zip(winners, rows, strict=False):
        summary = leaves(simulator.run(winner).summary)
        assert summary == known[row["id"]].summary
        cut += known[row["id"]].extra["warmup_requests"]
    assert told["best"]["id"] == rows[0]["id"]
    assert cut or not changes


def test_more_processes_and_going_on_write_the_same_bytes(study, tune, tmp_path):
    path = study(SEEDS)
    tune(path)
    files = ("ranking.csv", "pareto.csv", "tune.json", "winners/0001.toml")
    first = {name: (tmp_path / "out" / name).read_bytes() for name in files}
    # Half of the runs are lost: they are done again, and nothing else is.
    segments = tmp_path / "out" / "segments"
    lines = [line for each in segments.iterdir() for line in each.read_bytes().splitlines(keepends=True)]
    (tmp_path / "again" / "segments").mkdir(parents=True)
    (tmp_path / "again" / "look.json").write_bytes((tmp_path / "out" / "look.json").read_bytes())
    (tmp_path / "again" / "segments" / "a.jsonl").write_bytes(b"".join(lines[::2]))
    tune(path, "--jobs", "2", out="again")

    assert {name: (tmp_path / "again" / name).read_bytes() for name in files} == first
    added = [line for each in (tmp_path / "again" / "segments").iterdir() if each.name != "a.jsonl"
             for line in each.read_bytes().splitlines()]
    assert len(lines) == 20 and len(added) == 10


@pytest.mark.ci
@pytest.mark.slow
def test_killed_study_goes_on(study, tune, tmp_path, heeded_signals):
    path = study(SEEDS)
    base = tmp_path / "base.toml"
    base.write_text(base.read_text().replace("requests = 80", "requests = 2000"))
    process = subprocess.Popen([sys.executable, "-m", "simulator", "tune", str(path), "--out", str(tmp_path / "out"),
                                "--jobs", "1", "--quiet"], env=os.environ)
    until_s = time.monotonic() + 60
    while len(read_all(tmp_path / "out").finished) < 4 and time.monotonic() < until_s:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    known = len(read_all(tmp_path / "out").finished)
    assert 4 <= known < 20 and not (tmp_path / "out" / "tune.json").exists()

    assert tune(path)[0] == 0
    tune(path, out="undisturbed")
    assert len(read_all(tmp_path / "out").finished) == 20
    for name in ("ranking.csv", "tune.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()


def test_stopped_study_asks_to_be_run_again(study, tune, capsys):
    status, told = tune(study(), "--stop-after", "0s")
    assert (status, told) == (75, None)
    assert "run again" in capsys.readouterr().err


def test_nothing_qualifies(study, tune, tmp_path, capsys):
    bounds = '[study.slo]\n"ttft_ms.p99" = {max = 10.0}\nbacklog = "any"\n'
    status, told = tune(study(("[8, 64]", "[8]"), add=bounds))
    out = " ".join(capsys.readouterr().out.split())

    assert status == 3
    assert told["counts"] == {"infeasible": 5, "too_many_gpus": 1} and told["best"] is None
    nearest = min(float(row["ttft_ms.p99"]) for row in rows_of(tmp_path / "out" / "ranking.csv") if row["margin"])
    assert told["nearest_miss"]["why"] == f"ttft_ms.p99: {nearest:.6g} > 10"
    assert told["nearest_miss"]["margin"] == (10 - nearest) / 10 and told["nearest_miss"]["why"] in out


def test_bounds_leave_some_out(study, tune, tmp_path):
    _, free = tune(study(ONE))
    rows = rows_of(tmp_path / "out" / "ranking.csv")
    limit = sorted(float(row["e2el_ms.mean"]) for row in rows if row["rank"])[3]         # four keep it
    bounds = f'[study.slo]\n"e2el_ms.mean" = {{max = {limit!r}}}\nbacklog = "any"\n'
    status, told = tune(study(ONE, add=bounds), out="b")

    assert free["counts"]["feasible"] == 10 and status == 0
    assert told["counts"] == {"feasible": 4, "infeasible": 6, "too_many_gpus": 2}
    assert told["best"]["id"] == free["best"]["id"]


def test_percentiles_of_too_few_requests_that_decide_are_named(study, tune, capsys):
    # 80 requests have 4 beyond the 95th percentile, 40 above the median; the bound of the mean is never thin
    bound = OPEN, ("[study.limits]", '[study.slo]\n"ttft_ms.p95" = {max = 9000.0}\n[study.limits]')
    status, told = tune(study(*bound))
    said = capsys.readouterr().err

    assert status == 0 and told["thin"].endswith("ranked candidates are of too few requests (thin): ttft_ms.p95")
    assert "ranked candidates are of too few" in said
    assert "thin" not in tune(study(OPEN), out="b")[1] and "(thin)" not in capsys.readouterr().err


def test_a_queue_that_grows_is_infeasible_unless_any_may(study, tune, tmp_path):
    # One server of 1 ms is offered 1,250 requests a second, 0.8 ms apart: the queue grows; two take them in turn.
    pairs = (('extends = "base.toml"', 'extends = "linear.toml"\nworkload.arrival = {process = "constant", '
              'rate_per_s = 1250.0}'), ONE, OPEN, ("[1, 2]", "[1]"),
             ('"engine.max_num_seqs" = [8, 64]', '"topology.replicas" = [1, 2]'))
    bounds = '[study.slo]\n"ttft_ms.mean" = {max = 1000.0}\n'
    _, told = tune(study(*pairs, add=bounds))
    _, lenient = tune(study(*pairs, add=f'{bounds}backlog = "any"\n'), out="any")

    assert told["counts"] == {"feasible": 1, "infeasible": 1}
    assert told["reasons"] == {"infeasible": {"backlog: growing in 1 of 1 runs": 1}}
    assert told["best"]["assignment"]["topology.replicas"] == 2
    assert lenient["counts"] == {"feasible": 2}


def test_a_share_of_good_requests_is_a_bound(study, tune):
    # Arrivals 0.8 ms apart at a server of 1 ms: request i waits i x 0.2 ms, and 41 of 400 no longer than 8 ms.
    pairs = (('extends = "base.toml"', 'extends = "linear.toml"\nslo.ttft_ms = 9.0001\nworkload.arrival = {process = '
              '"constant", rate_per_s = 1250.0}\nengine.max_num_seqs = 1'), ONE, OPEN, ("[1, 2]", "[1]"),
             ('"engine.max_num_seqs" = [8, 64]', '"topology.replicas" = [1]'))
    counts = {}
    for share in (41 / 400, 42 / 400):
        bounds = f'[study.slo]\nbacklog = "any"\ngoodput_share = {{min = {share}}}\n'
        told = tune(study(*pairs, add=f'{bounds}[study.statistics]\nwarmup = "none"\n'), out=f"out{share}")[1]
        counts[share] = told["counts"]
    assert list(counts.values()) == [{"feasible": 1}, {"infeasible": 1}]


def test_ties_go_to_fewer_gpus_then_to_the_first_of_the_axes(study, tune, tmp_path):
    # The linear server is as fast on any number of GPUs; one and two replicas of it serve a request a second alike.
    path = study(('extends = "base.toml"', 'extends = "linear.toml"\nworkload.arrival = {process = "constant", '
                                           'rate_per_s = 1.0}'), ONE, OPEN, ("[1, 2]", "[1]"), ("[8, 64]", "[1, 2]"),
                 ("[study.axes]", '[study.axes]\n"topology.replicas" = [2, 1]'))
    tune(path)
    rows = rows_of(tmp_path / "out" / "ranking.csv")

    assert [row["gpus"] for row in rows] == ["1", "1", "2", "2"]
    assert len({row["e2el_ms.mean"] for row in rows}) == 1
    assert [row["engine.max_num_seqs"] for row in rows] == ["1", "2"] * 2


def test_users_are_tried_one_number_after_the_other(study, tune, tmp_path):
    path = study(('kind = "tune"', 'kind = "tune"\nload = "concurrency"\nusers = [1, 4]'), OPEN,
                 ('tokens_per_s_per_user = "max"', 'tokens_per_s_per_user_by_concurrency = "max"'))
    status, told = tune(path)
    rows = rows_of(tmp_path / "out" / "ranking.csv")

    assert status == 0 and told["counts"] == {"feasible": 8}
    for row in rows:
        users = int(row["workload.load.concurrency"])
        by_user = float(row["tokens_per_s_per_user_by_concurrency"])
        assert by_user == float(row["output_throughput"]) / users
        assert float(row["output_throughput_per_gpu"]) * 3 == pytest.approx(by_user * users) or row["gpus"] == "2"
    assert {row["workload.load.concurrency"] for row in rows} == {"1", "4"}


def test_halving_ends_with_whole_runs_and_says_that_it_is_not_complete(study, tune, tmp_path):
    path = study(('kind = "tune"', 'kind = "tune"\nsearch = "halving"\nfirst_requests = 10'), ONE)
    status, told = tune(path)
    _, everything = tune(study(ONE), out="all")
    rows = rows_of(tmp_path / "out" / "ranking.csv")

    # 10 candidates with 10 requests; 4 and whoever overlaps them with 30; 2 and so on with 80.
    assert status == 0 and not told["complete"] and told["search"] == "halving"
    assert sum(told["counts"].values()) == 12 and told["counts"]["eliminated"] >= 5
    assert told["best"]["id"] == everything["best"]["id"]
    assert any("not among the best third after 10 requests" in row["reason"] for row in rows)


def test_dry_run_counts_and_writes_nothing(study, tmp_path, capsys):
    assert cli.main(["tune", str(study()), "--out", str(tmp_path / "out"), "--dry-run"]) == 0
    assert capsys.readouterr().out == ('10 candidates, search = "exhaustive"\n'
                                       "2 dropped, too many gpus: 4 GPUs, 3 are allowed\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("pairs", "add", "faults"), [
    ((('"max"', '"most"'),), "", ['objectives."output_throughput_per_gpu": expected "max" or "min"',
                                  'objectives."tokens_per_s_per_user"']),
    ((("winners = 3", 'load = "capacity"'), ("[8, 64]", "[8]")), "", ["study.slo: missing"]),
    ((("winners = 3", "users = [2]"), ('user = "max"', 'user_by_concurrency = "max"')), "",
     ["study.users: expected", "user_by_concurrency: takes a number of users"]),
    ((("gpus = 3", ""), ("winners = 3", 'rel_tol = 0.1\nfirst_requests = 5\nsearch = "exhaustive"')), "",
     ["limits.gpus: missing", "rel_tol, min_seeds and max_seeds", "first_requests: expected none"]),
    ((), "[study.slo]\ngoodput_share = {min = 0.9}\n", ["goodput_share: the experiment has no [slo]"]),
    ((), "[study.statistics]\nprecision = 0.1\n[study.run]\nbaseline = 0\n",
     ["statistics.precision: expected 0", "run.baseline: expected none"]),
    ((('tokens_per_s_per_user = "max"', 'rate = "max"\ncost_per_hour = "min"'),), "",
     ["objectives.rate: goes with load", "objectives.cost_per_hour: the experiment has no [prices]"]),
    ((("kind = ", "kinds = 1\nkind = "),), "", ["study.kinds: unknown key; did you mean kind?"]),
])
def test_faults_are_told_all_at_once(study, tune, capsys, tmp_path, pairs, add, faults):
    assert tune(study(*pairs, add=add)) == (2, None)
    told = capsys.readouterr().err
    assert [fault for fault in faults if fault not in told] == []
    assert not (tmp_path / "out").exists()


def test_unknown_numbers_are_refused_with_the_nearest(study, tune, capsys, tmp_path):
    path = study(('tokens_per_s_per_user = "max"', 'tokens_per_s_per_usr = "max"'),
                 add='[study.slo]\n"ttft_ms.p98" = {max = 1.0}\n')
    assert tune(path)[0] == 2
    told = capsys.readouterr().err
    assert "did you mean tokens_per_s_per_user?" in told and "did you mean ttft_ms.p9" in told
    assert not (tmp_path / "out").exists()


def test_other_objectives_and_other_directories_are_refused(study, tune, tmp_path, capsys):
    tune(study())
    assert tune(study(ONE))[0] == 2
    assert "other objectives or bounds" in capsys.readouterr().err
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    assert tune(study(), out="mine")[0] == 2
    assert "holds something else than a tuning study (thesis.tex)" in capsys.readouterr().err


def test_a_run_that_fails_is_one_of_many(study, tune, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "from simulator.routing.python_router import PythonRouter\n\n\nclass Fails(PythonRouter):\n"
        "    def choose(self, *arguments):\n        raise ValueError('lost')\n")
    path = study(OPEN, ("[study.axes]", '[study.axes]\n"cluster.routing.policy" = ["round_robin", "mine:Fails"]'))
    status, told = tune(path)

    assert status == 1 and told["counts"] == {"failed": 4, "feasible": 4} and not told["complete"]
    assert "lost" in capsys.readouterr().err


def test_run_names_the_right_command(study, capsys):
    assert cli.main(["run", str(study())]) == 2
    assert "`simulator tune` runs it" in capsys.readouterr().err
