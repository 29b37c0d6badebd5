"""Measured collectives: time against size, read from the tables of several profilers.

| columns | source | sizes, times |
|---|---|---|
| collective, num_ranks, ranks_per_node, num_bytes, time_us | this project's own | bytes, us |
| collective, num_workers, devices_per_node, size, time_stats.* | Vidur: all_reduce.csv, send_recv.csv | bytes, ms |
| collective, nccl_dtype, num_gpus, message_size, latency_ms | aiconfigurator: nccl_perf | elements, ms |
| allreduce_dtype, backend, num_gpus, message_size, latency_ms | aiconfigurator: custom_allreduce_perf | elements, ms |
| num_nodes, num_gpus_per_node, dtype, size(kb), time(us) | apex_plus; the file's name is the collective | KiB, us |

All count bytes as nccl-tests do (collective.pxd). That aiconfigurator counts elements follows from bus bandwidth: 445
GB/s of 450 on 8 H100 with 2 bytes an element, half of that with 1. Vidur measures 3 times or so: the median is the
default.
"""
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simulator.collective.groups import KINDS
from simulator.core.csv_columns import ProfileCsv
from simulator.errors import InputErrors, did_you_mean

KIB = 1024
ELEMENT_BYTES = {"half": 2, "bfloat16": 2, "float16": 2, "float": 4, "float32": 4, "int8": 1, "fp8": 1}
_ALIASES = {"alltoall": "all_to_all", "sendrecv": "send_recv", "allreduce": "all_reduce", "allgather": "all_gather",
            "reducescatter": "reduce_scatter"}


class Place(NamedTuple):
    """Collective and layout of a measurement."""

    kind: str               # one of KINDS
    num_ranks: int
    ranks_per_node: int


class Curve(NamedTuple):
    """Times of one collective over one group."""

    num_bytes: np.ndarray   # float64 (points,), increasing
    ns: np.ndarray          # float64 (points,)


class Choice(NamedTuple):
    """Selection of rows of a table that has several for a size."""

    statistic: str = "median"       # Vidur: min, max, mean, median
    dtype: str = "half"             # NCCL and apex_plus
    is_graph: bool = True           # custom all-reduce: inside a CUDA graph, or launched by the host


DEFAULT_CHOICE = Choice()


def read_curves(path: str | Path, choice: Choice = DEFAULT_CHOICE) -> dict[Place, Curve]:
    """Return the curves in a file.

    Raises
    ------
    InputErrors
        The file, its columns, or a row cannot be used; with file, line and column.
    """
    table = ProfileCsv(path)
    for columns, read in _FORMATS:
        if all(table.has(column) for column in columns):
            return _curves(table, *read(table, choice))
    known = "; ".join(", ".join(columns) for columns, _ in _FORMATS)
    raise InputErrors([f"{path}:1: no table of collectives: expected the columns of one of: {known}; "
                       f"found {', '.join(table.header[:12])}"])


def _curves(table: ProfileCsv, kinds, ranks, per_node, num_bytes, ns) -> dict[Place, Curve]:
    points = {}
    for kind, n, g, size, time in zip(kinds, ranks, per_node, num_bytes, ns, strict=True):
        points.setdefault(Place(_kind(table, kind), int(n), int(g)), {}).setdefault(size, []).append(time)
    if not points:
        raise InputErrors([f"{table.path}: no row is left of the data type and launch that were asked for"])
    return {place: _curve(table, place, times) for place, times in points.items()}


def _curve(table: ProfileCsv, place: Place, times: dict[float, list[float]]) -> Curve:
    sizes = sorted(times)
    ns = [float(np.mean(times[size])) for size in sizes]       # some points were measured twice
    if min(ns) <= 0.0 or place.num_ranks < 2 or not 1 <= place.ranks_per_node <= place.num_ranks:
        raise InputErrors([f"{table.path}: {place.kind} of {place.num_ranks} ranks, {place.ranks_per_node} a node: "
                           f"expected at least 2 ranks, no more a node, and times above 0; least time {min(ns):g} ns"])
    return Curve(np.array(sizes), np.array(ns))


def _kind(table: ProfileCsv, name: str) -> str:
    kind = _ALIASES.get(name, name)
    if kind not in KINDS:
        raise InputErrors([f'{table.path}: collective: no collective "{name}"{did_you_mean(name, KINDS)}'])
    return kind


# ---- each format: collective, ranks, ranks a node, bytes, ns of every row

def _read_own(table, choice):
    return (table.texts("collective"), table.numbers("num_ranks"), table.numbers("ranks_per_node"),
            table.numbers("num_bytes"), table.numbers("time_us") * 1e3)


def _read_vidur(table, choice):
    kinds = table.texts("collective")
    ms = table.numbers(f"time_stats.{kinds[0]}.{choice.statistic}")
    ranks = table.numbers("num_workers")
    return kinds, ranks, np.minimum(table.numbers("devices_per_node"), ranks), table.numbers("size"), ms * 1e6


def _read_nccl(table, choice):
    rows = table.where(nccl_dtype=choice.dtype)
    ranks = rows.numbers("num_gpus")
    return rows.texts("collective"), ranks, ranks, *_elements(rows, "nccl_dtype")


def _read_custom(table, choice):
    ending = "_graph" if choice.is_graph else "_eager"
    rows = table.rows([name.endswith(ending) for name in table.texts("backend")])
    ranks = rows.numbers("num_gpus")
    return ["all_reduce"] * len(rows), ranks, ranks, *_elements(rows, "allreduce_dtype")


def _elements(rows, dtype_column):
    """Return bytes and ns of a table of aiconfigurator."""
    widths = [ELEMENT_BYTES.get(name) for name in rows.texts(dtype_column)]
    if None in widths:
        found = rows.texts(dtype_column)[widths.index(None)]
        raise InputErrors([f'{rows.path}: {dtype_column}: unknown data type "{found}"'
                           f"{did_you_mean(found, ELEMENT_BYTES)}"])
    return rows.numbers("message_size") * np.array(widths, dtype=float), rows.numbers("latency_ms") * 1e6


def _read_apex(table, choice):
    kind = Path(table.path).name.partition(".")[0]
    rows = table.where(dtype=choice.dtype)
    per_node = rows.numbers("num_gpus_per_node")
    return ([kind] * len(rows), per_node * rows.numbers("num_nodes"), per_node,
            rows.numbers("size(kb)") * KIB, rows.numbers("time(us)") * 1e3)


_FORMATS = (
    (("collective", "num_ranks", "ranks_per_node", "num_bytes", "time_us"), _read_own),
    (("collective", "num_workers", "devices_per_node", "size"), _read_vidur),
    (("collective", "nccl_dtype", "num_gpus", "message_size", "latency_ms"), _read_nccl),
    (("allreduce_dtype", "backend", "num_gpus", "message_size", "latency_ms"), _read_custom),
    (("num_nodes", "num_gpus_per_node", "dtype", "size(kb)", "time(us)"), _read_apex),
)
