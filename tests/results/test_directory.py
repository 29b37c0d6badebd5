"""A results directory is complete or absent."""
import errno
import os
import pickle
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from simulator.errors import InputErrors, OutputError
from simulator.results import directory as rules
from simulator.results.directory import FILES, check_free, staged


def fill(path, text, names=FILES):
    """Write a results directory that holds `text` in each file."""
    path.mkdir(parents=True, exist_ok=True)
    for name in names:
        (path / name).write_text(text)


def contents(path):
    return {entry.name: entry.read_text() for entry in path.iterdir()}


def test_results_appear_when_all_is_written(tmp_path):
    place = tmp_path / "results" / "a"

    with staged(place) as temporary:
        fill(temporary, "new")
        assert temporary.parent == place.parent
        assert not place.exists()

    assert contents(place) == dict.fromkeys(FILES, "new")
    assert os.listdir(place.parent) == ["a"]


@pytest.mark.parametrize("fault", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_failed_run_leaves_nothing(tmp_path, fault):
    def run():
        with staged(tmp_path / "a") as temporary:
            fill(temporary, "new")
            raise fault

    with pytest.raises(fault):
        run()

    assert os.listdir(tmp_path) == []


def test_a_signal_during_the_clearing_up_leaves_nothing_either(tmp_path, monkeypatch):
    rmtree, interruptions = shutil.rmtree, iter([KeyboardInterrupt])

    def interrupted_once(directory, **options):
        for interruption in interruptions:
            raise interruption
        rmtree(directory, **options)

    monkeypatch.setattr(shutil, "rmtree", interrupted_once)

    with pytest.raises(KeyboardInterrupt), staged(tmp_path / "a"):
        raise RuntimeError

    assert os.listdir(tmp_path) == []


def test_an_empty_directory_is_filled(tmp_path):
    (tmp_path / "a").mkdir()

    with staged(tmp_path / "a") as temporary:
        fill(temporary, "new")

    assert contents(tmp_path / "a") == dict.fromkeys(FILES, "new")


def test_complete_results_are_kept_unless_overwritten(tmp_path):
    fill(tmp_path / "a", "old")

    with pytest.raises(InputErrors, match="complete results exist; --overwrite replaces them"):
        check_free(tmp_path / "a")

    assert check_free(tmp_path / "a", overwrite=True) == tmp_path / "a"


@pytest.mark.parametrize("swap_in_one_step", [True, False])
def test_overwriting_replaces_old_results_at_the_end(tmp_path, monkeypatch, swap_in_one_step):
    if not swap_in_one_step:
        monkeypatch.setattr(rules, "_exchange", lambda one, other: False)
    fill(tmp_path / "a", "old")

    with staged(tmp_path / "a", overwrite=True) as temporary:
        fill(temporary, "new", FILES - {"trace.json"})
        assert contents(tmp_path / "a") == dict.fromkeys(FILES, "old")

    assert contents(tmp_path / "a") == dict.fromkeys(FILES - {"trace.json"}, "new")
    assert os.listdir(tmp_path) == ["a"]


def test_a_failed_run_keeps_what_it_was_to_overwrite(tmp_path):
    fill(tmp_path / "a", "old")

    with pytest.raises(RuntimeError), staged(tmp_path / "a", overwrite=True):
        raise RuntimeError

    assert contents(tmp_path / "a") == dict.fromkeys(FILES, "old")
    assert os.listdir(tmp_path) == ["a"]


def test_a_rename_that_fails_brings_the_old_results_back(tmp_path, monkeypatch):
    fill(tmp_path / "a", "old")
    monkeypatch.setattr(rules, "_exchange", lambda one, other: False)
    rename = os.rename

    def fail_for_the_new(source, target):
        if str(source).endswith(".partial"):
            raise OSError("no")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail_for_the_new)

    with pytest.raises(OSError, match="no"), staged(tmp_path / "a", overwrite=True) as temporary:
        fill(temporary, "new")

    assert contents(tmp_path / "a") == dict.fromkeys(FILES, "old")
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize(("names", "told"), [
    ({"thesis.tex"}, "holds thesis.tex, which no run writes"),
    (FILES | {"notes.txt"}, "holds notes.txt, which no run writes"),
    ({"trace.json"}, "holds something else than complete results"),
])
def test_what_no_run_wrote_is_never_deleted(tmp_path, names, told):
    fill(tmp_path / "a", "mine", names)

    with pytest.raises(InputErrors, match=told), staged(tmp_path / "a", overwrite=True):
        pytest.fail("the block ran")

    assert contents(tmp_path / "a") == dict.fromkeys(names, "mine")


def test_a_file_that_is_added_during_the_run_is_kept(tmp_path):
    def run():
        with staged(tmp_path / "a", overwrite=True) as temporary:
            fill(temporary, "new")
            fill(tmp_path / "a", "mine", {"notes.txt"})

    with pytest.raises(InputErrors, match=r"holds notes\.txt"):
        run()

    assert contents(tmp_path / "a") == {"notes.txt": "mine"}
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "a").write_text("mine")

    with pytest.raises(InputErrors, match="a file of this name exists"):
        check_free(tmp_path / "a", overwrite=True)


def test_a_place_that_cannot_be_written_is_a_fault_of_the_input(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(InputErrors, match="cannot be written"), staged(tmp_path / "file" / "a"):
        pytest.fail("the block ran")


def test_results_of_an_interrupted_run_are_not_called_complete(tmp_path):
    fill(tmp_path / "a", '{"complete": false}')

    with pytest.raises(InputErrors, match=r"results of an interrupted run exist \(incomplete\); --overwrite replaces"):
        check_free(tmp_path / "a")


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_current_folder_stays_and_gets_the_files(tmp_path, monkeypatch, overwrite):
    monkeypatch.chdir(tmp_path)
    if overwrite:
        fill(tmp_path, "old")
    before = tmp_path.stat().st_ino

    with staged(Path("."), overwrite) as temporary:
        fill(temporary, "new", FILES - {"trace.json"})

    assert contents(tmp_path) == dict.fromkeys(FILES - {"trace.json"}, "new")
    assert tmp_path.stat().st_ino == before
    assert sorted(os.listdir()) == sorted(FILES - {"trace.json"})


def test_a_full_disk_is_told_in_words_and_leaves_nothing(tmp_path):
    def run():
        with staged(tmp_path / "a") as temporary:
            fill(temporary, "new")
            raise OSError(errno.ENOSPC, "h5py: unable to extend")

    with pytest.raises(OutputError) as caught:
        run()

    assert str(caught.value) == f"{tmp_path / 'a'}: cannot be written: No space left on device"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert os.listdir(tmp_path) == []


def test_another_fault_of_the_system_stays_what_it_is(tmp_path):
    with pytest.raises(FileNotFoundError), staged(tmp_path / "a"):
        open(tmp_path / "nothing")      # noqa: SIM115 -- it is not there


def test_leftovers_of_dead_processes_are_removed(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    names = {who: f".a.{rules._process(number)}.0123abcd.partial" for who, number in (
        ("dead", dead.pid), ("alive", os.getppid()))}
    names["elsewhere"] = f".a.00000000-{dead.pid}.0123abcd.partial"     # a machine that shares the disk
    names["other"] = f".b.{rules._process(dead.pid)}.0123abcd.partial"
    for name in names.values():
        fill(tmp_path / name, "half")

    with staged(tmp_path / "a") as temporary:
        fill(temporary, "new")

    assert set(os.listdir(tmp_path)) == {"a", names["alive"], names["elsewhere"], names["other"]}


def test_a_link_is_followed(tmp_path):
    fill(tmp_path / "real", "old")
    (tmp_path / "link").symlink_to("real")

    with staged(tmp_path / "link", overwrite=True) as temporary:
        fill(temporary, "new")

    assert (tmp_path / "link").is_symlink()
    assert contents(tmp_path / "real") == dict.fromkeys(FILES, "new")


def test_two_runs_at_once_do_not_disturb_each_other(tmp_path):
    def write(name):
        with staged(tmp_path / name) as temporary:
            fill(temporary, name)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {name: contents(tmp_path / name)["summary.json"] for name in os.listdir(tmp_path)} == {
        name: name for name in "abcd"}
