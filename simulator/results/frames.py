"""Tables of results as data frames of pandas and polars, and as data sets of xarray."""
from collections.abc import Mapping, Sequence

import numpy as np

from simulator.domain import columns
from simulator.errors import MissingExtra, did_you_mean

NAMES = (*columns.TABLES, "token_times")


def frame_of(result, table: str):
    """Return a table of a Result as a pandas.DataFrame; see `Result.to_pandas`."""
    _check(table)
    if table == "token_times":
        return _pandas().DataFrame(_tokens(*result.token_times))
    return pandas_of(getattr(result, table), _labels(result, table))


def pandas_of(rows: np.ndarray, labels: Mapping[str, Sequence[str]]):
    """Return a structured array as a pandas.DataFrame.

    Parameters
    ----------
    labels : column of codes -> their names; -1: no name. Bytes are text of UTF-8.

    Raises
    ------
    ImportError
        pandas is not installed.
    """
    pd = _pandas()
    frame = pd.DataFrame({name: _plain(rows[name]) for name in rows.dtype.names})
    for name, names in labels.items():
        if name in frame:
            frame[name] = pd.Categorical.from_codes(frame[name], names)
    return frame


def _pandas():
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("to_pandas needs pandas: pip install pandas") from error
    return pd


def _plain(column: np.ndarray) -> np.ndarray | list[str]:
    return [each.decode() for each in column.tolist()] if column.dtype.kind == "S" else np.ascontiguousarray(column)


def polars_of(result, table: str):
    """Return a table of a Result as a polars.DataFrame; see `Result.to_polars`."""
    _check(table)
    try:
        import polars as pl
    except ImportError:
        raise MissingExtra(["to_polars needs polars: pip install polars"]) from None
    if table == "token_times":
        return pl.DataFrame(_tokens(*result.token_times))
    rows, labels = getattr(result, table), _labels(result, table)
    found = {}
    for name in rows.dtype.names:
        values = np.ascontiguousarray(rows[name])
        if name in labels:
            texts = np.array([*labels[name], None], object)[values]         # -1, no label, is the last
            found[name] = pl.Series(name, texts.tolist(), pl.Enum(list(dict.fromkeys(labels[name]))))
        else:
            found[name] = pl.Series(name, values.tolist() if values.dtype.kind in "OSU" else values)
    return pl.DataFrame(found)


def dataset_of(result, table: str):
    """Return a table of a Result as an xarray.Dataset; see `Result.to_xarray`."""
    _check(table)
    try:
        import xarray as xr
    except ImportError:
        raise MissingExtra(["to_xarray needs xarray: pip install xarray"]) from None
    if table == "token_times":
        return xr.Dataset({name: ("row", values) for name, values in _tokens(*result.token_times).items()})
    rows, labels, described = getattr(result, table), _labels(result, table), columns.TABLES[table]
    return xr.Dataset({name: ("row", np.ascontiguousarray(rows[name]), {
        "units": described[name].unit, "description": described[name].text,
        **({"labels": labels[name]} if name in labels else {})}) for name in rows.dtype.names})


def _check(table: str) -> None:
    if table not in NAMES:
        raise ValueError(f"no table {table!r}{did_you_mean(table, NAMES)}")


def _labels(result, table: str) -> dict[str, list[str]]:
    """Return the names behind the codes of each column that has any."""
    found = {name: [label or "none" for label in labels] for name, labels in columns.CODES.get(table, {}).items()}
    if table == "requests":
        found |= {name: list(result.labels.get(name, [])) for name in columns.LABELS}
    return found


def _tokens(offsets: np.ndarray, times_ns: np.ndarray) -> dict[str, np.ndarray]:
    counts = np.diff(offsets)
    return {"request": np.repeat(np.arange(len(counts)), counts),
            "token": np.arange(len(times_ns)) - np.repeat(offsets[:-1], counts),
            "time_ns": times_ns}
