"""Load a results directory."""
import json
import os
from pathlib import Path

from simulator.results.hdf5 import Reader
from simulator.results.result import Result


def load_results(directory: str | os.PathLike) -> Result:
    """Load a results directory; its tables are read when they are first asked for.

    Raises
    ------
    FileNotFoundError
        There are no complete results.
    """
    directory = Path(directory)
    summary = json.loads((directory / "summary.json").read_text(encoding="utf-8"))
    return Result(summary, Reader(directory / "results.h5"), directory)
