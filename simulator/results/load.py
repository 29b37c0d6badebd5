"""Load a results directory."""
import json
import os
from pathlib import Path

from simulator.errors import InputErrors
from simulator.results.metrics import SCHEMA
from simulator.results.reader import Reader, check_schema
from simulator.results.result import Result


def load_results(directory: str | os.PathLike) -> Result:
    """Load a results directory; its tables are read on first use.

    Raises
    ------
    InputErrors
        There are no complete results, or they are broken, or of an unknown schema. A damaged table raises it on
        first use.
    """
    directory = Path(directory).absolute()
    if not directory.is_dir():
        raise InputErrors([f"{directory}: {'is no folder' if directory.exists() else 'no such folder'}"])
    summary = _summary(directory / "summary.json")
    reader = Reader(directory / "results.h5")
    reader.check(SCHEMA)
    return Result(summary, reader, directory)


def _summary(path: Path) -> dict:
    """Return the content of summary.json."""
    if not path.is_file():
        what = "is no file" if path.exists() else "no such file; a run writes it last, so these are no complete results"
        raise InputErrors([f"{path}: {what}"])
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputErrors([f"{path}: {error.strerror}"]) from error
    except (ValueError, RecursionError) as error:
        raise InputErrors([f"{path}: is no JSON: {error}"]) from error
    if not isinstance(summary, dict):
        raise InputErrors([f"{path}: expected an object, found {type(summary).__name__}"])
    check_schema(path, summary.get("schema"), SCHEMA)
    for key, kind in (("name", str), ("complete", bool), ("requests", dict)):
        if not isinstance(summary.get(key), kind):
            raise InputErrors([f"{path}: {key}: expected {kind.__name__}, found {summary.get(key)!r}"])
    return summary
