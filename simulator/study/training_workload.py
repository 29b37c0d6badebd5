"""SimAI's training workloads, in ASTRA-SIM's text format with one operation a line.

Line 1 names the parallelism (`model_parallel_NPU_group: 8 ep: 4 pp: 2 vpp: 1 ga: 16 all_gpus: 64 ... pp_comm: 0`; some
writers leave the colon out), line 2 counts the operations, then twelve fields each, separated by blanks:

    name, dependency, compute ns, collective and bytes of the forward pass, of the input gradient and of the weight
    gradient, update

A collective is NONE or a kind with the group it runs over, ALLTOALL_EP for instance; without one, forward and input
gradient run over the tensor group, weight gradients over the data group.
Source: aliyun/SimAI at f5efb5a9, astra-sim/workload/Workload.cc, compared with the output of its programs.
"""
import math
import re
from pathlib import Path
from typing import NamedTuple

from simulator.errors import InputErrors, did_you_mean

NUM_FIELDS = 12
KINDS = {
    "ALLREDUCE": "all_reduce", "ALLGATHER": "all_gather", "REDUCESCATTER": "reduce_scatter", "ALLTOALL": "all_to_all",
    "BROADCAST": "send_recv",       # pipelined through the ranks: bus bandwidth = algorithm bandwidth, as a message
}
SUFFIXES = {"_DP_EP": "data_expert", "_EP": "expert", "_DP": "data"}     # longest first
PHASES = {"forward": ("tensor", 2), "input_gradient": ("tensor", 5), "weight_gradient": ("data", 8)}   # group, column
HEADER_NAMES = {
    "model_parallel_NPU_group": "tensor", "ep": "expert", "pp": "pipeline", "vpp": "virtual_stages",
    "ga": "micro_batches", "all_gpus": "num_gpus", "pp_comm": "pipeline_bytes"}
LARGEST = 1e18


class Phase(NamedTuple):
    """Computation, then a collective; `kind` is empty where there is none."""

    compute_ns: float
    kind: str
    group: str
    num_bytes: float


class Operation(NamedTuple):
    """One line of a workload."""

    name: str
    forward: Phase
    input_gradient: Phase
    weight_gradient: Phase


class TrainingWorkload(NamedTuple):
    """One training iteration on one pipeline stage."""

    operations: list[Operation]
    tensor: int = 1
    expert: int = 1
    pipeline: int = 1
    virtual_stages: int = 1     # of one pipeline stage
    micro_batches: int = 1      # gradient accumulation
    num_gpus: int = 0           # 0: not said
    pipeline_bytes: float = 0.0


def read_workload(path: str | Path) -> TrainingWorkload:
    """Return the workload in a file.

    Raises
    ------
    InputErrors
        Every fault, with line and field.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputErrors([f"{path}: {getattr(error, 'strerror', None) or error}"]) from error
    rows = [(number, line.split()) for number, line in enumerate(lines[2:], 3) if line.strip()]
    faults = _count_faults(path, lines, len(rows))
    header = _header(path, lines[0] if lines else "", faults)
    operations = [_operation(f"{path}:{number}", fields, faults) for number, fields in rows]
    if faults:
        raise InputErrors(faults)
    return TrainingWorkload(operations, **header)


def _count_faults(path, lines: list[str], found: int) -> list[str]:
    said = lines[1].strip() if len(lines) > 1 else ""
    if not said.isdecimal():
        return [f'{path}:2: expected the number of operations, found "{said[:40]}"']
    if int(said) != found:
        return [f"{path}:2: says {said} operations, found {found}"]
    return [] if found else [f"{path}: holds no operation"]


def _header(path, line: str, faults: list[str]) -> dict:
    values = {}
    for name, field in HEADER_NAMES.items():
        match = re.search(rf"(?<!\S){name}:?\s+(\S+)", line)
        if match is None:
            continue
        if match[1].isdecimal() and len(match[1]) <= 18:
            lowest = 0 if field in ("num_gpus", "pipeline_bytes") else 1    # some writers say pp: 0
            values[field] = max(int(match[1]), lowest)
        else:
            faults.append(f'{path}:1: {name}: expected an integer >= 0, found "{match[1][:40]}"')
    return values


def _operation(where: str, fields: list[str], faults: list[str]) -> Operation | None:
    if len(fields) != NUM_FIELDS:
        faults.append(f"{where}: expected {NUM_FIELDS} fields, found {len(fields)}")
        return None
    phases = {name: _phase(f"{where}: {name}", fields[column:column + 3], group, faults)
              for name, (group, column) in PHASES.items()}
    return Operation(fields[0], **phases)


def _phase(where: str, fields: list[str], group: str, faults: list[str]) -> Phase:
    compute_ns = _number(f"{where}: compute", fields[0], faults)
    num_bytes = _number(f"{where}: bytes", fields[2], faults)
    name = fields[1]
    if name == "NONE":
        return Phase(compute_ns, "", group, 0.0)
    for suffix, suffixed in SUFFIXES.items():
        if name.endswith(suffix):
            name, group = name.removesuffix(suffix), suffixed
            break
    if name not in KINDS:
        faults.append(f'{where}: no collective "{fields[1]}"{did_you_mean(name, [*KINDS, "NONE"])}')
    return Phase(compute_ns, KINDS.get(name, ""), group, num_bytes)


def _number(where: str, text: str, faults: list[str]) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if 0.0 <= number < LARGEST:
        return number
    faults.append(f'{where}: expected a number >= 0, found "{text[:40]}"')
    return 0.0
