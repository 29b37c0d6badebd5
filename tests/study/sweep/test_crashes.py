"""Processes that die, hang or are told to stop, full disks: nothing that was done is lost or done twice."""
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import simulator
from simulator import cli
from simulator.study.sweep.plan import read
from simulator.study.sweep.segments import FOLDER, Segment, read_all

ROOT = Path(__file__).parents[3]

# A workload that does something to its process, by the seed.
USERS = """
import os, signal, time
from simulator.workload.types.synthetic import Synthetic

class Deadly(Synthetic):
    def columns(self, streams, wanted):
        if streams.seed == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().columns(streams, wanted)

class Hanging(Synthetic):
    def columns(self, streams, wanted):
        while streams.seed == 13:
            time.sleep(1)
        return super().columns(streams, wanted)

class Faulty(Synthetic):
    def columns(self, streams, wanted):
        if streams.seed == 13:
            raise RuntimeError("thirteen")
        return super().columns(streams, wanted)
"""


@pytest.fixture
def with_users(study, rewrite):
    """Let a class of a user's draw the requests; seeds are 11 to 14, at one point."""
    (study.parent / "users.py").write_text(USERS)

    def make(name):
        return rewrite(("[study]\n", f'[workload]\ntype = "users:{name}"\n[study]\n'),
                       ("seeds = 2", "seeds = [11, 12, 13, 14]"), ("[10.0, 30.0]", "[10.0]"), ("[2, 8]", "[8]"))

    return make


def sweep(study, out, *options, jobs=2):
    return cli.main(["sweep", str(study), "--out", str(out), "--jobs", str(jobs), *options])


def rows(out):
    return {int(row["seed"]): row for row in simulator.load_study(out).runs}


def test_run_that_kills_its_process_is_a_row_and_the_others_are_done(with_users, tmp_path, capsys):
    out = tmp_path / "out"
    assert sweep(with_users("Deadly"), out) == 1
    told = capsys.readouterr()
    assert "\n\n3 done, 1 killed\n" in told.out and "seed 13: its process was killed (SIGKILL)" in told.err
    ends = {end.seed: end for end in read_all(out).finished.values()}
    assert {seed: end.status for seed, end in ends.items()} == {11: "done", 12: "done", 13: "killed", 14: "done"}
    assert ends[13].attempts == 2 and rows(out)[13]["error"].startswith(b"its process was killed (SIGKILL)")
    # It has ended: it is done again when that is asked for, and not else.
    assert sweep(tmp_path / "small.toml", out) == 1 and num_ended(out) == 4
    assert sweep(tmp_path / "small.toml", out, "--retry", "killed", "--allow-failures") == 0 and num_ended(out) == 5
    assert len(read_all(out).finished) == 4


def test_run_that_hangs_is_killed_after_twice_its_time(with_users, tmp_path, capsys):
    out = tmp_path / "out"
    began_s = time.monotonic()
    assert sweep(with_users("Hanging"), out, "--set", "study.run.timeout_s=1.0", "--set", "study.run.retries=0") == 1
    assert "timeout: id " in (told := capsys.readouterr().err) and "it took longer than 1 s" in told
    assert time.monotonic() - began_s > 1.9
    ends = {end.seed: end.status for end in read_all(out).finished.values()}
    assert ends == {11: "done", 12: "done", 13: "timeout", 14: "done"}


@pytest.mark.ci
@pytest.mark.parametrize("jobs", [1, 2])
def test_run_that_heeds_its_time_ends_with_it(rewrite, study, tmp_path, jobs):
    base = study.with_name("base.toml")
    base.write_text(base.read_text().replace("num_requests = 60", "num_requests = 1_000_000"))
    rewrite(("[10.0, 30.0]", "[10.0]"), ("[2, 8]", "[8]"), ("seeds = 2", "seeds = 1"))
    out = tmp_path / "out"
    assert sweep(study, out, "--set", "study.run.timeout_s=0.1", jobs=jobs) == 1
    (end,) = read_all(out).finished.values()
    assert (end.status, end.attempts) == ("timeout", 2)
    assert end.error.startswith("it took longer than 0.1 s")        # on a busy machine the system ends it first
    assert end.summary == {}
    assert sweep(study, out, "--retry", "timeout", "--set", "study.run.timeout_s=600.0", jobs=jobs) == 0


def test_end_of_another_attempt_is_no_difference(study, tmp_path):
    # a process may die, or be late, where another one has memory and time
    out = tmp_path / "out"
    assert sweep(study, out, jobs=1) == 0
    tables = (out / "table.h5").read_bytes()
    first = next(iter(read_all(out).finished.values()))
    for status in ("killed", "timeout", "failed", "refused"):
        with Segment(out) as segment:
            segment.append(first._replace(status=status, error=f"was {status}", summary={}, extra={}))
    stored = read_all(out)
    assert stored.finished[first.id] == first and not stored.faults
    assert sweep(study, out, jobs=1) == 0 and (out / "table.h5").read_bytes() == tables


@pytest.mark.parametrize("jobs", [1, 2])
def test_class_of_a_users_that_raises_fails_its_run_alone(with_users, tmp_path, capsys, jobs):
    out = tmp_path / "out"
    assert sweep(with_users("Faulty"), out, jobs=jobs) == 1
    assert "failed: id " in (told := capsys.readouterr().err) and "thirteen" in told
    ends = {end.seed: end.status for end in read_all(out).finished.values()}
    assert ends == {11: "done", 12: "done", 13: "failed", 14: "done"}


def test_first_failure_stops_where_that_is_asked(with_users, tmp_path):
    assert sweep(with_users("Faulty"), tmp_path / "out", "--fail-fast", jobs=1) == 1
    assert sorted(end.seed for end in read_all(tmp_path / "out").finished.values()) == [11, 12, 13]


def test_full_disk_stops_and_loses_nothing(study, tmp_path, capsys):
    whole, out = tmp_path / "whole", tmp_path / "out"
    assert sweep(study, whole, jobs=1) == 0
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    (segment,) = (whole / FOLDER).iterdir()
    room = 4 * segment.stat().st_size // 9          # for three lines and a part of the fourth
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
        status = sweep(study, out, jobs=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    told = capsys.readouterr().err
    assert status == 1 and "cannot be written: File too large" in told and FOLDER in told
    stored = read_all(out)
    assert len(stored.finished) == 3 and stored.num_torn == 1 and not stored.faults
    assert sweep(study, out, jobs=1) == 0
    assert (out / "table.h5").read_bytes() == (whole / "table.h5").read_bytes()


@pytest.mark.slow
def test_line_torn_anywhere_is_one_run_to_do(study, tmp_path):
    out = tmp_path / "out"
    assert sweep(study, out, jobs=1) == 0
    (segment,) = (out / FOLDER).iterdir()
    first, *_, last = segment.read_bytes().splitlines(keepends=True)
    text, last = first + last, len(first)
    for end in range(last, len(text)):
        segment.write_bytes(text[:end])
        stored = read_all(out)
        assert len(stored.finished) == 1 and not stored.faults and stored.num_torn == (end > last)


# ---- as people run it: in processes that can be killed

STARTED = [sys.executable, "-m", "simulator", "sweep"]


def start(study, out, *options):
    return subprocess.Popen([*STARTED, str(study), "--out", str(out), *options], cwd=ROOT, start_new_session=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def workers_of(parent):
    """Return the processes that the parent's fork server has forked."""
    def children(process):
        try:
            return [int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
        except OSError:
            return []

    return [each for child in children(parent) for each in children(child)]


def wait_until(is_so, process=None, patience_s=60.0):
    deadline_s = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < deadline_s, "it took too long"
        if process is not None and process.poll() is not None:
            return
        time.sleep(0.01)


def num_ended(out):
    return sum(path.read_bytes().count(b"\n") for path in (out / FOLDER).glob("*.jsonl"))


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_lets_runs_end_and_the_rest_is_done_later(study, rewrite, tmp_path, number, heeded_signals):
    rewrite(("seeds = 2", "seeds = 60"))
    out, whole = tmp_path / "out", tmp_path / "whole"
    with start(study, out, "--jobs", "2") as process:
        wait_until(lambda: num_ended(out) > 20, process)
        os.killpg(process.pid, number)              # as a batch system or a terminal does it: to all
        _, told = process.communicate(timeout=60)
    assert process.returncode == 128 + number, told
    assert 20 < num_ended(out) < 240 and not workers_of(process.pid)
    assert sweep(study, out, "--quiet") == 0 and sweep(study, whole, "--quiet", jobs=1) == 0
    assert num_ended(out) == 240                   # none was done twice
    assert (out / "table.h5").read_bytes() == (whole / "table.h5").read_bytes()


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.parametrize(("num_kills", "seeds"), [(12, 15), pytest.param(25, 25, marks=pytest.mark.night)])
def test_killed_at_any_instant_it_goes_on_to_the_same_bytes(study, rewrite, tmp_path, num_kills, seeds):
    rewrite(("seeds = 2", f"seeds = {seeds}"))
    # S6: runs, of which each takes long enough to be hit
    base = study.with_name("base.toml")
    base.write_text(base.read_text().replace("num_requests = 60", "num_requests = 3000"))
    whole = tmp_path / "whole"
    assert sweep(study, whole, "--quiet", jobs=1) == 0
    chance, kills, count = random.Random(num_kills), 0, 0
    while kills < num_kills:
        out, count = tmp_path / f"out{count}", count + 1
        while True:
            with start(study, out, "--jobs", "2", "--quiet") as process:
                if kills < num_kills:
                    wait_until(lambda: workers_of(process.pid), process)
                    time.sleep(chance.uniform(0, 1.5))
                    victims = [process.pid] if kills % 2 else workers_of(process.pid)
                    if victims:
                        kill(chance.choice(victims))
                        kills += 1
                _, told = process.communicate(timeout=120)
            if process.returncode == 0:
                break
            assert process.returncode == -signal.SIGKILL, told
        assert (out / "table.h5").read_bytes() == (whole / "table.h5").read_bytes()
        assert (out / "table.csv").read_bytes() == (whole / "table.csv").read_bytes()


def kill(process):
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:                      # it has just ended
        return


@pytest.mark.ci
@pytest.mark.slow
def test_same_bytes_however_it_is_run(study, tmp_path):
    """S7: one process, four, three shards, workers of Dask."""
    pytest.importorskip("distributed", reason="Dask comes with the extra `test`")
    whole, four, shards, dask = (tmp_path / name for name in ("whole", "four", "shards", "dask"))
    assert sweep(study, whole, jobs=1) == 0 == sweep(study, four, jobs=4)
    for i in range(3):
        assert sweep(study, shards, "--shard", f"{i}/3", jobs=1) == 0
        assert not (shards / "table.h5").exists()   # the last shard does not merge
    assert cli.main(["study", "merge", str(shards)]) == 0
    assert sweep(study, dask, "--dask", "local") == 0
    for name in ("table.h5", "table.csv", "summary.json", "plan.jsonl"):
        assert {(out / name).read_bytes() for out in (four, shards, dask)} == {(whole / name).read_bytes()}


def test_shares_of_another_number_go_on_where_the_first_stopped(study, tmp_path):
    out = tmp_path / "out"
    assert sweep(study, out, "--shard", "0/3", jobs=1) == 0
    first = read_all(out).finished.keys()
    for i in range(2):
        assert sweep(study, out, "--shard", f"{i}/2", jobs=1) == 0
    assert num_ended(out) == 8 == len(read_all(out).finished) and first <= read_all(out).finished.keys()
    assert [json.loads(line)["id"] for line in (out / "plan.jsonl").read_text().splitlines()] == [
        trial.id for trial in read(out / "plan.jsonl")]
