"""A reconstruction as text of 80 columns, and as JSON."""
from datetime import UTC, datetime
from typing import Any

from simulator.errors import number_of
from simulator.study.reconstruct.estimate import Answer, Question
from simulator.study.reconstruct.sharing import LEAST_SHARE
from simulator.study.telling.said import wrapped
from simulator.study.telling.screen import table_of

SHOWN = 5                       # restarts, gaps and holes that are listed


def text_of(name: str, question: Question, answer: Answer) -> str:
    """Return measured and replayed series, events and assumptions."""
    records, best = answer.facts.records, answer.kept[0]
    scrapes = max(len(record.windows) for record in records) + 1
    lines = [f"{name}: {number_of(len(records), 'instance')}, {scrapes:,} scrapes {records[0].step_s:g} s apart, "
             f"{len(best.draw.demand.arrival_s):,} requests in the reconstruction"]
    rows = [[row.name, number_text(row.measured), number_text(row.simulated), _error(row.measured, row.simulated),
             "-" if row.explained is None else f"{row.explained:.2f}"] for row in best.rows]
    lines += ["", table_of([["series", "measured", "simulated", "error", "explained"], *rows], left=(0,)), ""]
    for sentence in [*events_of(answer), *assumptions_of(question, answer)]:
        lines += wrapped(sentence)
    return "\n".join(lines)


def events_of(answer: Answer) -> list[str]:
    """Return restarts, gaps, the clock and the holes of the log, a sentence each."""
    found, facts = [], answer.facts
    for record in facts.records:
        restarts = [window for window in record.windows if window.has_restart]
        found += [f"restart: {record.name}: between {_at(window.begin_s)} and {_at(window.end_s)}, with "
                  f"{number_of(window.lost, 'request')} in it at the scrape before." for window in restarts[:SHOWN]]
        found += [f"gap: {record.name}: no scrape between {_at(window.begin_s)} and {_at(window.end_s)}."
                  for window in record.gaps[:SHOWN]]
        rest = max(len(restarts) - SHOWN, 0) + max(len(record.gaps) - SHOWN, 0)
        found += [f"{record.name}: {rest} more restarts and gaps."] * (rest > 0)
    if facts.skew is not None:
        found.append(f"clocks: the log is ahead of the metrics by {facts.skew.best_s:.2f} s (from "
                     f"{facts.skew.low_s:.2f} to {facts.skew.high_s:.2f} s fit as well).")
    found += [f"hole: the log lacks {number_of(hole.lacking, 'request')} between {_at(hole.begin_s)} and "
              f"{_at(hole.end_s)}; the metrics fill it." for hole in facts.holes[:SHOWN]]
    return found


def assumptions_of(question: Question, answer: Answer) -> list[str]:
    """Return the assumptions of a reconstruction, a sentence each."""
    said = list(question.log.notes) if question.log is not None else []
    instances, replicas = len(question.instances), question.site.replicas
    if instances != replicas:
        said.append(f"assumed: the metrics of {number_of(instances, 'instance')} are those of "
                    f"{number_of(replicas, 'replica')} of the experiment together.")
    if cut := answer.kept[0].draw.cut:
        said.append(f"cut: {number_of(cut, 'request')} to the {question.site.most:,} tokens of max_model_len.")
    if question.log is None:
        said.append("assumed: prompt and output lengths of requests that end in one window are independent; within "
                    "buckets the logarithm of a length is uniform; arrivals within a window have gaps of a drawn "
                    "variation.")
        if any(not window.outputs.counts.size for record in answer.facts.records for window in record.windows):
            said.append("assumed: lengths without a histogram (request_prompt_tokens_bucket, "
                        "request_generation_tokens_bucket) are exponential.")
    if answer.facts.hit_share >= LEAST_SHARE:
        said.append("assumed: prompts share their beginnings in a drawn number of groups; metrics give the hit rate "
                    "alone.")
    if any(window.has_restart for record in answer.facts.records for window in record.windows):
        said.append("assumed: requests in an instance when it restarts are sent again." if question.restarts else
                    "cut: restarts are not replayed.")
    said.append("intervals hold the unknown demand, not the error of the simulator's times.")
    return said


def content_of(name: str, question: Question, answer: Answer,
               what_if: dict[str, Any] | None) -> dict[str, Any]:
    """Return everything as JSON types.

    what_if : as `json_of` of the intervals; None: nothing was asked.
    """
    facts = answer.facts
    return {
        "schema": 1, "name": name, "seed": question.seed, "instances": [record.name for record in facts.records],
        "scrape_interval_s": facts.grid[1], "hit_rate": facts.hit_share,
        "restarts": [{"instance": record.name, "after_s": window.begin_s, "before_s": window.end_s,
                      "in_flight": window.lost} for record in facts.records for window in record.windows
                     if window.has_restart],
        "gaps": [{"instance": record.name, "after_s": window.begin_s, "before_s": window.end_s}
                 for record in facts.records for window in record.gaps],
        "clock_skew_s": None if facts.skew is None else
        {"value": facts.skew.best_s, "low": facts.skew.low_s, "high": facts.skew.high_s},
        "holes_of_log": [hole._asdict() for hole in facts.holes],
        "series": [row._asdict() for row in answer.kept[0].rows],
        "draws": [{"misfit": each.misfit, "burstiness": each.draw.shape.burstiness,
                   "prefix_groups": each.draw.shape.sharing.groups, "hit_rate": each.hit_share,
                   "requests": len(each.draw.demand.arrival_s), "zero_s": each.draw.zero_s} for each in answer.kept],
        "replays": answer.replays, "assumptions": assumptions_of(question, answer),
        "what_if": what_if}


def _at(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


def number_text(value: float) -> str:
    """Return a number in four digits."""
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def _error(measured: float, simulated: float) -> str:
    return f"{simulated / measured - 1:+.1%}" if measured else "-"
