"""All data sets under all backends."""
from collections.abc import Callable, Iterable, Mapping
from statistics import median
from typing import Any, NamedTuple

import msgspec

from simulator.assembly.latency import Readings
from simulator.errors import InputErrors, collect_faults
from simulator.results.provenance import PACKAGE, git_revision
from simulator.study.accuracy.ablation import Ablated
from simulator.study.accuracy.chosen import Chosen
from simulator.study.accuracy.data_set import Opened
from simulator.study.accuracy.predict import OK, Ways, predict
from simulator.study.accuracy.ranking import Ranking, published_rankings, rankings_of
from simulator.study.accuracy.rows import OTHER, Point, Row, absent_row, published_rows, rows_of

SCHEMA = 1


class Overall(msgspec.Struct, frozen=True, kw_only=True):
    """Median over data sets of one level, purpose, kind of load and kind of sample.

    mape_pct, bias_pct : the median of its rows counts for a data set.
    """

    purpose: str
    in_sample: bool
    level: str
    backend: str
    published: bool
    metric: str
    data_sets: int
    mape_pct: float
    bias_pct: float
    load: str = OTHER


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """The content of score.json.

    revision : of the checkout that made it, `-dirty` with changes; None: not known.
    data_sets : provenance of each, keys of `dataset.toml` except those of its reader.
    ablations : scores without one price; empty unless requested.
    chosen : scores of data sets left out of the choice of prices; empty unless requested.
    rankings : of the runs of each deployment by each predictor.
    """

    schema: int
    revision: str | None
    backends: tuple[str, ...]
    overrides: tuple[str, ...]
    data_sets: tuple[dict[str, Any], ...]
    rows: tuple[Row, ...]
    overall: tuple[Overall, ...]
    ablations: tuple[Ablated, ...] = ()
    chosen: tuple[Chosen, ...] = ()
    rankings: tuple[Ranking, ...] = ()


class Scored(NamedTuple):
    """A score, and its pairs."""

    score: Score
    points: list[Point]


def score(data_sets: list[Opened], backends: Iterable[str], overrides: Iterable[str] = (),
          tell: Callable[[str], None] = lambda line: None) -> Scored:
    """Simulate all runs of all data sets under all backends.

    tell : callback, called with a line when a data set is done under a backend.

    Raises
    ------
    InputErrors
        All faults in the files of all data sets; nothing was simulated then.
    """
    backends, overrides = tuple(backends), tuple(overrides)
    found = collect_faults(*[(lambda each=each: [] if each.absent else each.cases()) for each in data_sets])
    rows, points, rankings, readings = [], [], [], Readings()
    for data_set, cases in zip(data_sets, found):
        for backend in backends:
            made = _of_backend(data_set, cases, Ways(backend, readings, overrides))
            rows, points, rankings = rows + made[0], points + made[1], rankings + made[2]
            tell(f"{data_set.says.name}, {backend}: {sum(row.status == OK for row in made[0])} rows")
        made = published_rows(data_set, cases)
        rows, points = rows + made[0], points + made[1]
        rankings += published_rankings(data_set, cases)
    return Scored(Score(
        schema=SCHEMA, revision=git_revision(PACKAGE.parent), backends=backends,
        overrides=overrides, data_sets=tuple(_provenance(each) for each in data_sets), rows=tuple(rows),
        overall=tuple(overall_of(rows)), rankings=tuple(rankings)), points)


def overall_of(rows: Iterable[Row]) -> list[Overall]:
    """Return the medians over data sets."""
    groups: dict[tuple, dict[str, list[Row]]] = {}
    for row in rows:
        if row.status == OK and row.mape_pct is not None:
            key = row.purpose, row.in_sample, row.level, row.backend, row.published, row.metric, row.load
            groups.setdefault(key, {}).setdefault(row.data_set, []).append(row)
    return [Overall(
        purpose=key[0], in_sample=key[1], level=key[2], backend=key[3], published=key[4], metric=key[5], load=key[6],
        data_sets=len(of_sets), mape_pct=_middle(of_sets, "mape_pct"), bias_pct=_middle(of_sets, "bias_pct"))
        for key, of_sets in groups.items()]


def read_score(file: str) -> Score:
    """Read score.json.

    Raises
    ------
    InputErrors
        It cannot be read, or is no score of this version.
    """
    try:
        with open(file, "rb") as stream:
            found = msgspec.json.decode(stream.read(), type=Score)
    except OSError as error:
        raise InputErrors([f"{file}: {error.strerror or error}"]) from None
    except msgspec.DecodeError as error:
        raise InputErrors([f"{file}: no score.json: {error}"]) from None
    if found.schema != SCHEMA:
        raise InputErrors([f"{file}: schema: expected {SCHEMA}, found {found.schema}"])
    return found


def _of_backend(data_set: Opened, cases: list, ways: Ways) -> tuple[list[Row], list[Point], list[Ranking]]:
    if data_set.absent:
        return [absent_row(data_set, ways.backend)], [], []
    predictions = [predict(data_set, case, ways) for case in cases]
    return (*rows_of(data_set, ways.backend, cases, predictions),
            rankings_of(data_set, ways.backend, cases, predictions))


def _middle(of_sets: Mapping[str, list[Row]], name: str) -> float:
    return median(median(getattr(row, name) for row in rows) for rows in of_sets.values())


def _provenance(data_set: Opened) -> dict[str, Any]:
    says = data_set.says
    given = {name: getattr(says, name) for name in (
        "name", "measured", "machine", "engine", "version", "date", "source", "licence", "level", "purpose", "fits",
        "form")}
    return given | {"files": [{"path": file.path, "sha256": file.sha256} for file in says.files],
                    "peers": [{"name": peer.name, "version": peer.version} for peer in says.peers],
                    "causes": [msgspec.to_builtins(each) for each in says.causes]}
