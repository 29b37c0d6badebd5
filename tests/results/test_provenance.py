"""What is different in each run."""
import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from simulator.results.provenance import Timings, git_revision, peak_memory_bytes, process_age_s, provenance


def test_provenance_names_versions_machine_command_times_and_memory():
    found = json.loads(json.dumps(provenance("1.2.3", {"start": 0.1})))

    assert (found["version"], found["timings_s"]) == ("1.2.3", {"start": 0.1})
    assert found["machine"]["cores"] == os.cpu_count()
    assert found["command"]
    assert {"python", "numpy", "h5py", "hdf5", "git_revision", "finished_at", "working_directory"} <= set(found)


def test_times_add_up(monkeypatch):
    now_s = iter([0.0, 1.0, 3.0, 3.5, 10.0, 11.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(now_s))
    timings = Timings(main_began_s=0.0)     # at 0.0

    timings.end("load")         # 1.0
    timings.end("write")        # 3.0 - 1.0
    timings.end("load")         # 3.5 - 3.0
    timings.end("simulate")     # 10.0 - 3.5, of which 1.5 were spent on writing
    timings.move(1.5, "simulate", "write")
    timings.end("write")        # 11.0 - 10.0

    found = timings.as_dict()
    del found["start"]
    assert found == {"load": 1.5, "write": 4.5, "simulate": 5.0}


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not tell when a process began")
def test_start_runs_from_process_start_to_main():
    main_began_s = time.perf_counter() - 0.01

    start_s = Timings(main_began_s).as_dict()["start"]

    assert start_s == pytest.approx(process_age_s() - 0.01, abs=0.1)
    assert start_s > 0


def test_peak_memory_is_in_bytes():
    assert 10e6 < peak_memory_bytes() < 1e12


def test_the_revision_of_a_checkout_tells_of_changes(tmp_path):
    def git(*arguments):
        subprocess.run(["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", *arguments], check=True,
                       capture_output=True)

    assert git_revision(tmp_path) is None
    git("init")
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "-m", "one")
    commit = git_revision(tmp_path)
    (tmp_path / "file").write_text("two")

    assert len(commit) == 40
    assert git_revision(tmp_path) == f"{commit}-dirty"
