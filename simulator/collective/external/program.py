"""Run a user's own build of SimAI on one collective, and remember its result.

The program runs in a fresh folder that holds the workload, an empty `results` and, where a checkout is given, a link to
its `astra-sim-alibabacloud`, from which SimAI reads its ratio tables. Commands and columns are those of aliyun/SimAI
1.6 and 1.7: SimAI_analytical -w -g -g_p_s -r, SimAI_simulator -t -w -n -c; both write a *EndToEnd*.csv with a line a
layer.
"""
import contextlib
import csv
import hashlib
import json
import math
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.errors import InputErrors, KeyFault

File = Annotated[str, Meta(extra={"path": True})]
INPUTS = "astra-sim-alibabacloud"       # folder of a checkout; its inputs/ holds the files that the program reads
LAYER = "collective"
SHOWN = 400                             # characters of the program's messages
COLUMNS = {False: 5, True: 6}           # exposed communication in us: forward; weight gradient
LONGEST_US = 1e12                       # eleven days
_SECTION = "latency.collective"


class ExternalParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program of the user; its own accuracy and limits apply."""

    binary: Annotated[File, Meta(min_length=1, description="SimAI_analytical or SimAI_simulator")]
    program: Annotated[Literal["analytical", "simulation"], Meta(description="kind of the binary")] = "analytical"
    topology: Annotated[File, Meta(description="topology file, simulation")] = ""
    config: Annotated[File, Meta(description="SimAI.conf, simulation")] = ""
    checkout: Annotated[File, Meta(description="checkout of SimAI, for the ratio tables, analytical")] = ""
    arguments: Annotated[list[str], Meta(description=(
        'more arguments, such as ["-nv", "360"]; files they name are not watched for changes'))] = []
    threads: Annotated[int, Meta(ge=1, le=1024, description="simulation")] = 16
    send_latency_us: Annotated[float, Meta(ge=0, description="AS_SEND_LAT of each flow, simulation")] = 6.0
    nvls: Annotated[bool, Meta(description="AS_NVLS_ENABLE, reduction in the switch, simulation")] = True
    send_recv_gb_per_s: Annotated[float, Meta(ge=0, description=(
        "bandwidth between pipeline stages, which the programs cannot time; 0: not known"))] = 0.0
    time_limit_s: Annotated[float, Meta(gt=0, description="time limit of one run")] = 600.0
    cache: Annotated[File, Meta(description="folder of results; default: $XDG_CACHE_HOME or ~/.cache, simulator")] = ""


class ExternalProgram:
    """One program with its inputs.

    Raises
    ------
    InputErrors
        A file is missing or cannot be run.
    """

    def __init__(self, parameters: ExternalParameters, gpus_per_node: int):
        self.parameters, self._gpus_per_node = parameters, gpus_per_node
        self.num_runs = self.num_cached = 0
        faults = [fault for fault in self._file_faults() if fault]
        if faults:
            raise InputErrors(faults)
        self._cache = Path(parameters.cache or _default_cache())
        self._depends_on = self._digest_of_inputs()

    def time_us(self, workload: str, num_gpus: int, is_weight_gradient: bool) -> float:
        """Return the exposed communication of a workload of one layer, in microseconds.

        Raises
        ------
        InputErrors
            The program fails, takes too long, or prints something else.
        """
        arguments = self._arguments(num_gpus)
        key = _digest([self._depends_on, workload, json.dumps(arguments), str(is_weight_gradient)])
        entry = self._cache / f"collective-{key}.json"
        us = _stored(entry)
        if us is not None:
            self.num_cached += 1
            return us
        us = self._run(arguments, workload, is_weight_gradient)
        self.num_runs += 1
        _store(entry, {"us": us, "arguments": arguments, "workload": workload})
        return us

    def _file_faults(self) -> Iterable[str]:
        parameters = self.parameters
        is_simulation = parameters.program == "simulation"
        yield _missing("binary", parameters.binary, "program")
        if os.path.isfile(parameters.binary) and not os.access(parameters.binary, os.X_OK):
            yield KeyFault(f"{_SECTION}.binary: {parameters.binary} is not executable")
        for name in ("topology", "config"):
            if is_simulation:
                yield _missing(name, getattr(parameters, name), "file")
        if parameters.checkout and not os.path.isdir(os.path.join(parameters.checkout, INPUTS)):
            yield KeyFault(f"{_SECTION}.checkout: {parameters.checkout} has no folder {INPUTS}")

    def _arguments(self, num_gpus: int) -> list[str]:
        parameters = self.parameters
        if parameters.program == "simulation":
            return ["-t", str(parameters.threads), "-w", "workload.txt", "-n", os.path.abspath(parameters.topology),
                    "-c", os.path.abspath(parameters.config), *parameters.arguments]
        return ["-w", "workload.txt", "-g", str(num_gpus), "-g_p_s", str(self._gpus_per_node), "-r", "run-",
                *parameters.arguments]

    def _environment(self) -> dict[str, str]:
        parameters = self.parameters
        if parameters.program == "analytical":
            return {}
        return {"AS_SEND_LAT": f"{parameters.send_latency_us:g}", "AS_NVLS_ENABLE": str(int(parameters.nvls))}

    def _digest_of_inputs(self) -> str:
        """Return a digest of everything but the workload: contents, not names, of the files."""
        parameters = self.parameters
        files = [parameters.binary]
        if parameters.program == "simulation":
            files += [parameters.topology, parameters.config]
        if parameters.checkout:
            inputs = Path(parameters.checkout, INPUTS, "inputs")
            files += sorted(str(path) for path in inputs.rglob("*") if path.is_file())
        parts = [parameters.program, json.dumps(self._environment(), sort_keys=True)]
        try:
            return _digest(parts + [_digest_of_file(file) for file in files])
        except OSError as error:
            raise InputErrors([f"{error.filename}: {error.strerror}"]) from error

    def _run(self, arguments: list[str], workload: str, is_weight_gradient: bool) -> float:
        with tempfile.TemporaryDirectory(prefix="simulator-") as name:
            folder = Path(name)
            (folder / "results").mkdir()
            (folder / "workload.txt").write_text(workload)
            if self.parameters.checkout:
                (folder / INPUTS).symlink_to(Path(self.parameters.checkout, INPUTS).absolute())
            command = [os.path.abspath(self.parameters.binary), *arguments]
            output = _call(command, folder, os.environ | self._environment(), self.parameters.time_limit_s)
            tables = [path for place in (folder, folder / "results") for path in place.glob("*EndToEnd*.csv")]
            if not tables:
                raise InputErrors([f"{_shown(command)}: wrote no *EndToEnd*.csv: {output}"])
            return _exposed_us(tables[0], COLUMNS[is_weight_gradient], _shown(command))


def _call(command: list[str], folder: Path, environment: dict[str, str], time_limit_s: float) -> str:
    """Run a program to its end, children included; return the end of its output."""
    with open(folder / "printed", "w+b") as printed:        # a file: NS-3 may print gigabytes
        try:
            process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=printed,
                                       stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as error:
            raise InputErrors([f"{_shown(command)}: cannot be started: {error.strerror}"]) from error
        try:
            status = process.wait(time_limit_s)
        except subprocess.TimeoutExpired:
            raise InputErrors([f"{_shown(command)}: did not end within time_limit_s = {time_limit_s:g}"]) from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)      # its session, with all processes left behind
            process.wait()
        end = _end_of(printed)
    if status != 0:
        what = f"exit status {status}" if status > 0 else f"died of signal {-status}"
        raise InputErrors([f"{_shown(command)}: {what}: {end}"])
    return end


def _end_of(printed) -> str:
    size = printed.seek(0, os.SEEK_END)
    printed.seek(max(size - SHOWN, 0))
    return " ".join(printed.read().decode(errors="replace").split()) or "it printed nothing"


def _exposed_us(table: Path, column: int, command: str) -> float:
    rows = list(csv.reader(table.read_text(errors="replace").splitlines()))
    row = next((row for row in rows if row and row[0] == LAYER), None)
    if row is None or len(row) <= column:
        found = " / ".join(",".join(row) for row in rows)[:SHOWN] or "nothing"
        raise InputErrors([f"{command}: {table.name}: expected a line of the layer {LAYER}, found {found}"])
    try:
        us = float(row[column])
    except ValueError:
        us = math.nan
    if not 0.0 <= us < LONGEST_US:  # SimAI prints -1, nan, or 1.8e16 where it has no bandwidth
        raise InputErrors([f'{command}: {table.name}: column {column + 1}: expected microseconds >= 0, '
                           f'found "{row[column][:40]}"'])
    return us


def _stored(entry: Path) -> float | None:
    """Return the result in a cache entry; None if there is none that can be read."""
    try:
        us = json.loads(entry.read_bytes())["us"]
        return us if 0.0 <= us < LONGEST_US else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _store(entry: Path, content: dict) -> None:
    """Write a result whole or not at all; a cache that cannot be written only costs time."""
    with contextlib.suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=entry.parent, delete=False) as file:
            json.dump(content, file)
        os.replace(file.name, entry)


def _missing(key: str, name: str, what: str) -> str:
    if name and os.path.isfile(name):
        return ""
    return KeyFault(f"{_SECTION}.{key}: {f'no {what} {name}' if name else 'missing; expected the name of a file'}")


def _default_cache() -> str:
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "simulator")


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()


def _digest_of_file(name: str) -> str:
    with open(name, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _shown(command: list[str]) -> str:
    return " ".join(command)
