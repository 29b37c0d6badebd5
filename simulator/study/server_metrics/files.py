"""Files of a server's metrics, each read by its content."""
from pathlib import Path

from simulator.errors import InputErrors
from simulator.study.measured.source import Source
from simulator.study.server_metrics import pages, range_query, statistics_lines
from simulator.study.server_metrics.names import PREFIX
from simulator.study.server_metrics.series import Series

KEPT = "metrics.jsonl"              # in the folder of `observe`: a page a line
FORMATS = "pages of Prometheus' text, answers of range queries as JSON, metrics.jsonl of `observe`, or vLLM's log"


def files_in(path: Path) -> list[Path]:
    """Return a file itself, or the files of a folder.

    Of a folder that `observe` wrote, metrics.jsonl is read alone.
    """
    if not path.is_dir():
        return [path]
    if (path / KEPT).exists():
        return [path / KEPT]
    return sorted(each for each in path.iterdir() if each.is_file() and not each.name.startswith("."))


def read(source: Source, near_s: float | None = None) -> list[Series]:
    """Return the series of a file.

    near_s : an instant of a log's year; see `statistics_lines.read`.

    Raises
    ------
    InputErrors
        All faults of the file; it is a text without metrics of vLLM.
    """
    if statistics_lines.recognises(source):
        return statistics_lines.read(source, near_s)
    if source.data.lstrip()[:1] in (b"{", b"["):
        return range_query.read(source)
    found = pages.read(source)
    if not found and PREFIX.encode() not in source.data:
        raise InputErrors([f"{source.path}: no metric of vLLM ({PREFIX}...); expected {FORMATS}"])
    return found
