"""Vidur-AICB per-layer tables: file names, and reading.

A table is `vidur-MODEL-world_sizeW-tpT-ppP-epE-bsB-seqS-PHASE.csv`: tab separated, with or without a header, columns
`layer_id layer_name comp_time comm_size`, one row for each component of each layer. comp_time is in nanoseconds,
comm_size in bytes that one accelerator hands to a collective. A fifth column `source` has the source of the numbers.

A decode table has B sequences with S tokens of context each, a prefill table one prompt of S tokens, for any B:
AICB measures m = S tokens and one sequence there (aliyun/aicb at 23eec3c, workload_generator/mocked_model/inference/,
`forward` of each Aiob*.py; Vidur_workload_generator.py, `get_comm_size`).
"""
import hashlib
import math
import re
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from simulator.errors import InputErrors, did_you_mean

Phase = Literal["prefill", "decode"]
COMPONENTS = ("attention", "mlp", "moe")
COLUMNS = ("layer_id", "layer_name", "comp_time", "comm_size")
SOURCE = "source"
MAX_LISTED = 20                     # faults of one file that are reported in full
MAX_LAYERS = 10_000
MAX_VALUE = 1e15                    # 11 days in nanoseconds, a petabyte
_NAME = re.compile(
    r"vidur-(?P<model>.+)-world_size(?P<world_size>\d+)-tp(?P<tensor_parallel>\d+)-pp(?P<pipeline_parallel>\d+)"
    r"-ep(?P<expert_parallel>\d+)-bs(?P<batch_size>\d+)-seq(?P<sequence_length>\d+)-(?P<phase>prefill|decode)\.csv")


class Layout(NamedTuple):
    """Common attributes of the tables of one layout."""

    model: str
    world_size: int             # accelerators over which experts are spread
    tensor_parallel: int
    pipeline_parallel: int
    expert_parallel: int
    phase: Phase

    def __str__(self):
        return (f"{self.model}, world_size {self.world_size}, tp {self.tensor_parallel}, pp {self.pipeline_parallel}, "
                f"ep {self.expert_parallel}, {self.phase}")


class Table(NamedTuple):
    """One file: the time of each component of each layer.

    compute_ns, comm_bytes : arrays (layers, COMPONENTS); NaN if a layer has no such component.
    """

    batch_size: int
    sequence_length: int        # decode: context tokens of each sequence; prefill: tokens of the prompt
    compute_ns: np.ndarray
    comm_bytes: np.ndarray
    source: str                 # "": not stated
    sha256: str                 # of the file


def file_name(layout: Layout, batch_size: int, sequence_length: int) -> str:
    """Return the name under which Vidur-AICB looks for a table."""
    return (f"vidur-{layout.model}-world_size{layout.world_size}-tp{layout.tensor_parallel}"
            f"-pp{layout.pipeline_parallel}-ep{layout.expert_parallel}-bs{batch_size}-seq{sequence_length}"
            f"-{layout.phase}.csv")


def read_layout(folder: str | Path, layout: Layout) -> list[Table]:
    """Return all tables of a layout, by batch size and sequence length.

    Raises
    ------
    InputErrors
        No such folder or tables, or all faults of the tables, with file, line and column.
    """
    found = _files(Path(folder))
    chosen = sorted((size, length, path) for each, size, length, path in found if each == layout)
    if not chosen:
        known = sorted({str(each) for each, *_ in found if each.phase == layout.phase})
        raise InputErrors([f"{folder}: no table of {layout}; it has {'; '.join(known) or 'none of this phase'}"])
    tables, faults = [], []
    for size, length, path in chosen:
        try:
            tables.append(read_table(path, size, length))
        except InputErrors as errors:
            faults += errors.faults
    if faults:
        raise InputErrors(faults)
    return tables


def facts_of(folder: str | Path, tables: list[Table]) -> dict[str, Any]:
    """Return file, version, sha256 and measured ranges of the tables of one layout.

    The digest is taken over the digests of their files, one per line, by batch size and sequence length.
    """
    digest = hashlib.sha256("".join(f"{table.sha256}\n" for table in tables).encode()).hexdigest()
    measured = {axis: [min(values), max(values)] for axis, values in (
        ("sequences", [table.batch_size for table in tables]),
        ("tokens", [table.sequence_length for table in tables]))}
    return {"file": str(folder), "version": "", "sha256": digest, "measured": measured}


def model_in(folder: str | Path, name: str | None) -> str:
    """Return `name`, or the only model with tables in a folder."""
    models = sorted({layout.model for layout, *_ in _files(Path(folder))})
    if name in models:
        return name
    if name is not None:
        raise InputErrors([f'{folder}: no tables of model "{name}"{did_you_mean(name, models)}'])
    if len(models) == 1:
        return models[0]
    raise InputErrors([f"{folder}: has tables of {', '.join(models) or 'no model'}; name one as table_model"])


def _files(folder: Path) -> list[tuple[Layout, int, int, Path]]:
    if not folder.is_dir():
        raise InputErrors([f"{folder}: no such folder"])
    found, faults = [], []
    for path in sorted(folder.glob("vidur-*.csv")):
        match = _NAME.fullmatch(path.name)
        if match is None:
            faults.append(f"{path}: expected a name such as vidur-MODEL-world_size8-tp4-pp1-ep8-bs1-seq100-prefill.csv")
            continue
        words = match.groupdict()
        model, phase = words.pop("model"), words.pop("phase")
        numbers = {key: int(value) for key, value in words.items()}
        size, length = numbers.pop("batch_size"), numbers.pop("sequence_length")
        found.append((Layout(model=model, phase=phase, **numbers), size, length, path))
    if faults:
        raise InputErrors(faults)
    return found


def read_table(path: str | Path, batch_size: int, sequence_length: int) -> Table:
    """Return one table.

    Raises
    ------
    InputErrors
        All faults of the file, with line and column.
    """
    return _Reader(Path(path)).read(batch_size, sequence_length)


class _Reader:
    """Reader of one file, which collects its faults."""

    def __init__(self, path: Path):
        self.path = path
        self.faults = []
        self.cells = {}         # (layer, component) -> (compute_ns, comm_bytes, line)
        self.source = self.digest = ""

    def read(self, batch_size: int, sequence_length: int) -> Table:
        rows = self._rows()
        columns = self._columns(rows)
        for line, row in rows:
            self._add(line, row, columns)
        num_layers = self._num_layers()
        self._raise_if_faulty()
        values = np.full((2, num_layers, len(COMPONENTS)), math.nan)
        for (layer, component), (compute_ns, comm_bytes, _) in self.cells.items():
            values[:, layer, component] = compute_ns, comm_bytes
        return Table(batch_size, sequence_length, values[0], values[1], self.source, self.digest)

    def _rows(self) -> list[tuple[int, list[str]]]:
        try:
            content = self.path.read_bytes()
            text = content.decode("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise InputErrors([f"{self.path}: {getattr(error, 'strerror', None) or error}"]) from error
        self.digest = hashlib.sha256(content).hexdigest()
        lines = enumerate(text.splitlines(), 1)
        rows = [(number, [cell.strip() for cell in line.split("\t")]) for number, line in lines if line.strip()]
        if not rows:
            raise InputErrors([f"{self.path}: the file is empty"])
        return rows

    def _columns(self, rows: list) -> tuple[str, ...]:
        """Return the names of the columns; remove the header, if there is one, from the rows."""
        line, first = rows[0]
        if first[0].lstrip("-").isdigit():
            return COLUMNS
        del rows[0]
        if len(first) == 1:
            raise InputErrors([f'{self.path}:{line}: expected {len(COLUMNS)} cells separated by tabs, '
                               f'found "{first[0][:60]}"'])
        for name in first:
            if name not in (*COLUMNS, SOURCE):
                self._fault(line, f'unknown column "{name[:60]}"{did_you_mean(name, (*COLUMNS, SOURCE))}')
        self.faults += [f"{self.path}:{line}: column {name} is missing" for name in COLUMNS if name not in first]
        self._raise_if_faulty()
        if not rows:
            raise InputErrors([f"{self.path}: there is no row below the header"])
        return tuple(first)

    def _add(self, line: int, row: list[str], columns: tuple[str, ...]) -> None:
        if len(row) != len(columns):
            self._fault(line, f"expected {len(columns)} cells separated by tabs, found {len(row)}")
            return
        cells = dict(zip(columns, row, strict=True))
        layer = self._layer(line, cells["layer_id"])
        compute_ns = self._number(line, "comp_time", cells["comp_time"])
        comm_bytes = self._number(line, "comm_size", cells["comm_size"])
        name = cells["layer_name"]
        if name not in COMPONENTS:
            self._cell_fault(line, "layer_name", f"one of {', '.join(COMPONENTS)}", name)
        elif (layer, COMPONENTS.index(name)) in self.cells:
            before = self.cells[layer, COMPONENTS.index(name)][2]
            self._fault(line, f"layer_id: {name} of layer {layer} is on line {before} already")
        elif layer is not None:
            self.cells[layer, COMPONENTS.index(name)] = compute_ns, comm_bytes, line
        self.source = self.source or cells.get(SOURCE, "")

    def _num_layers(self) -> int:
        """Return the number of layers; a missing one is a fault."""
        layers = {layer for layer, _ in self.cells}
        absent = sorted(set(range(max(layers, default=-1) + 1)) - layers)
        if absent and not self.faults:
            self.faults.append(f"{self.path}: layer_id: layer {absent[0]} is missing")
        return len(layers)

    def _layer(self, line: int, text: str) -> int | None:
        if text.isascii() and text.isdigit() and len(text) <= len(str(MAX_LAYERS)) and int(text) < MAX_LAYERS:
            return int(text)
        self._cell_fault(line, "layer_id", f"an integer from 0 to {MAX_LAYERS - 1}", text)
        return None

    def _number(self, line: int, column: str, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0.0 <= value <= MAX_VALUE:
            self._cell_fault(line, column, f"a number from 0 to {MAX_VALUE:g}", text)
        return value

    def _cell_fault(self, line: int, column: str, expected: str, found: str) -> None:
        self._fault(line, f'{column}: expected {expected}, found "{found[:60]}"')

    def _fault(self, line: int, text: str) -> None:
        self.faults.append(f"{self.path}:{line}: {text}")

    def _raise_if_faulty(self) -> None:
        if self.faults:
            more = len(self.faults) - MAX_LISTED
            tail = [f"{self.path}: {more} more fault{'s' if more > 1 else ''} like these"] if more > 0 else []
            raise InputErrors(self.faults[:MAX_LISTED] + tail)
