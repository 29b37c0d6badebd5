"""Tables of results as pandas data frames."""
import numpy as np

from simulator.domain import columns
from simulator.errors import did_you_mean

NAMES = (*columns.TABLES, "token_times")


def frame_of(result, table: str):
    """Return a table of a Result as a pandas.DataFrame; see `Result.to_pandas`."""
    if table not in NAMES:
        raise ValueError(f"no table {table!r}{did_you_mean(table, NAMES)}")
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("to_pandas needs pandas: pip install pandas") from error
    if table == "token_times":
        return _tokens(pd, *result.token_times)
    rows = getattr(result, table)
    frame = pd.DataFrame({name: np.ascontiguousarray(rows[name]) for name in rows.dtype.names})
    for name, labels in columns.CODES.get(table, {}).items():
        if name in frame:
            frame[name] = pd.Categorical.from_codes(frame[name], [label or "none" for label in labels])
    if table == "requests":
        for name in columns.LABELS:
            frame[name] = pd.Categorical.from_codes(frame[name], result.labels.get(name, []))
    return frame


def _tokens(pd, offsets: np.ndarray, times_ns: np.ndarray):
    counts = np.diff(offsets)
    return pd.DataFrame({
        "request": np.repeat(np.arange(len(counts)), counts),
        "token": np.arange(len(times_ns)) - np.repeat(offsets[:-1], counts),
        "time_ns": times_ns})
