"""Pieces of work in processes: who dies takes nobody along, and what it had not begun is done by others."""
import errno
import os
import signal
import subprocess
import sys
import time
from multiprocessing import active_children
from pathlib import Path

import pytest

from simulator.errors import InputErrors, OutputError
from simulator.study.sweep.pool import ONE_THREAD, Rules, serve

ROOT = Path(__file__).parents[3]


def work(factor, item):
    """Do what the item says."""
    word, _, rest = str(item).partition(" ")
    if word == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "once" and not os.path.exists(rest):
        Path(rest).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "leave":
        os._exit(7)
    if word == "full":
        raise OutputError("a.jsonl", OSError(errno.ENOSPC, ""))
    if word == "input":
        raise InputErrors(["a.toml: odd"])
    if word == "raise":
        raise ValueError("a fault")
    if word == "sleep":
        time.sleep(float(rest))
    if word == "threads":
        return [os.environ[name] for name in ONE_THREAD]
    return factor * item if isinstance(item, int) else word, os.getpid()


def results(items, **rules):
    return {served.item: served for served in serve(work, 10, items, Rules(**{"num_processes": 2} | rules))}


def test_each_item_is_served_once_by_so_many_processes():
    found = list(serve(work, 10, iter(range(40)), Rules(3)))

    assert sorted((served.item, served.result[0]) for served in found) == [(i, 10 * i) for i in range(40)]
    assert {(served.lost, served.attempts) for served in found} == {(None, 1)}
    assert 1 <= len({served.result[1] for served in found} - {os.getpid()}) <= 3
    assert not active_children()


def test_nothing_to_do_is_done_at_once():
    assert list(serve(work, 10, [], Rules(2))) == []


def test_who_dies_takes_nobody_along():
    found = results([*range(10), "die", *range(10, 30), "leave", *range(30, 40)], retries=1)

    assert len(found) == 42
    assert all(found[i].result[0] == 10 * i and found[i].attempts == 1 for i in range(40))
    assert found["die"][1:] == (None, -signal.SIGKILL, 2)
    assert found["die"].why_lost() == "its process was killed (SIGKILL), for want of memory most likely"
    assert found["leave"].why_lost() == "its process ended with status 7"


def test_what_dies_once_is_done_by_the_second_attempt(tmp_path):
    item = f"once {tmp_path / 'was_here'}"
    assert results([item, 1], retries=1)[item][2:] == (None, 2)


def test_what_is_not_accepted_is_tried_again_and_counts_the_last_time():
    found = results([1, 2, 3], retries=2, is_accepted=lambda result: result[0] != 20)
    assert [found[i].attempts for i in (1, 2, 3)] == [1, 3, 1] and found[2].result[0] == 20


def test_without_retries_one_death_is_enough(tmp_path):
    item = f"once {tmp_path / 'was_here'}"
    assert results([item])[item][2:] == (-signal.SIGKILL, 1)


def test_what_takes_too_long_is_killed_by_the_system():
    found = results(["sleep 60", 1, 2], kill_after_s=0.3, retries=0)

    assert found["sleep 60"].why_lost() == "its process was killed (SIGALRM)"
    assert found[1].result[0] == 10 and found[1].why_lost() == ""


def test_the_time_is_that_of_one_item_not_of_all():
    found = results([f"sleep 0.{i:03}" for i in range(200, 206)], num_processes=1, kill_after_s=0.8)
    assert {served.lost for served in found.values()} == {None}


def test_on_stop_what_runs_is_finished_and_nothing_begins():
    done = []
    for served in serve(work, 10, [f"sleep 0.3{i:02}" for i in range(60)], Rules(2, stop=lambda: bool(done))):
        done.append(served)

    assert 1 <= len(done) <= 6          # what both were at, and what they had answered meanwhile
    assert not active_children()


def test_who_is_not_done_in_time_after_the_stop_is_killed():
    began_s = time.monotonic()
    found = results(["sleep 60"], num_processes=1, stop=lambda: time.monotonic() - began_s > 0.5, grace_s=0.3)

    assert found == {} and time.monotonic() - began_s < 20
    assert not active_children()


def test_a_fault_of_the_work_ends_all():
    with pytest.raises(RuntimeError, match="a worker process: ValueError: a fault"):
        results(["sleep 60", "raise"])
    assert not active_children()


@pytest.mark.parametrize(("item", "kind", "words"), [
    ("full", OutputError, "a.jsonl: cannot be written: No space left on device"),
    ("input", InputErrors, "a.toml: odd")])
def test_faults_that_name_their_cause_reach_the_caller_as_they_are(item, kind, words):
    with pytest.raises(kind) as raised:
        results(["sleep 60", item])
    assert str(raised.value) == words and not active_children()


def test_who_wants_no_more_ends_all():
    served = serve(work, 10, [1, "sleep 60"], Rules(2))
    assert next(served).result[0] == 10
    served.close()
    assert not active_children()


def test_workers_have_one_thread_each_and_this_process_keeps_its_own(monkeypatch):
    for name in ONE_THREAD:
        monkeypatch.delenv(name, raising=False)
    assert results(["threads"])["threads"].result == ["1"] * len(ONE_THREAD)
    assert not set(ONE_THREAD) & set(os.environ)


def test_a_worker_killed_from_outside_costs_one_item_a_second_attempt():
    killed = []
    found = []
    for served in serve(work, 10, [f"sleep 0.1{i:02}" for i in range(20)], Rules(2, retries=1)):
        found.append(served)
        if not killed:
            killed.append(served.result[1])
            os.kill(killed[0], signal.SIGKILL)

    assert sorted(served.item for served in found) == [f"sleep 0.1{i:02}" for i in range(20)]
    assert {served.lost for served in found} == {None}
    assert [served.attempts for served in found].count(2) <= 1


SCRIPT = """
import os, sys, time
sys.path.insert(0, {tests!r})
from test_pool import work
from simulator.study.sweep.pool import Rules, serve
{guard}
    for served in serve(work, 10, ["x", "y", "sleep 60"], Rules(2)):
        print(served.result[1], flush=True)
"""


def script(tmp_path, guard):
    file = tmp_path / "script.py"
    file.write_text(SCRIPT.format(tests=str(Path(__file__).parent), guard=guard))
    return subprocess.Popen([sys.executable, file], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "PYTHONPATH": str(ROOT)})


def test_processes_do_not_outlive_a_parent_that_is_killed(tmp_path):
    with script(tmp_path, 'if __name__ == "__main__":') as parent:
        workers = {int(parent.stdout.readline()) for _ in range(2)}
        parent.kill()
    deadline_s = time.monotonic() + 20
    while any(Path(f"/proc/{worker}/stat").exists() and state(worker) != "Z" for worker in workers):
        assert time.monotonic() < deadline_s, "a worker lives on"
        time.sleep(0.05)


def state(process):
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_script_without_a_guard_is_told(tmp_path):
    with script(tmp_path, "if True:") as parent:
        _, errors = parent.communicate(timeout=60)
    assert "needs `if __name__ == \"__main__\":` around it" in errors and parent.returncode == 1


DEAF = """
import os, signal, sys, time
sys.path.insert(0, {tests!r})
from test_pool import work
from simulator.study.sweep.pool import Rules, serve
if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)       # the parent decides what becomes of it
    for number, served in enumerate(serve(work, 10, [0, 1, "die", 2, "leave", *range(3, 9)], Rules(2, retries=1))):
        if number == 0:
            os.killpg(0, signal.SIGTERM)
        print(served.item, served.lost, flush=True)
"""


def test_signal_that_all_processes_hear_ends_none_of_them(tmp_path):
    # among them the server of forks, of which processes are to begin later in place of those that die
    file = tmp_path / "script.py"
    file.write_text(DEAF.format(tests=str(Path(__file__).parent)))
    ended = subprocess.run([sys.executable, file], capture_output=True, text=True, start_new_session=True, check=False,
                           timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()) == [*(f"{i} None" for i in range(9)), "die -9", "leave 7"]


@pytest.mark.ci
@pytest.mark.slow
def test_server_of_forks_that_is_killed_is_replaced():
    found, killed = [], []
    for served in serve(work, 10, ["sleep 0.01", "die", *range(20), "leave"], Rules(2, retries=1)):
        found.append(served.item)
        if not killed:
            killed.append(int(Path(f"/proc/{served.result[1]}/stat").read_text().rpartition(")")[2].split()[1]))
            os.kill(killed[0], signal.SIGKILL)
    assert len(found) == 23
