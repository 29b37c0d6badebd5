"""Files of a tuning study: ranking.csv, pareto.csv, winners/0001.toml and tune.json."""
import csv
import io
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from simulator.config.load import changed, commented_toml
from simulator.study.capacity.point_search import cost_per_hour
from simulator.study.sweep.design import flattened
from simulator.study.sweep.names import FRONT, RANKING, TUNE, WINNERS
from simulator.study.sweep.trial import DONE
from simulator.study.sweep.writing import write
from simulator.study.telling.said import Said
from simulator.study.tuning.candidates import REPLICAS, Candidate
from simulator.study.tuning.findings import Findings
from simulator.study.tuning.ranking import nearest_miss, ranked
from simulator.study.tuning.result import ELIMINATED, FEASIBLE, CandidateResult
from simulator.study.tuning.tune_table import Question

SCHEMA = 1
SHOWN = ("ttft_ms.p50", "ttft_ms.p99", "tpot_ms.p50", "tpot_ms.p99", "e2el_ms.p50", "e2el_ms.p99",
         "kv_cache.mean_usage", "preemptions", "output_throughput", "request_throughput")
EXAMPLES = 3                    # of reasons why candidates were dropped


class StudyResults(NamedTuple):
    """The results of a study.

    ranking : feasible candidates, the best first. on_front : numbers of candidates on the Pareto front.
    summary : the content of tune.json. nearest_miss : the candidate that misses the bounds by least; None: some
    candidate keeps them, or no margin is known.
    """

    ranking: list[CandidateResult]
    on_front: set[int]
    summary: dict[str, Any]
    nearest_miss: CandidateResult | None = None


def results_of(question: Question, outcome: Findings, said: Said, held_out: dict[str, Any] | None) -> StudyResults:
    """Return the results of a search.

    said : the remarks of its runs. held_out : the best candidate beside the experiment, from `held_out`; None: no such
    comparison.
    """
    ranking, on_front = ranked(question, outcome.results)
    statuses = Counter(each.status for each in outcome.results)
    statuses[ELIMINATED] = len(outcome.eliminated)
    statuses.update(each.kind for each in outcome.dropped)
    reasons: dict[str, Counter] = {}
    for status, why in [(each.status, each.why) for each in outcome.results if each.why] + [
            (each.kind, each.why) for each in outcome.dropped]:
        reasons.setdefault(status, Counter())[why] += 1
    failed = any(each.status not in (FEASIBLE, "infeasible", "refused") for each in outcome.results)
    miss = None if ranking else nearest_miss(outcome.results + outcome.eliminated)
    summary = {
        "schema": SCHEMA, "name": question.study.name, "search": outcome.search, "load": question.settings.load,
        "objectives": {each.key: "max" if each.is_larger_better else "min" for each in question.objectives},
        "candidates": len(outcome.results) + len(outcome.dropped) + len(outcome.eliminated),
        "counts": {status: count for status, count in sorted(statuses.items()) if count},
        "reasons": {status: dict(counts.most_common(EXAMPLES)) for status, counts in sorted(reasons.items())},
        "complete": outcome.is_complete and not failed,
        "front": [each.ends[0].id for each in ranking if each.candidate.number in on_front],
        "best": _brief(question, ranking[0]) if ranking else None,
        "nearest_miss": None if miss is None else {
            "layout": miss.candidate.layout, "assignment": assigned(miss.candidate.assignment), "why": miss.why,
            "margin": miss.margin}, **question.study.risk_content, **said.content()}
    if thin := thin_text(question, ranking):
        summary["thin"] = thin
    summary |= {} if held_out is None else {"held_out": held_out}
    return StudyResults(ranking, on_front, summary, miss)


def write_all(question: Question, outcome: Findings, results: StudyResults, directory: Path) -> None:
    """Write the files of a study.

    Raises
    ------
    OutputError
        A file cannot be written.
    """
    rows = [_row(question, each, place, each.candidate.number in results.on_front)
            for place, each in enumerate(results.ranking, 1)]
    others = [_row(question, each, None, False) for each in outcome.results if each.status != FEASIBLE]
    others += [_row(question, each, None, False) | {"status": ELIMINATED, "reason": why_eliminated(each)}
               for each in outcome.eliminated]
    others += [_row(question, CandidateResult(each.candidate, each.kind, each.why), None, False)
               for each in outcome.dropped]
    write(directory / RANKING, _csv(rows + sorted(others, key=lambda row: row["number"])))
    write(directory / FRONT, _csv([row for row in rows if row["front"]] or rows[:0], _columns(rows + others)))
    for old in (directory / WINNERS).glob("*.toml"):
        old.unlink()
    for place, each in enumerate(results.ranking[:question.settings.winners], 1):
        write(directory / WINNERS / f"{place:04}.toml", winner_toml(question, each, place))
    write(directory / TUNE, json.dumps(results.summary, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def why_eliminated(result: CandidateResult) -> str:
    """Return why a candidate did not go on, in a race or in halving."""
    if result.status == ELIMINATED:
        return result.why
    return f"not among the best third after {result.num_requests} requests" + (f"; {result.why}" if result.why else "")


def winner_toml(question: Question, result: CandidateResult, place: int) -> str:
    """Return the experiment of a candidate's first run.

    `run` repeats it to the last digit, without a confidence over the model: the warm-up that was cut is written to
    [workload.measure].
    """
    study, end = question.study, result.ends[0]
    more = {} if result.num_requests is None else {"workload.num_requests": result.num_requests}
    if end.extra["warmup_requests"]:
        more["workload.measure.warmup_requests"] = end.extra["warmup_requests"]
    experiment = study._replace(risk=None).experiment_of(result.assignment | more, end.seed)
    output = replace(study.base.output, directory=None)
    return commented_toml(changed(experiment, name=f"{study.name}-{place:04}", output=output))


def axis_keys(question: Question) -> list[str]:
    """Return the keys that axes assign, over all their values."""
    points = question.settings.points if isinstance(question.settings.points, tuple) else ()
    found = [key for axis in question.study.axes for value in axis.values or (axis.at(0.0),)
             for key in flattened({axis.key: value})]
    return list(dict.fromkeys(found + [key for point in points for key in flattened(point)]))


def default_of(candidate: Candidate, key: str) -> Any:
    """Return a candidate's value for a key that its assignment leaves out.

    Empty: it has no such key; with pools the replica counts are the pools'.
    """
    place = None if key == REPLICAS and candidate.experiment and candidate.experiment.pools else candidate.experiment
    for part in key.split("."):
        if part.isdecimal() and isinstance(place, tuple | list):
            place = place[int(part)] if int(part) < len(place) else None
        else:
            place = getattr(place, part, getattr(getattr(place, "parameters", None), part, None))
    return "" if place is None else _plain(place)


def assigned(assignment: dict[str, Any]) -> dict[str, Any]:
    """Return an assignment as plain values, replicas of generated pools by their pool."""
    flat = flattened(assignment)
    pools = flat.pop("pools", None)
    if isinstance(pools, list):
        flat = {f"pools.{number}.replicas": pool["replicas"] for number, pool in enumerate(pools)} | flat
    return {key: _plain(value) for key, value in flat.items()}


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def _brief(question: Question, result: CandidateResult) -> dict[str, Any]:
    return {"id": result.ends[0].id, "layout": result.candidate.layout, "gpus": result.candidate.gpus,
            "assignment": assigned(result.assignment), "seed": result.ends[0].seed, "rate": result.rate,
            "values": {each.key: {"mean": value.mean, "half_width": None if math.isnan(value.half_width)
                                  else value.half_width}
                       for each, value in zip(question.objectives, result.values, strict=True)}}


def _row(question: Question, result: CandidateResult, rank: int | None, is_on_front: bool) -> dict[str, Any]:
    """Return a line of ranking.csv."""
    candidate: Candidate = result.candidate
    row: dict[str, Any] = {"rank": rank, "number": candidate.number, "id": result.ends[0].id if result.ends else None,
                           "status": result.status, "front": is_on_front, "layout": candidate.layout}
    own = assigned(candidate.assignment)
    row |= {key: default_of(candidate, key) for key in axis_keys(question) if key not in own} | own
    values = result.values or [None] * len(question.objectives)
    for objective, value in zip(question.objectives, values, strict=True):
        row[objective.key] = value and value.mean
        row[f"{objective.key}.ci"] = value and value.half_width
    done = [end for end in result.ends if end.status == DONE]
    row |= {"rate": result.rate, "gpus": candidate.gpus or None,
            "cost_per_hour": candidate.experiment and cost_per_hour(candidate.experiment),
            "num_requests": result.num_requests, "seeds": len(done) or None, "margin": result.margin}
    for key in SHOWN:
        row.setdefault(key, _mean([end.summary.get(key) for end in done]))
    row |= {"thin": " ".join(_thin(result)), "notes": "; ".join(result.notes), "reason": result.why}
    return row


def _thin(result: CandidateResult) -> list[str]:
    """Return metrics with too few requests for their percentiles."""
    return sorted({metric for end in result.ends if end.status == DONE for metric in end.extra["thin"]})


def thin_text(question: Question, ranking: list[CandidateResult]) -> str:
    """Return a warning of ranks that too few requests decided; "": there is none."""
    decide = {*question.bounds.metrics, *(each.key for each in question.objectives)}
    found = [own for each in ranking if (own := decide.intersection(_thin(each)))]
    return "" if not found else (f"percentiles of {len(found):,} of {len(ranking):,} ranked candidates are of too few "
                                 f"requests (thin): {', '.join(sorted(set.union(*found)))}")


def _mean(values: list[float | None]) -> float | None:
    return sum(values) / len(values) if values and None not in values else None


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    """Return the columns of rows; a column that only some rows have keeps its place in their order."""
    columns: list[str] = []
    for row in rows:
        at = 0
        for key in row:
            if key in columns:
                at = columns.index(key) + 1
            else:
                columns.insert(at, key)
                at += 1
    return columns


def _csv(rows: list[dict[str, Any]], columns: list[str] | None = None) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    columns = columns if columns is not None else _columns(rows)
    writer.writerow(columns)
    writer.writerows([[_cell(row.get(key)) for key in columns] for row in rows])
    return stream.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return repr(value) if isinstance(value, float) else value
