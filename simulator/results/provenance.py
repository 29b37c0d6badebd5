"""provenance.json: facts that differ from run to run: versions, machine, command, wall-clock times, memory."""
import contextlib
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

SCHEMA = 1
PACKAGE = Path(__file__).parents[1]


def provenance(version: str, timings_s: dict[str, float | None]) -> dict:
    """Describe the process and the machine that made the results.

    Parameters
    ----------
    version : of the simulator.
    timings_s : see `Timings`.
    """
    import h5py  # results are being written, so it is loaded already

    return {
        "schema": SCHEMA,
        "version": version,
        "git_revision": git_revision(PACKAGE.parent),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "h5py": h5py.__version__,
        "hdf5": h5py.version.hdf5_version,
        "machine": machine(),
        "command": sys.orig_argv,
        "working_directory": os.getcwd(),
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "timings_s": timings_s,
        "peak_memory_bytes": peak_memory_bytes(),
    }


def machine() -> dict:
    """Return operating system, architecture, processor and number of cores."""
    return {
        "system": platform.system(),
        "release": platform.release(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
    }


def _processor() -> str | None:
    """Return the model of the processor, from /proc/cpuinfo; None where there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def git_revision(checkout: Path) -> str | None:
    """Return the commit of a checkout, `-dirty` if it has changes.

    None outside a checkout or without git.
    """
    if not (checkout / ".git").exists():
        return None
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None


def peak_memory_bytes() -> int | None:
    """Return the largest resident size of this process so far.

    None where the system does not report it.
    """
    with contextlib.suppress(OSError):
        # Not ru_maxrss, which survives exec and so may be the parent's.
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    try:
        import resource  # Unix alone has it
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024        # getrusage(2): bytes there, KiB elsewhere


def process_age_s() -> float | None:
    """Return the time since this process began, to 10 ms.

    None where the system, unlike Linux, does not report it. Source: proc_pid_stat(5), field 22, in clock ticks since
    boot.
    """
    try:
        after_name = Path("/proc/self/stat").read_text().rpartition(")")[2]
        began_s = int(after_name.split()[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began_s
    except (OSError, ValueError, AttributeError, IndexError):
        return None


class Timings:
    """Wall-clock seconds by phase.

    `start`: process start to main; `load`: configuration, workload, building the cluster; `simulate`: the event loop
    alone; `write`: results, including those written during the simulation.

    Parameters
    ----------
    main_began_s : `time.perf_counter()` when main began; None: now.
    """

    def __init__(self, main_began_s: float | None = None):
        now_s = time.perf_counter()
        began_s = now_s if main_began_s is None else main_began_s
        age_s = process_age_s()
        self._mark_s = began_s
        start_s = None if age_s is None else max(0.0, age_s - (now_s - began_s))
        self._seconds = {"start": start_s, "load": 0.0, "simulate": 0.0, "write": 0.0}

    def end(self, phase: str) -> None:
        """Count the time since the last end as part of `phase`."""
        now_s = time.perf_counter()
        self._seconds[phase] += now_s - self._mark_s
        self._mark_s = now_s

    def move(self, seconds: float, source: str, target: str) -> None:
        """Count seconds of one phase as part of another."""
        self._seconds[source] -= seconds
        self._seconds[target] += seconds

    def as_dict(self) -> dict[str, float | None]:
        """Return seconds by phase, to the microsecond."""
        return {phase: None if seconds is None else round(seconds, 6) for phase, seconds in self._seconds.items()}
