"""The lower bound: a C program that does the least work for exact results, built from $SIM_LIMIT."""
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(os.environ.get("SIM_LIMIT", Path(__file__).resolve().parents[2] / "shared" / "tools" / "limit.c"))

# Others may use this machine: the program's stopwatch is made to read its CPU time.
CPU_CLOCK = "#include <time.h>\n#undef CLOCK_MONOTONIC\n#define CLOCK_MONOTONIC CLOCK_PROCESS_CPUTIME_ID\n"


class Unavailable(Exception):
    """There is no such program here; the message has the reason."""


@dataclass(frozen=True)
class LimitResult:
    """The report of one run of the program; `loop_s` is CPU time of its event loop."""

    loop_s: float
    iterations: int
    mean_ttft_ms: float
    mean_e2el_ms: float


class Limit:
    """The program, compiled into `folder`."""

    def __init__(self, folder):
        if not SOURCE.exists():
            raise Unavailable(f"no source of the lower bound: {SOURCE}")
        compiler = os.environ.get("CC", "cc")
        if not shutil.which(compiler):
            raise Unavailable(f"no C compiler: {compiler}")
        header = Path(folder, "cpu_clock.h")
        header.write_text(CPU_CLOCK)
        self.path = Path(folder, "limit")
        subprocess.run([compiler, "-O3", "-include", header, "-o", self.path, SOURCE, "-lm"], check=True)

    def run(self, trace, replicas):
        """Run a trace (see `traffic.write_trace`) once."""
        output = subprocess.check_output([self.path, trace, str(replicas), "1"])
        found = json.loads(output)
        return LimitResult(found["wall_s"], found["iterations"], found["mean_ttft_ms"], found["mean_e2el_ms"])
