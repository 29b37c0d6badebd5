"""Answers of Prometheus to range queries, as JSON.

Source: Prometheus 3.5, docs/querying/api.md: `/api/v1/query_range` answers `data.result`, a list of series with
`metric`, their labels, and `values`, pairs of a time in seconds and a number as text. A file holds one answer, a list
of answers, an object of answers by name, or an answer a line; pages that `observe` wrote are read, too.
"""
from collections.abc import Iterator
from typing import Any

import numpy as np

from simulator.study.measured.source import Source
from simulator.study.server_metrics.names import is_known, plain_name
from simulator.study.server_metrics.pages import is_kept, kept_pages, series_of_pages
from simulator.study.server_metrics.series import Series


def read(source: Source) -> list[Series]:
    """Return the series of known metrics in a file.

    Raises
    ------
    InputErrors
        All faults of its answers.
    """
    found, pages = [], []
    for place, name, content in _all_parts(source):
        if is_kept(content):
            pages += kept_pages(source, place, content)
        elif (made := _series(source, place, name, content)) is not None:
            found.append(made)
    source.faults.raise_if_any()
    return found + series_of_pages(pages, source.path)


def _all_parts(source: Source) -> Iterator[tuple[str, str, dict]]:
    """Yield place, given name and content of each series or page."""
    contents = source.contents()
    source.faults.raise_if_any()
    for place, content in contents:
        yield from _answers(source, place, "", content)


def _answers(source: Source, place: str, name: str, content: Any) -> Iterator[tuple[str, str, dict]]:
    if isinstance(content, list):
        for i, each in enumerate(content):
            yield from _answers(source, f"{place}[{i}]", name, each)
    elif not isinstance(content, dict):
        source.wrong(place or "content", f"expected an answer of query_range, found {type(content).__name__}")
    elif "metric" in content or is_kept(content):
        yield place or "series", name, content
    elif content.get("status", "success") != "success":
        source.wrong(place or "status", f"expected success, found {content.get('error', content['status'])}")
    elif "data" in content or "result" in content:
        inner = content.get("data", content)
        inner = inner if isinstance(inner, dict) else {}
        result, kind = inner.get("result"), inner.get("resultType", "matrix")
        if not isinstance(result, list):
            source.wrong(f"{place}data.result", "expected a list of series")
        elif kind != "matrix" and not result:
            source.wrong(f"{place}data", f"expected resultType matrix, found {kind}")
        else:
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
    labels = {label: each for label, each in labels.items() if label != "__name__"}
    return Series(name, labels, table[:, 0], table[:, 1], f"{source.path}: {place}")
