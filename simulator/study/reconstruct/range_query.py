"""Answers of Prometheus to range queries, as JSON.

Source: Prometheus 3.5, docs/querying/api.md: `/api/v1/query_range` answers `data.result`, a list of series with
`metric`, their labels, and `values`, pairs of a time in seconds and a number as text. A file holds one answer, a list
of answers, an object of answers by name, or an answer a line.
"""
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from simulator.errors import InputErrors
from simulator.study.measured.source import Source
from simulator.study.reconstruct.series import Series, is_known, plain_name


def recognises(source: Source) -> bool:
    """Return whether a file holds JSON with answers of Prometheus."""
    return source.data.lstrip()[:1] in (b"{", b"[") and b'"metric"' in source.data


def read(source: Source) -> list[Series]:
    """Return the series of a file that a reconstruction reads.

    Raises
    ------
    InputErrors
        All faults of its answers.
    """
    found = []
    for place, name, series in _all_series(source):
        made = _series(source, place, name, series)
        if made is not None:
            found.append(made)
    source.faults.raise_if_any()
    return found


def _all_series(source: Source) -> Iterator[tuple[str, str, Any]]:
    """Yield place, given name and content of each series."""
    try:
        contents = [("", msgspec.json.decode(source.data))]
    except (msgspec.DecodeError, RecursionError):
        contents = []
        for number, line in enumerate(source.data.splitlines(), 1):
            if line.strip():
                contents.append((str(number), source.decoded(line, dict, str(number))))
        source.faults.raise_if_any()
    for place, content in contents:
        yield from _answers(source, place, "", content)


def _answers(source: Source, place: str, name: str, content: Any) -> Iterator[tuple[str, str, Any]]:
    if isinstance(content, list):
        for i, each in enumerate(content):
            yield from _answers(source, f"{place}[{i}]", name, each)
    elif not isinstance(content, dict):
        source.wrong(place or "content", f"expected an answer of query_range, found {type(content).__name__}")
    elif "metric" in content:
        yield place or "series", name, content
    elif content.get("status", "success") != "success":
        source.wrong(place or "status", f"expected success, found {content.get('error', content['status'])}")
    elif "data" in content or "result" in content:
        inner = content.get("data", content)
        result = inner.get("result") if isinstance(inner, dict) else None
        if not isinstance(result, list):
            source.wrong(f"{place}data.result", "expected a list of series")
            return
        yield from _answers(source, f"{place}data.result", name, result)
    else:
        for key, each in content.items():
            yield from _answers(source, f"{place}{key}.", key, each)


def _series(source: Source, place: str, given: str, content: dict) -> Series | None:
    labels, pairs = content["metric"], content.get("values")
    if not isinstance(labels, dict) or not all(isinstance(each, str) for each in labels.values()):
        source.wrong(f"{place}.metric", "expected labels, all of them texts")
        return None
    name = plain_name(labels.get("__name__") or given)
    if not is_known(name):
        return None
    if not isinstance(pairs, list):
        source.wrong(f"{place}.values", "expected pairs of time and text" if "value" not in content else
                     "expected a matrix; an instant query has one value a series")
        return None
    try:
        table = np.array([(time, float(value)) for time, value in pairs], np.float64).reshape(-1, 2)
    except (TypeError, ValueError):
        source.wrong(f"{place}.values", "expected pairs of time and text, a number")
        return None
    table = table[np.isfinite(table[:, 1])]
    if np.any(np.diff(table[:, 0]) <= 0) or not np.all(np.isfinite(table[:, 0])):
        source.wrong(f"{place}.values", "expected ascending times")
        return None
    return Series(name, labels, table[:, 0], table[:, 1], f"{source.path}: {place}")


def read_metrics(source: Source) -> list[Series]:
    """Return the series of a file of metrics.

    Raises
    ------
    InputErrors
        The file is no JSON of Prometheus, or has faults.
    """
    if not recognises(source):
        raise InputErrors([f"{source.path}: expected the answers of Prometheus to query_range, as JSON"])
    return read(source)
