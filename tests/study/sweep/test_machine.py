"""Cores and memory as a control group lends them."""
import math

import pytest

from simulator.core.cores import available_cores
from simulator.study.sweep.machine import Fitting, fitting, free_bytes, usable_cores


def machine(tmp_path, files):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(("files", "expected"), [
    ({}, math.inf), ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, math.inf),
    ({"sys/fs/cgroup/cpu.max": "250000 100000\n"}, 2), ({"sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
    ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, 1),
    ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, math.inf)])
def test_a_quota_leaves_fewer_cores(tmp_path, files, expected):
    assert usable_cores(machine(tmp_path, files)) == min(available_cores(), expected)


@pytest.mark.parametrize(("files", "expected"), [
    ({}, math.inf), ({"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:   3000 kB\n"}, 3_072_000),
    ({"proc/meminfo": "MemAvailable: 3000 kB\n", "sys/fs/cgroup/memory.max": "1000000\n",
      "sys/fs/cgroup/memory.current": "400000\n"}, 600_000),
    ({"sys/fs/cgroup/memory.max": "max\n", "sys/fs/cgroup/memory.current": "400000\n"}, math.inf),
    ({"sys/fs/cgroup/memory/memory.limit_in_bytes": "100\n", "sys/fs/cgroup/memory/memory.usage_in_bytes": "140\n"},
     0)])
def test_free_memory_is_the_least_that_anybody_tells(tmp_path, files, expected):
    assert free_bytes(machine(tmp_path, files)) == expected


def test_as_many_processes_as_fit_and_one_at_least():
    assert fitting(8, 1e9, 8e9) == Fitting(8, None) == fitting(8, 0, 1.0)
    assert fitting(8, 1e9, 3.5e9) == Fitting(
        3, "8 processes of 1 GB each do not fit into the 3.5 GB that are free: 3 run side by side")
    assert fitting(1, 4e9, 3e9) == Fitting(1, "a run needs 4 GB, and 3 GB are free")
