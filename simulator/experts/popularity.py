"""Popularity of experts: loads by layer, and the shares of the work that follow from the loads."""
import csv
from pathlib import Path

import numpy as np

from simulator.core.random_streams import RandomStreams
from simulator.domain.experts import Popularity
from simulator.errors import InputErrors

MAX_LOAD = 1e15


def loads_of(popularity: Popularity, num_experts: int, num_layers: int, draw: int = 0) -> np.ndarray:
    """Return the loads of experts, (layers, experts); each layer adds up to 1.

    Parameters
    ----------
    draw : 0 at the start; each drift makes the next. Draws are streams of their own: none depends on those before.

    Raises
    ------
    InputErrors
        The file cannot be read, or does not fit the model.
    """
    if popularity.distribution == "uniform":
        return np.full((num_layers, num_experts), 1 / num_experts)
    if popularity.distribution == "zipf":
        row = np.arange(1.0, num_experts + 1) ** -popularity.s
        rows = np.broadcast_to(row / row.sum(), (num_layers, num_experts))
    else:
        rows = read_loads(popularity.file, num_experts, num_layers)
        if draw == 0:
            return rows
    generator = RandomStreams(popularity.seed).generator(f"expert popularity {draw}")
    return generator.permuted(rows, axis=1)


def read_loads(path: str, num_experts: int, num_layers: int) -> np.ndarray:
    """Return the loads in a file, as `loads_of` does."""
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            lines = [(reader.line_num, line) for reader in [csv.reader(file)] for line in reader if line]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputErrors([f"{path}: {getattr(error, 'strerror', None) or error}"]) from error
    if len(lines) not in (1, num_layers):
        raise InputErrors([f"{path}: expected one line, or {num_layers}, one for each layer with experts; found "
                           f"{len(lines)}"])
    rows, faults = [], []
    for number, line in lines:
        if len(line) != num_experts:
            faults.append(f"{path}:{number}: expected {num_experts} loads, one for each expert, found {len(line)}")
            continue
        row = [_load(cell) for cell in line]
        faults += [f'{path}:{number}: expected a number from 0 to {MAX_LOAD:g}, found "{cell[:60]}"'
                   for cell, load in zip(line, row, strict=True) if load is None]
        rows.append(row)
        if None not in row and sum(row) == 0.0:
            faults.append(f"{path}:{number}: all loads are 0")
    if faults:
        raise InputErrors(faults)
    loads = np.broadcast_to(np.array(rows, dtype=float), (num_layers, num_experts))
    return loads / loads.sum(axis=1, keepdims=True)


def _load(cell: str) -> float | None:
    try:
        load = float(cell)
    except ValueError:
        return None
    return load if 0.0 <= load <= MAX_LOAD else None


def chosen_frac(loads: np.ndarray, chosen: int) -> np.ndarray:
    """Return the share of tokens that choose each expert, `chosen` different ones.

    In proportion to the loads, but none above 1: the excess goes to the others, in proportion to their loads. Proposed
    here; there is no published check.

    Raises
    ------
    ValueError
        Fewer experts than that have a load.
    """
    fracs = loads * chosen
    for row, row_loads in zip(fracs, loads, strict=True):
        if (row_loads > 0).sum() < chosen:
            raise ValueError(f"{chosen} experts a token, but only {(row_loads > 0).sum()} of a layer have a load")
        is_full = np.zeros(len(row), dtype=bool)
        while (is_more := (row > 1) & ~is_full).any():
            is_full |= is_more
            row[is_full] = 1.0
            rest = row_loads[~is_full].sum()
            if rest > 0:
                row[~is_full] = row_loads[~is_full] * ((chosen - is_full.sum()) / rest)
    return fracs
