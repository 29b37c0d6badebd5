"""One experiment, run in every way that must not matter, and what does not hold of it."""
import csv
import json
import math
import os
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lattice.draw import Drawn, draw
from simulator.api import Order, run_ordered
from simulator.assembly import assemble
from simulator.domain import records
from simulator.errors import InputErrors
from simulator.testing import checks
from simulator.testing.checks import Fault, Seen, faults_of
from simulator.testing.runs import differences, run_seen
from support.every_key import put, read

NEARER = 0.6            # of the time that a run took, where it is run again with a horizon
WRITTEN = 6             # one of so many is also written to files
OF_ITSELF = "experiment.json"          # what is being run, for those who wait for it in vain


class Examined(NamedTuple):
    """What became of an experiment.

    refused : the message; None: it ran.
    faults : what does not hold.
    """

    drawn: Drawn
    refused: str | None
    faults: list[Fault]


class Folder:
    """Where a worker keeps the trace of the experiment in hand; it becomes the current directory."""

    def __init__(self, path: Path):
        path.mkdir(parents=True, exist_ok=True)
        os.chdir(path)

    def keep(self, drawn: Drawn) -> None:
        """Write an experiment where it is found if this process ends."""
        with open("requests.csv", "w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(drawn.trace)
        Path("next").write_text(json.dumps(drawn._asdict()), encoding="utf-8")
        os.replace("next", OF_ITSELF)           # whole, whenever this process is ended


def examine_seed(seed: int, folder: Folder) -> Examined:
    """Draw the experiment of a seed, and examine it."""
    found: list[Fault] = []
    at_fault: list[Drawn] = []

    def is_refused(drawn: Drawn) -> bool:
        folder.keep(drawn)
        message, faults = outcome_of(lambda: assemble.prepare(read(drawn.data)))
        if faults and not at_fault:
            found.extend(faults)
            at_fault.append(drawn)
        return message is not None or bool(faults)

    drawn = draw(seed, is_refused)
    if at_fault:
        return Examined(at_fault[0], None, found)
    return examine(drawn, folder)


def examine(drawn: Drawn, folder: Folder) -> Examined:
    """Run an experiment in each way, and say what does not hold."""
    folder.keep(drawn)
    seen: list[Seen] = []
    message, faults = outcome_of(lambda: seen.append(run(drawn.data, threads=1)))
    if message is not None or faults:
        return Examined(drawn, message, faults)
    faults += outcome_of(lambda: faults.extend(faults_of(seen[0])))[1]
    for kind, changes, threads in (("twice", {}, 2), ("fast_forward", {"engine.fast_forward": False}, 1)):
        faults += _of_another_run(kind, with_changes(drawn.data, changes), threads, seen[0].result)
    faults += outcome_of(lambda: faults.extend(_of_less(drawn.data, seen[0])))[1]
    if drawn.data.get("seed", 0) % WRITTEN == 0:
        faults += outcome_of(lambda: faults.extend(_of_files(drawn.data, seen[0].result)))[1]
    return Examined(drawn, None, faults)


def _of_less(data: dict[str, Any], seen: Seen) -> list[Fault]:
    """Return what changes where nobody looks, and what happened before a horizon that is nearer."""
    unseen = run(data | {"output": {"iterations": False}}, 1)
    found = [(f"watched:{where}", text) for where, text in differences(unseen.result, seen.result)
             if where.startswith("requests") or (where.startswith("summary") and "decisions" not in where
                                                 and "output.replica_samples_s" not in text)][:1]
    if math.isfinite(seen.experiment.horizon_s) or not seen.result.summary["complete"]:
        return found
    nearer_s = max(NEARER * seen.result.summary["clock_s"], 1e-9)
    nearer = run(with_changes(data, {"horizon_s": nearer_s}), 1)
    return found + list(begins_alike(nearer.result.requests, seen.result.requests, nearer_s * 1e9))


def begins_alike(shorter, longer, horizon_ns):
    """Nothing that happens before a horizon depends on what comes behind it.

    Of requests that nothing takes back: a step that a preemption, a failure, a move, a client or a fallback repeats has
    the time of the last try.
    """
    if len(shorter) != len(longer):         # an open-ended load: there are as many as came
        return
    alike = longer["preemptions"] == 0
    if "retries" in longer.dtype.names:
        alike &= (longer["retries"] == 0) & (longer["migrations"] == 0)
    for name, once in (("client_attempts", 1), ("fallbacks", 0)):
        if name in longer.dtype.names:
            alike &= longer[name] == once
    for name in checks.WAY:
        if name in longer.dtype.names:
            expected = np.where(longer[name] < horizon_ns - 1, longer[name], records.NEVER_NS)
            found = np.where(shorter[name] < horizon_ns - 1, shorter[name], records.NEVER_NS)
            if name == "arrival_ns":
                came = records.has_come(shorter["status"])
                expected, found = np.where(came, expected, 0), np.where(came, found, 0)
            if (found != expected)[alike].any():
                row = int(np.flatnonzero((found != expected) & alike)[0])
                yield f"begins:{name}", f"request {row}: {shorter[row]} and without the horizon {longer[row]}"
                return


def _of_files(data: dict[str, Any], result) -> list[Fault]:
    """Return how the results that are written, with all files that there are, differ from those in memory."""
    output = {"iterations": True, "requests": True} | data.get("output", {})
    with_tables = output["iterations"] and output["requests"]
    apart = {"summary.diagnosis"} | ({"requests"} if not output["requests"] else set())     # in memory they are anyway
    more = {"output.chrome_trace": True, "output.vidur_csv": with_tables}
    experiment = read(with_changes(data, more))
    with tempfile.TemporaryDirectory() as folder:
        written = run_ordered(Order(experiment, Path(folder, "out"), False, True, threads=1))
        return [(f"files:{where}", text) for where, text in differences(result, written)
                if where not in apart][:1]


def _of_another_run(kind: str, data: dict[str, Any], threads: int, result) -> list[Fault]:
    """Return what is wrong with another run of an experiment, and the first number that is another."""
    again: list[Seen] = []
    refusal, faults = outcome_of(lambda: again.append(run(data, threads)))
    if refusal is not None:
        return [(kind, f"refused: {refusal}")]
    return faults + [(f"{kind}:{where}", text) for each in again
                     for where, text in differences(result, each.result)[:1]]


def with_changes(data: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of plain data with other values."""
    copied = json.loads(json.dumps(data))
    for key, value in changes.items():
        put(copied, key, value)
    if changes:
        for pool in copied.get("pools", ()):
            for key in changes:
                section, _, name = key.partition(".")
                pool.get(section, {}).pop(name, None)
    return copied


def outcome_of(action) -> tuple[str | None, list[Fault]]:
    """Return the message that refuses, and the faults of the program, of an action."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            action()
    except InputErrors as error:
        return str(error), improper(error)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        places = [frame for frame in traceback.extract_tb(error.__traceback__) if "lattice" not in frame.filename
                  or "/simulator/" in frame.filename]
        where = f"{Path(places[-1].filename).name}:{places[-1].name}" if places else ""
        return None, [(f"crash:{type(error).__name__}:{where}", "".join(traceback.format_exception(error))[-3000:])]
    return None, []


def improper(error: InputErrors) -> list[Fault]:
    """Return what is wrong with a message: each fault names the key, in one line."""
    return [("message", repr(fault)) for fault in error.faults or ("",)
            if not fault.strip() or "\n" in fault or "fault of the program" in fault or "Traceback" in fault
            or (": " not in fault and " " not in fault)]


def run(data: dict[str, Any], threads: int) -> Seen:
    """Run an experiment in memory."""
    return run_seen(read(data), threads)
