"""From measurements to draws: shapes are drawn, replayed, and those kept that explain the metrics best."""
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from simulator.errors import InputErrors
from simulator.study.reconstruct.access_log import Requests
from simulator.study.reconstruct.demand import Demand, drawn_demand, drawn_outages
from simulator.study.reconstruct.explained import Row, Seen, mean_of, misfit, replayed, rows_of, seen_of
from simulator.study.reconstruct.logged import Hole, holes_of, logged_demand
from simulator.study.reconstruct.replay import Draw, Shape, Site, laid_out, run_draw
from simulator.study.reconstruct.sharing import LEAST_SHARE, Sharing
from simulator.study.reconstruct.skew import Skew, skew_of
from simulator.study.reconstruct.windows import Record, record_of
from simulator.study.server_metrics.instances import Instance

CANDIDATES = 3                  # replays for each draw that is kept
BURSTS = (0.6, 3.0)             # coefficient of variation of gaps between arrivals
MOST_GROUPS = 64
FEWEST = 0.4                    # share of requests with a shared beginning, at least
CLOSE = 0.01                    # of a hit rate
STREAM = 0x7265_636f            # of this purpose, beside the experiment's seed


class Question(NamedTuple):
    """Measurements, and the experiment that served them.

    log : requests of an access log or of spans; None: metrics alone. draws : reconstructions that are wanted.
    restarts : whether restarts are replayed.
    """

    site: Site
    instances: list[Instance]
    log: Requests | None
    draws: int
    seed: int
    restarts: bool = True


class Facts(NamedTuple):
    """Everything that measurements give without a draw."""

    records: list[Record]
    seen: Seen
    skew: Skew | None
    holes: list[Hole]
    hit_share: float

    @property
    def grid(self) -> tuple[float, float]:
        """The first scrape, and the distance of scrapes."""
        return min(each.windows[0].begin_s for each in self.records), self.records[0].step_s

    @property
    def edge(self) -> float:
        """The distance of scrapes as a share of the time between the first and the last."""
        first_s, step_s = self.grid
        return step_s / (max(each.windows[-1].end_s for each in self.records) - first_s)


class Candidate(NamedTuple):
    """A draw with its replay."""

    draw: Draw
    rows: list[Row]
    misfit: float
    hit_share: float


class Answer(NamedTuple):
    """Reconstructions, the best first, and facts of the measurements."""

    facts: Facts
    kept: list[Candidate]
    replays: int


def answer_of(question: Question, show: Callable[[int, int], None] = lambda done, total: None) -> Answer:
    """Return the reconstructions that explain the metrics best.

    show : called with the number of replays done, and of all.

    Raises
    ------
    InputErrors
        Metrics do not count requests, and there is no log; no request was seen.
    """
    facts = facts_of(question)
    has_restart = any(window.has_restart for record in facts.records for window in record.windows)
    has_shape = question.log is None or facts.hit_share >= LEAST_SHARE or (has_restart and question.restarts)
    total = question.draws * (CANDIDATES if has_shape else 1)
    candidates = []
    with TemporaryDirectory() as folder:
        for i in range(total):
            generator = np.random.default_rng([question.seed, STREAM, i])
            candidates.append(_candidate(generator, question, facts, Path(folder)))
            show(i + 1, total)
    return Answer(facts, sorted(candidates, key=lambda each: each.misfit)[:question.draws], total)


def facts_of(question: Question) -> Facts:
    """Return everything that the measurements give without a draw."""
    records, faults = [], []
    for instance in question.instances:
        try:
            records.append(record_of(instance, question.log is not None))
        except InputErrors as errors:
            faults += errors.faults
    if faults:
        raise InputErrors(faults)
    if question.log is None and not any(window.ended for record in records for window in record.windows):
        raise InputErrors(["--metrics: no request ended between the first scrape and the last one"])
    seen = seen_of(question.instances)
    skew = None if question.log is None else skew_of(records, question.log)
    holes = [] if question.log is None else holes_of(question.log, records, skew)
    return Facts(records, seen, skew, holes, _hit_share(question.instances, seen))


def _hit_share(instances: Sequence[Instance], seen: Seen) -> float:
    hits = ("prefix_cache_hits_total", "prefix_cache_queries_total")
    if all(name in seen.grown for name in hits):
        return mean_of(seen, *hits)
    given = [np.nanmean(each.values["prefix_cache_hit_rate"]) for each in instances
            if "prefix_cache_hit_rate" in each.values]
    return float(np.mean(given)) if given else 0.0


def _candidate(generator: np.random.Generator, question: Question, facts: Facts, folder: Path) -> Candidate:
    shape = drawn_shape(generator, facts.hit_share, question.log is None)
    outages = drawn_outages(generator, facts.records) if question.restarts else []
    demand = _demand(generator, question, facts, shape, outages)
    found = None
    for _ in range(2):
        draw = laid_out(generator, shape, demand, outages, facts.grid, question.site)
        replay = replayed(run_draw(question.site, draw, folder, facts.grid[1]), facts.seen, draw.zero_s, facts.grid[1])
        hits = mean_of(replay, "prefix_cache_hits_total", "prefix_cache_queries_total")
        made = Candidate(draw, rows_of(facts.seen, replay), misfit(facts.seen, replay), hits)
        found = made if found is None or made.misfit < found.misfit else found
        if not shape.sharing.hit_share or abs(hits - facts.hit_share) < CLOSE:
            break
        target = min(max(shape.sharing.hit_share + facts.hit_share - hits, LEAST_SHARE), 0.99)
        shape = shape._replace(sharing=shape.sharing._replace(hit_share=target))
    return found


def drawn_shape(generator: np.random.Generator, hit_share: float, is_bursty: bool) -> Shape:
    """Return a shape; burstiness and groups are uniform in their logarithm."""
    burstiness = float(np.exp(generator.uniform(*np.log(BURSTS)))) if is_bursty else 1.0
    groups = round(float(np.exp(generator.uniform(0.0, np.log(MOST_GROUPS)))))
    members = float(generator.uniform(min(max(FEWEST, hit_share), 1.0), 1.0))
    return Shape(burstiness, Sharing(groups, members, hit_share if hit_share >= LEAST_SHARE else 0.0))


def _demand(generator: np.random.Generator, question: Question, facts: Facts, shape: Shape, outages) -> Demand:
    counts = all(window.arrived >= 0 for record in facts.records for window in record.windows)
    other = drawn_demand(generator, facts.records, shape.burstiness, outages) if counts else None
    if question.log is None:
        return other
    return logged_demand(generator, question.log, facts.skew, other, facts.holes)
