"""Resources of this machine for a study: cores, less where a control group has a quota, and free memory.

Source of the files: the Linux kernel's documentation, cgroup-v2 (cpu.max, memory.max, memory.current), cgroup-v1
(cpu.cfs_quota_us, memory.limit_in_bytes), proc(5) (MemAvailable).
"""
import math
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from simulator.core.cores import available_cores

ROOT = Path("/")
_GROUP = "sys/fs/cgroup"


class Fitting(NamedTuple):
    """How many processes run side by side.

    notice : why fewer than requested; None: as many as requested.
    """

    num_processes: int
    notice: str | None


def usable_cores(root: Path = ROOT) -> int:
    """Return the number of cores that this process may keep busy, at least 1.

    A quota of 2.5 counts as 2.
    """
    return max(1, int(min(available_cores(), _quota_cores(root))))


def free_bytes(root: Path = ROOT) -> float:
    """Return the bytes of memory that processes may still take; inf: not known."""
    limits = [math.inf]
    with suppress(OSError, ValueError, StopIteration):
        lines = (root / "proc/meminfo").read_text().splitlines()
        kilobytes = next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))
        limits.append(1024 * int(kilobytes))
    for limit, used in (("memory.max", "memory.current"),
                        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")):
        with suppress(OSError, ValueError):     # no such group, or "max"
            group = root / _GROUP
            limits.append(max(0, int((group / limit).read_text()) - int((group / used).read_text())))
    return min(limits)


def fitting(num_processes: int, peak_bytes: float, free: float) -> Fitting:
    """Return how many processes with this peak fit into memory, at least 1.

    peak_bytes : of one process with the largest run, an estimate; 0: unknown.
    """
    if peak_bytes <= 0 or num_processes * peak_bytes <= free:
        return Fitting(num_processes, None)
    fit = max(1, min(num_processes, int(free // peak_bytes)))
    return Fitting(fit, f"{num_processes} processes of {peak_bytes / 1e9:.2g} GB each do not fit into the "
                        f"{free / 1e9:.2g} GB that are free: {fit} run side by side" if fit < num_processes else
                   f"a run needs {peak_bytes / 1e9:.2g} GB, and {free / 1e9:.2g} GB are free")


def _quota_cores(root: Path) -> float:
    with suppress(OSError, ValueError):
        quota, period = (root / _GROUP / "cpu.max").read_text().split()
        return int(quota) / int(period)         # "max" is no number: no quota
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = (int((root / _GROUP / "cpu" / f"cpu.cfs_{name}_us").read_text()) for name in
                         ("quota", "period"))
        return quota / period if quota > 0 else math.inf
    return math.inf
