"""Dependencies: the columns wait_for, play, not_before_s, session and round of a native trace."""
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal

import numpy as np

from simulator.domain.sessions import TraceSessions
from simulator.workload.columns import Waits
from simulator.workload.formats.dependency_cycles import rows_in_cycles
from simulator.workload.limits import MAX_TIME_NS, MISSING
from simulator.workload.reading.csv_scan import Scan
from simulator.workload.reading.faults import Faults, quoted

COLUMNS = ("wait_for", "play", "not_before_s", "round", "think_time_s")      # without them no request waits
WAIT = re.compile(r"(?P<id>.+):(?P<when>start|end)(?:\+(?P<delay>\d+\.?\d*|\.\d+))?", re.DOTALL)
UNKNOWN = -1


class Edges:
    """Collects dependencies."""

    def __init__(self):
        self.sources, self.targets, self.delays_ns, self.from_dispatch = [], [], [], []

    def add(self, sources, targets, delays_ns, from_dispatch) -> None:
        """Add arrays of edges."""
        self.sources.append(np.asarray(sources, np.int64))
        self.targets.append(np.asarray(targets, np.int64))
        self.delays_ns.append(np.asarray(delays_ns, np.int64))
        self.from_dispatch.append(np.asarray(from_dispatch, bool))


def waits_of(scan: Scan, rows_by_id: Callable[[], dict[str, int]], sessions: TraceSessions,
             faults: Faults) -> Waits | None:
    """Return the dependencies in a scanned trace; None: there are none.

    Parameters
    ----------
    rows_by_id : returns the row of each id, as text.
    faults : collects faults.
    """
    plays, edges, count = _plays(scan), Edges(), len(scan.lines)
    not_before_ns = np.maximum(scan.values.get("not_before_s", np.zeros(count, np.int64)), 0)
    later = np.zeros(0, np.int64)
    if "round" in scan.values:
        later = _add_rounds(scan, plays, sessions, edges, faults)
    elif np.any(scan.values.get("think_time_s", 0) > 0):
        row = np.argmax(scan.values["think_time_s"] > 0)
        faults.add(scan.lines[row], "think_time_s: is between two rounds of a session, and there is no column round")
    if not any(column in scan.values for column in COLUMNS[:-1]):
        return None
    if "wait_for" in scan.values:
        _add_waits(scan, plays, rows_by_id, edges, faults)
    joined = [np.concatenate(arrays) if arrays else np.zeros(0, kind) for arrays, kind in (
        (edges.sources, np.int64), (edges.targets, np.int64), (edges.delays_ns, np.int64), (edges.from_dispatch, bool))]
    for row in rows_in_cycles(count, *joined[:2]):
        column = "wait_for" if "wait_for" in scan.values else "round"
        faults.add(scan.lines[row], f"{column}: the request waits for itself, by way of others")
    if sessions.gap == "absolute" and len(later):
        faults.raise_if_any()
        since_ns = scan.values["arrived_at"] - _begins_ns(scan, plays, joined[1])
        not_before_ns[later] = np.maximum(not_before_ns[later], since_ns[later])
    if not len(joined[0]) and len(np.unique(plays)) == count:
        return None
    return Waits(plays, *joined, not_before_ns if not_before_ns.any() else None)


def _plays(scan: Scan) -> np.ndarray:
    """Return the code of each row's play: named by `play`, else its session, else a play of its own."""
    count = len(scan.lines)
    codes = np.full(count, UNKNOWN)
    names = {}
    for column in ("play", "session"):
        if column in scan.values:
            texts = [names.setdefault(text, len(names)) for text in scan.texts[column]]
            given = (scan.values[column] != MISSING) & (codes == UNKNOWN)
            codes[given] = np.array(texts, np.int64)[scan.values[column][given]]
    alone = codes == UNKNOWN
    codes[alone] = len(names) + np.arange(int(alone.sum()))
    return np.unique(codes, return_inverse=True)[1].astype(np.int64)


def _begins_ns(scan: Scan, plays: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return for each row when its play begins."""
    is_root = np.ones(len(plays), bool)
    is_root[targets] = False
    begins_ns = np.full(int(plays.max()) + 1, MAX_TIME_NS)
    np.minimum.at(begins_ns, plays[is_root], scan.values["arrived_at"][is_root])
    return begins_ns[plays]


def turns_before(scan: Scan) -> np.ndarray:
    """Return the row of the round before each row's, int64 (n,); -1: none."""
    before = np.full(len(scan.lines), UNKNOWN)
    rows, goes_on = _by_round(scan)
    before[rows[goes_on]] = rows[:-1][goes_on[1:]]
    return before


def _by_round(scan: Scan) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of sessions by session and round, and a mask of rows with an earlier row in their session."""
    if "session" not in scan.values:
        return np.empty(0, np.int64), np.empty(0, bool)
    codes, rounds = scan.values["session"], scan.values["round"]
    rows = np.flatnonzero((codes != MISSING) & (rounds != MISSING))
    rows = rows[np.lexsort((rows, rounds[rows], codes[rows]))]
    return rows, np.append(False, codes[rows][1:] == codes[rows][:-1])[:len(rows)]


def _add_rounds(scan: Scan, plays: np.ndarray, sessions: TraceSessions, edges: Edges, faults: Faults) -> np.ndarray:
    """Let each round of a session wait for its predecessor; return the later rounds."""
    rounds = scan.values["round"]
    think_ns = scan.values.get("think_time_s", np.full(len(rounds), MISSING))
    has_session = scan.values["session"] != MISSING if "session" in scan.values else np.zeros(len(rounds), bool)
    for row in np.flatnonzero((rounds > 0) & ~has_session):
        faults.add_cell(scan.lines[row], "round", "none or 0 on a row without session", str(rounds[row]))
    for row in np.flatnonzero((rounds == MISSING) & has_session):
        faults.add_cell(scan.lines[row], "round", "an integer on a row with session", "")
    for row in np.flatnonzero((think_ns > 0) & ~has_session & (rounds != 0)):
        faults.add(scan.lines[row], "think_time_s: is the time between two rounds of a session; the row has no session")
    rows, goes_on = _by_round(scan)
    if not len(rows):
        return rows
    sources, later = rows[:-1][goes_on[1:]], rows[goes_on]
    _check_rounds(scan, rows, goes_on, faults)
    for row in later[plays[sources] != plays[later]]:
        faults.add(scan.lines[row], "play: expected that of the round before it")
    delays_ns = np.maximum(think_ns[later], 0)
    if sessions.gap == "recorded":
        arrived_ns = scan.values["arrived_at"]
        delays_ns = arrived_ns[later] - arrived_ns[sources]
        for row in later[delays_ns < 0]:
            faults.add(scan.lines[row], 'arrived_at: expected at least that of the round before it, as '
                                        '[workload.sessions] gap = "recorded" takes the time between them')
    edges.add(sources, later, delays_ns, np.zeros(len(later), bool))
    return later


def _check_rounds(scan: Scan, rows: np.ndarray, goes_on: np.ndarray, faults: Faults) -> None:
    """Collect ties and holes in rounds; `rows` are sorted by session and round."""
    rounds = scan.values["round"][rows]
    for place in np.flatnonzero(~goes_on & (rounds > 1)):
        faults.add_cell(scan.lines[rows[place]], "round", "0 or 1 as the first of its session", str(rounds[place]))
    steps = np.append(1, np.diff(rounds))
    for place in np.flatnonzero(goes_on & (steps != 1)):
        line, before = scan.lines[rows[place]], scan.lines[rows[place - 1]]
        if steps[place] == 0:
            faults.add_cell(line, "round", f"a round that line {before} of the session does not have",
                            str(rounds[place]))
        else:
            faults.add_cell(line, "round", f"{rounds[place - 1] + 1}, after that of line {before}", str(rounds[place]))


def _add_waits(scan: Scan, plays: np.ndarray, rows_by_id: Callable, edges: Edges, faults: Faults) -> None:
    codes, texts = scan.values["wait_for"], scan.texts["wait_for"]
    waiting = np.flatnonzero(codes != MISSING)
    if not len(waiting):
        return
    row_of, parsed, found = rows_by_id(), {}, []
    for row, code in zip(waiting.tolist(), codes[waiting].tolist(), strict=True):
        if code not in parsed:
            parsed[code] = [_parsed(part.strip(), row_of) for part in texts[code].split("|")]
        for source, delay_ns, from_dispatch, fault in parsed[code]:
            if fault is None and source == row:
                fault = "wait_for: expected another request, found its own id"
            elif fault is None and plays[source] != plays[row]:
                fault = f"wait_for: expected a request of its play, found that of line {scan.lines[source]}"
            if fault is not None:
                faults.add(scan.lines[row], fault)
            else:
                found.append((source, row, delay_ns, from_dispatch))
    if found:
        edges.add(*np.array(found, dtype=np.int64).T)


def _parsed(text: str, row_of: dict[str, int]) -> tuple[int, int, bool, str | None]:
    """Return source, delay, whether it counts from the source's arrival, and a fault of the text or None."""
    match = WAIT.fullmatch(text)
    if match is None:
        return 0, 0, False, f"wait_for: expected ID:end+SECONDS or ID:start+SECONDS, joined by |, found {quoted(text)}"
    source = row_of.get(match["id"])
    if source is None:
        return 0, 0, False, f"wait_for: expected the id of a request, found {quoted(match['id'])}"
    delay_ns = int((Decimal(match["delay"] or 0) * 10**9).to_integral_value(ROUND_HALF_UP))
    if delay_ns > MAX_TIME_NS:
        return 0, 0, False, f"wait_for: expected at most {MAX_TIME_NS / 1e9:g} s, found {quoted(match['delay'])}"
    return source, delay_ns, match["when"] == "start", None
