"""Files of a server's metrics, by their content, as one series."""
import json
import os
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from simulator.errors import InputErrors, collect_faults
from simulator.study.observe.server_facts import samples_of
from simulator.study.server_check.log_lines import is_log, readings_of_log
from simulator.study.server_check.prometheus import (
    Sample,
    readings_of,
    samples_of_answer,
    samples_of_page,
)
from simulator.study.server_check.series import Facts, Series, series_of

KEPT = "metrics.jsonl"              # in the folder of `observe`: a page a line
LEAST = 3                           # readings: with fewer, a mean has no error
EPOCH = re.compile(r"\d{9,10}(?:\.\d+)?")
STAMPED = re.compile(r"(?P<sample>\S+(?:\{.*\})? \S+) (?P<time_ms>\d{12,})")
FORMATS = "pages of Prometheus' text, answers of range queries as JSON, metrics.jsonl of `observe`, or vLLM's log"


def read_series(files: Iterable[str | os.PathLike]) -> Series:
    """Read the series of one server from its files.

    A text page without times is as old as the number of seconds in its name says, else as its file.

    Raises
    ------
    InputErrors
        A file cannot be read, or is of no known format; too few readings.
    """
    paths = [path for file in files for path in _files_in(Path(file))]
    contents = collect_faults(*((lambda path=path: _content(path)) for path in paths))
    logs = [readings_of_log(text) for text in contents if isinstance(text, str)]
    readings, facts = readings_of(sample for samples in contents if not isinstance(samples, str) for sample in samples)
    for more, of_log in logs:
        readings += more
        facts = Facts(*(old if old is not None else new for old, new in zip(facts, of_log, strict=True)))
    series = series_of(readings, facts)
    return checked(series, ", ".join(map(str, files)))


def checked(series: Series, source: str) -> Series:
    """Return a series, or refuse a short one.

    Raises
    ------
    InputErrors
        Fewer than three readings, or none of the requests.
    """
    if "running" not in series.values:
        raise InputErrors([f"{source}: no series vllm:num_requests_running; expected {FORMATS}"])
    if len(series.times_s) < LEAST:
        raise InputErrors([f"{source}: {len(series.times_s)} readings at different times, expected at least {LEAST}"])
    return series


def _files_in(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    if (path / KEPT).exists():
        return [path / KEPT]
    return sorted(each for each in path.iterdir() if each.is_file() and not each.name.startswith("."))


def _content(path: Path) -> str | list[Sample]:
    """Return the samples of a file, or the text of a log."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputErrors([f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"]) from None
    try:
        if text.lstrip()[:1] in ("{", "["):
            found = list(_samples_of_json(text))
        elif is_log(text):
            return text
        else:
            found = list(_samples_of_text(text, path))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputErrors([f"{path}: expected {FORMATS}; found {type(error).__name__}: {error}"]) from None
    if not any(sample.metric.startswith("vllm:") for sample in found):
        raise InputErrors([f"{path}: no metric of vLLM (vllm:...); expected {FORMATS}"])
    return found


def _samples_of_json(text: str) -> Iterator[Sample]:
    try:
        whole = json.loads(text)
    except ValueError:                          # a value a line
        whole = [json.loads(line) for line in text.splitlines() if line.strip()]
    for each in whole if isinstance(whole, list) else [whole]:
        if "samples" in each:
            yield from samples_of_page(each["samples"], float(each["time_s"]))
        elif "began_at" in each:                # server.json of `observe`
            began_s = datetime.fromisoformat(each["began_at"]).timestamp()
            for name, time_s in (("before", began_s), ("after", began_s + each["summary"]["duration_s"])):
                yield from samples_of_page(each["metrics"][name], time_s)
        else:
            yield from samples_of_answer(each)


def _samples_of_text(text: str, path: Path) -> Iterator[Sample]:
    """Yield the samples of a text page; lines may have times, in milliseconds."""
    pages: dict[float | None, list[str]] = {}
    for line in text.splitlines():
        stamped = STAMPED.fullmatch(line.strip())
        if stamped is not None and not line.startswith("#"):
            pages.setdefault(int(stamped["time_ms"]) / 1000, []).append(stamped["sample"])
        else:
            pages.setdefault(None, []).append(line)
    for time_s, lines in pages.items():
        yield from samples_of_page(samples_of("\n".join(lines)), _time_of(path) if time_s is None else time_s)


def _time_of(path: Path) -> float:
    named = EPOCH.search(path.name)
    return float(named[0]) if named else path.stat().st_mtime
