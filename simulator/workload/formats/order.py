"""The note on rows that are not sorted by time."""
from pathlib import Path

import numpy as np


def notes_on_order(path: str | Path, times: np.ndarray) -> tuple[str, ...]:
    """Return a note with the number of rows that are earlier than the row above them."""
    count = int(np.count_nonzero(times[1:] < times[:-1]))
    rows = f"{count} rows are" if count > 1 else "1 row is"
    return (f"{path}: {rows} earlier than the one above; all are sorted by time.",) if count else ()
