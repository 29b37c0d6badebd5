"""The progress of a run, a study or a live fleet, as the page of `watch` shows it."""
import json
import threading
import time
import urllib.error
import urllib.request
from collections import Counter, deque
from pathlib import Path
from typing import Any

import numpy as np
import tomli

from simulator.errors import InputErrors
from simulator.results.figures.chart import Chart, Line, Panel, table_of
from simulator.results.load import load_results
from simulator.results.progress import FILE
from simulator.results.report import facts, notes
from simulator.study.exploring.answering import charts_of, content_of, latencies_of
from simulator.study.sweep import plan
from simulator.study.sweep.segments import FOLDER, read_all
from simulator.study.sweep.trial import STATUSES, Finished

RUNNING, COMPLETE, WAITING = "running", "complete", "waiting"
MOST_ROWS = 30                  # of runs, the latest
MOST_METRICS = 6
MOST_SAMPLES = 600              # of a live fleet
ANSWER_S = 2.0                  # longest wait for a live fleet
ANSWERS = ("capacity.json", "tune.json", "summary.json")        # written at the end of a study
SENTENCES = ("vary", "verdict", "answer", "binding", "search")


class Watched:
    """A place, and its state at each question.

    Parameters
    ----------
    place : a directory, there already or not yet, or the address of a live fleet.
    """

    def __init__(self, place: str):
        self.place = place
        self._is_live = place.startswith(("http://", "https://"))
        self._samples: deque[tuple[float, int, int, float]] = deque(maxlen=MOST_SAMPLES)
        self._began_s = time.monotonic()
        self._asked = threading.Lock()              # results are read once for all pages
        self._results: tuple[float, dict[str, Any]] = (0.0, {})     # of a complete run, by the time of its summary

    def state(self) -> dict[str, Any]:
        """Return the state: title, state, progress, facts, tables, charts, notes."""
        found = {"title": self.place, "state": WAITING, "progress": None, "facts": [], "tables": [], "charts": [],
                 "notes": []}
        try:
            with self._asked:
                return found | (self._live() if self._is_live else self._directory(Path(self.place)))
        except InputErrors as errors:
            return found | {"notes": errors.faults}

    def _directory(self, place: Path) -> dict[str, Any]:
        if (place / plan.NAME).is_file() or (place / FOLDER).is_dir():
            return study_state(place)
        if (growing := growing_in(place)) is not None:
            return run_state(growing)
        if (place / "summary.json").is_file():
            return self._complete(place)
        return {"notes": [f"{place}: there are no results and no study yet"]}

    def _complete(self, place: Path) -> dict[str, Any]:
        changed_s = (place / "summary.json").stat().st_mtime
        if changed_s != self._results[0]:
            self._results = changed_s, results_state(place)
        return self._results[1]

    def _live(self) -> dict[str, Any]:
        replicas = json.loads(_fetched(f"{self.place.rstrip('/')}/v1/replicas"))
        usage = sum(each["kv_cache_usage"] for each in replicas) / max(len(replicas), 1)
        self._samples.append((time.monotonic() - self._began_s, sum(each["running"] for each in replicas),
                              sum(each["waiting"] for each in replicas), 100 * usage))
        rows = [[each["name"], str(each["running"]), str(each["waiting"]), f"{each['kv_cache_usage']:.1%}"]
                for each in replicas]
        own = [line.partition(" ") for line in _fetched(f"{self.place.rstrip('/')}/metrics").splitlines()
               if line.startswith(("simulator:speed ", "simulator:simulated_seconds ", "simulator:behind "))]
        own_facts = [[name.partition(":")[2].replace("_", " "), value] for name, _, value in own]
        return {"state": RUNNING, "facts": own_facts,
                "tables": [{"title": "Replicas", "columns": ["replica", "running", "waiting", "KV"], "rows": rows}],
                "charts": [content_of(fleet_chart(list(self._samples)))]}


def growing_in(place: Path) -> Path | None:
    """Return the folder in which results of a place grow; None: no run writes them."""
    found = list(place.absolute().parent.glob(f".{place.absolute().name}.*.partial"))
    return max(found, key=lambda path: path.stat().st_mtime) if found else None


def run_state(growing: Path) -> dict[str, Any]:
    """Return the state of a run from its progress."""
    try:
        found = json.loads((growing / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):           # it has just begun, or ends at this moment
        return {"state": RUNNING}
    done, total, spent_s = found["finished"], found["requests"], found["spent_s"]
    left = f", about {spent_s / done * (total - done):,.0f} s left" if done else ""
    return {"state": RUNNING, "progress": {"done": done, "total": total, "words": (
        f"{done:,} of {total:,} requests, {found['simulated_s']:,.1f} s simulated in {spent_s:,.0f} s{left}")}}


def results_state(place: Path) -> dict[str, Any]:
    """Return the state of a run that has ended."""
    result = load_results(place)
    summary = result.summary
    slo = tomli.loads((place / "resolved.toml").read_text(encoding="utf-8")).get("slo", {})
    table = latencies_of(summary)
    total = summary["requests"]["injected"]
    return {"title": summary["name"], "state": COMPLETE if summary["complete"] else "interrupted",
            "progress": {"done": total, "total": total, "words": "the run has ended"}, "facts": facts(summary),
            "tables": [{"title": "Latencies", "columns": table["columns"], "rows": table["rows"]}],
            "charts": [content_of(chart) for chart in charts_of(result, slo)], "notes": notes(summary)}


def study_state(place: Path) -> dict[str, Any]:
    """Return the state of a sweep or a search from its plan and its segments."""
    stored = read_all(place)
    planned = [*plan.read(place / plan.NAME), *plan.added(place)] if (place / plan.NAME).is_file() else []
    ids, assigned = {trial.id for trial in planned}, {trial.id: trial.assignment for trial in planned}
    ended = [each for each in stored.finished.values() if not ids or each.id in ids]
    counts = Counter(each.status for each in ended)
    words = ", ".join(f"{counts[status]:,} {status}" for status in STATUSES if counts[status])
    total = len(planned) or None
    progress = {"done": len(ended), "total": total, "words": (
        f"{len(ended):,} of {total:,} runs: {words}" if total else f"{len(ended):,} runs: {words}; the search decides "
        "how many more")}
    latest = sorted(ended, key=lambda each: (each.began, each.index))[-MOST_ROWS:][::-1]
    failed = [f"{each.status}: {each.error}" for each in latest if each.error]
    is_over = bool(total and len(ended) >= total) or any((place / name).is_file() for name in ANSWERS)
    return {"title": place.name, "state": COMPLETE if is_over else RUNNING, "progress": progress,
            "facts": _sentences(place), "tables": [_runs(latest, assigned)], "notes": [*failed[:8], *stored.faults[:8]]}


def _sentences(place: Path) -> list[list[str]]:
    """Return the sentences that a search ends with."""
    found = []
    for name in ANSWERS[:2]:
        try:
            content = json.loads((place / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        found += [[f"{name}: {key}", str(content[key])] for key in SENTENCES
                  if isinstance(content.get(key), str | float)]
    return found


def _runs(latest: list[Finished], assigned: dict[str, dict[str, Any]]) -> dict[str, Any]:
    metrics = list(dict.fromkeys(key for each in latest for key in each.summary or {}))[:MOST_METRICS]
    rows = [[", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in assigned.get(each.id, {}).items())
             or str(each.index), str(each.seed), each.status, f"{each.wall_s:.1f}",
             *(_number((each.summary or {}).get(key)) for key in metrics)] for each in latest]
    return {"title": f"The latest {len(latest)} runs", "columns": ["point", "seed", "status", "s", *metrics],
            "rows": rows}


def fleet_chart(samples: list[tuple[float, int, int, float]]) -> Chart:
    """Return the chart of a live fleet: requests and KV over the time of watching."""
    times_s, *values = (np.array(column, np.float64) for column in zip(*samples, strict=True))
    panels = tuple(Panel(label, (Line("", times_s, each, steps=True),))
                   for label, each in zip(("running", "waiting", "KV, %"), values, strict=True))
    says = f"{values[0][-1]:,.0f} run and {values[1][-1]:,.0f} wait now."
    return Chart("fleet", "Running, waiting and KV use", says, "s since the page was opened", panels,
                 table_of(("time, s", "running", "waiting", "KV, %"), times_s, *values))


def _fetched(address: str) -> str:
    try:
        with urllib.request.urlopen(address, timeout=ANSWER_S) as answer:
            return answer.read().decode()
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise InputErrors([f"{address}: no live fleet answers: {getattr(error, 'reason', error)}"]) from None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4g}"
