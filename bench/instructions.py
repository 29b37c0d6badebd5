"""Counts the instructions of the event loop for each iteration, under valgrind: repeatable on a busy machine.

    python bench/instructions.py

prints the table of bench/README.md in a minute or two; test_modes.py counts the modes. Needs valgrind; the lower
bound is left out if it is missing.
"""
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))       # last: an installed simulator is preferred

from cases import Case, NoSink, Prepared
from limit import Limit, Unavailable
from modes import MODES, SHARED, host_tier
from schedulers import LOADS, NAMES, case_of

from simulator.engine.plan import GatewayPlan
from simulator.routing.policies.least_loaded import LeastLoaded, LeastLoadedParameters

TIMED = "__pyx_pw_9simulator_6engine_7cluster_7Cluster_?run"    # Cluster.run in C; ?: its place among the methods
LEAST_LOADED = GatewayPlan(LeastLoaded, LeastLoadedParameters())
CASES = {       # name: case, wants_iterations
    "1 replica": (Case(20_000), False),
    "1 replica, light load": (Case(5_000, rate_per_s=2.0), False),
    "64 replicas": (Case(64_000, 64), False),
    "64 replicas, coupled": (Case(64_000, 64, engine={"coupled": True}), False),
    "64 replicas, `least_loaded`": (Case(64_000, 64, front=LEAST_LOADED), False),
    "roofline": (Case(20_000, backend="roofline"), False),
    "iteration table": (Case(20_000), True),
    "prefix caching": (Case(20_000, num_gpu_blocks=12_000), False),
    "block tables": (Case(20_000, num_gpu_blocks=12_000, engine={"tracks_identity": True}), False),
    "KV pressure": (Case(20_000, num_gpu_blocks=6500), False),
    "system prompts": (Case(20_000, num_gpu_blocks=8000, **SHARED), False),
    "system prompts, KV pressure": (Case(20_000, num_gpu_blocks=3500, **SHARED), False),
}
WHOLE = Case(64_000, 64, front=LEAST_LOADED, num_gpu_blocks=24_000)
APART = {       # name: case, its counterpart with whole requests
    "32 + 32 replicas": (replace(WHOLE, decode_replicas=32), WHOLE),
    "32 + 32 replicas, light load": (replace(WHOLE, decode_replicas=32, num_requests=16_000, rate_per_s=2.0),
                                     replace(WHOLE, num_requests=16_000, rate_per_s=2.0)),
    "32 + 32 replicas, host tiers": (replace(WHOLE, decode_replicas=32, tier=host_tier),
                                     replace(WHOLE, tier=host_tier)),
}
OF_APART = {each: (case, False) for name, pair in APART.items()
            for each, case in zip((name, f"{name}, whole"), pair, strict=True)}
OF_SCHEDULERS = {f"{name}, {load}": (case_of(name, load), False) for name in NAMES for load in LOADS}
OF_MODES = {name: (mode.case, False) for name, mode in MODES.items()}


def main():
    if sys.argv[1:2] == ["--run"]:
        return run(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        limit = build_limit(folder)
        print("| case | requests | iterations | instructions per iteration | per request | limit, per request |")
        print("|---|---:|---:|---:|---:|---:|")
        for name, (case, _) in CASES.items():
            iterations, count = count_loop(name, folder)
            bound = "" if limit is None else f"{count_limit(limit, case, folder) / case.num_requests:,.0f}"
            print(f"| {name} | {case.num_requests:,} | {iterations:,} | {count / iterations:,.0f} | "
                  f"{count / case.num_requests:,.0f} | {bound} |", flush=True)
    return 0


def run(name):
    """Run one case, inside valgrind; print its iterations."""
    case, wants_iterations = (CASES | OF_MODES | OF_APART | OF_SCHEDULERS)[name]
    prepared = Prepared(case)
    prepared.ready(NoSink(wants_iterations))()
    print(prepared.total("iterations"))
    return 0


def build_limit(folder):
    """Return the lower bound; None if it cannot be built."""
    try:
        return Limit(folder)
    except Unavailable as reason:
        print(reason, file=sys.stderr)
        return None


def count_loop(name, folder):
    """Return iterations and instructions of a case; counted while Cluster.run is on the stack."""
    output, count = callgrind([f"--toggle-collect={TIMED}"], [sys.executable, __file__, "--run", name], folder)
    return int(output), count


def count_limit(limit, case, folder):
    """Return the instructions of the lower bound's loop on the requests of a case: two repeats less one."""
    trace = Path(folder, "trace.csv")
    case.traffic().write_trace(trace)
    once, twice = (callgrind([], [limit.path, trace, str(case.replicas), str(repeats)], folder)[1]
                   for repeats in (1, 2))
    return twice - once


def callgrind(options, command, folder):
    """Run a command; return its output and the number of instructions counted."""
    counts = Path(folder, "callgrind.out")
    output = subprocess.check_output(
        ["valgrind", "--tool=callgrind", "--quiet", f"--callgrind-out-file={counts}", *options, *command], text=True,
        stderr=subprocess.DEVNULL, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    return output, int(re.search(r"^totals: (\d+)", counts.read_text(), re.MULTILINE)[1])


if __name__ == "__main__":
    sys.exit(main())
