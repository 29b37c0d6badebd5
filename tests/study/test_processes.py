"""Work in processes of its own: what comes back, what is raised, what remains."""
import os
import signal
import time
from multiprocessing import active_children

import pytest

from simulator.errors import InputErrors
from simulator.study.processes import in_processes


class Unsendable(Exception):
    """Takes two parameters, of which it keeps one."""

    def __init__(self, one, two):
        super().__init__(one)


def work(factor, name):
    """Do what the name says."""
    if name == "refuse":
        raise InputErrors(["a: wrong", "b: wrong"])
    if name == "break":
        raise Unsendable("one", "two")
    if name == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "leave":
        os._exit(3)
    if name == "sleep":
        time.sleep(60)
    return factor * int(name), os.getpid()


def test_each_thing_is_done_once_by_so_many_processes():
    found = dict(in_processes(work, 10, ["1", "2", "3", "4", "5"], 2))

    assert {name: value for name, (value, _) in found.items()} == {str(i): 10 * i for i in range(1, 6)}
    assert len({process for _, process in found.values()} - {os.getpid()}) == 2
    assert not active_children()


@pytest.mark.parametrize(("name", "error", "told"), [
    ("refuse", InputErrors, "a: wrong\nb: wrong"), ("break", RuntimeError, "Unsendable: one"),
    ("die", MemoryError, "die: its process was killed"),
    ("leave", RuntimeError, "leave: its process ended with status 3")])
def test_what_fails_ends_all(name, error, told):
    with pytest.raises(error) as caught:
        list(in_processes(work, 10, ["sleep", name], 2))

    assert str(caught.value) == told
    assert not active_children()


def test_who_wants_no_more_ends_all():
    results = in_processes(work, 10, ["1", "sleep"], 2)
    assert next(results)[1][0] == 10
    results.close()

    assert not active_children()
