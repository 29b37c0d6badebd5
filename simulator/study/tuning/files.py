"""What a tuning study leaves: ranking.csv, pareto.csv, winners/0001.toml and tune.json."""
import csv
import io
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from simulator.config.load import resolved_toml
from simulator.study.capacity.answer import cost_per_hour
from simulator.study.sweep.design import flattened
from simulator.study.sweep.names import FRONT, RANKING, TUNE, WINNERS
from simulator.study.sweep.trial import DONE
from simulator.study.sweep.writing import write
from simulator.study.telling.said import Said
from simulator.study.tuning.candidates import TRANSFER, Candidate
from simulator.study.tuning.findings import Findings
from simulator.study.tuning.ranking import nearest_miss, ranked
from simulator.study.tuning.table import Question
from simulator.study.tuning.tried import FEASIBLE, Tried

SCHEMA = 1
ELIMINATED = "eliminated"
SHOWN = ("ttft_ms.p50", "ttft_ms.p99", "tpot_ms.p50", "tpot_ms.p99", "e2el_ms.p50", "e2el_ms.p99",
         "kv_cache.mean_usage", "preemptions", "output_throughput", "request_throughput")
EXAMPLES = 3                    # of sentences why candidates were dropped


class Told(NamedTuple):
    """What a study has come to.

    ranking : feasible candidates, the best first. on_front : numbers of those that nobody beats in everything.
    summary : the content of tune.json.
    """

    ranking: list[Tried]
    on_front: set[int]
    summary: dict[str, Any]


def told_of(question: Question, outcome: Findings, said: Said) -> Told:
    """Return what a search has come to.

    said : what its runs say.
    """
    ranking, on_front = ranked(question, outcome.tried)
    statuses = Counter(each.status for each in outcome.tried)
    statuses[ELIMINATED] = len(outcome.eliminated)
    statuses.update(each.kind for each in outcome.dropped)
    reasons: dict[str, Counter] = {}
    for status, why in [(each.status, each.why) for each in outcome.tried if each.why] + [
            (each.kind, each.why) for each in outcome.dropped]:
        reasons.setdefault(status, Counter())[why] += 1
    failed = any(each.status not in (FEASIBLE, "infeasible", "refused") for each in outcome.tried)
    miss = None if ranking else nearest_miss(outcome.tried + outcome.eliminated)
    summary = {
        "schema": SCHEMA, "name": question.study.name, "search": outcome.search, "load": question.settings.load,
        "objectives": {each.key: "max" if each.is_larger_better else "min" for each in question.objectives},
        "candidates": len(outcome.tried) + len(outcome.dropped) + len(outcome.eliminated),
        "counts": {status: count for status, count in sorted(statuses.items()) if count},
        "reasons": {status: dict(counts.most_common(EXAMPLES)) for status, counts in sorted(reasons.items())},
        "complete": outcome.is_complete and not failed,
        "front": [each.ends[0].id for each in ranking if each.candidate.number in on_front],
        "best": _brief(question, ranking[0]) if ranking else None,
        "nearest_miss": None if miss is None else {
            "layout": miss.candidate.layout, "assignment": _assigned(miss.candidate.assignment), "why": miss.why,
            "margin": miss.margin}, **said.content()}
    return Told(ranking, on_front, summary)


def write_all(question: Question, outcome: Findings, told: Told, directory: Path) -> None:
    """Write the files of a study.

    Raises
    ------
    OutputError
        They cannot be written.
    """
    rows = [_row(question, each, place, each.candidate.number in told.on_front)
            for place, each in enumerate(told.ranking, 1)]
    others = [_row(question, each, None, False) for each in outcome.tried if each.status != FEASIBLE]
    others += [_row(question, each, None, False) | {"status": ELIMINATED, "reason": (
        f"not among the best third after {each.num_requests} requests" + (f"; {each.why}" if each.why else ""))}
        for each in outcome.eliminated]
    others += [_row(question, Tried(each.candidate, each.kind, each.why), None, False) for each in outcome.dropped]
    write(directory / RANKING, _csv(rows + sorted(others, key=lambda row: row["number"])))
    write(directory / FRONT, _csv([row for row in rows if row["front"]] or rows[:0], _columns(rows + others)))
    for old in (directory / WINNERS).glob("*.toml"):
        old.unlink()
    for place, each in enumerate(told.ranking[:question.settings.winners], 1):
        write(directory / WINNERS / f"{place:04}.toml", winner_toml(question, each, place))
    write(directory / TUNE, json.dumps(told.summary, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def winner_toml(question: Question, tried: Tried, place: int) -> str:
    """Return the experiment of a candidate's first run.

    `run` repeats it to the last digit: what was cut at the beginning stands in [workload.measure].
    """
    study, end = question.study, tried.ends[0]
    more = {} if tried.num_requests is None else {"workload.num_requests": tried.num_requests}
    if end.extra["warmup_requests"]:
        more["workload.measure.warmup_requests"] = end.extra["warmup_requests"]
    experiment = study.experiment_of(tried.assignment | more, end.seed)
    output = replace(study.base.output, directory=None)
    return resolved_toml(replace(experiment, name=f"{study.name}-{place:04}", output=output))


def table_of(question: Question, told: Told, most: int = 10) -> str:
    """Return the best candidates as a table, with a column for each axis."""
    has_pools = bool(question.study.base.pools)
    head = ["rank", *(each.key for each in question.objectives), "GPUs", "layout"]
    keys = list(dict.fromkeys(key for each in told.ranking for key in _assigned(each.candidate.assignment)
                              if key not in TRANSFER))
    lines = [[*head, *_short([key if has_pools else _role(key) for key in keys])]]
    for place, each in enumerate(told.ranking[:most], 1):
        own = _assigned(each.candidate.assignment)
        star = "*" if each.candidate.number in told.on_front and len(question.objectives) > 1 else ""
        lines.append([f"{place}{star}", *(_number(value) for value in each.values), str(each.candidate.gpus),
                      each.candidate.layout,
                      *(str(own[key] if key in own else _default(each.candidate, key)) for key in keys)])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
                     for line in lines)


def _default(candidate: Candidate, key: str) -> Any:
    """Return what the experiment of a candidate has for a key that its assignment leaves out; empty: it has none."""
    place = candidate.experiment
    for part in key.split("."):
        if part.isdecimal() and isinstance(place, tuple | list):
            place = place[int(part)] if int(part) < len(place) else None
        else:
            place = getattr(place, part, getattr(getattr(place, "parameters", None), part, None))
    return "" if place is None else _plain(place)


def _role(key: str) -> str:
    """Return a key with the roles of generated pools in place of their numbers."""
    return key.replace("pools.0.", "prefill.").replace("pools.1.", "decode.")


def _short(keys: list[str]) -> list[str]:
    """Return keys by their last parts, where these are unlike."""
    last = Counter(key.rpartition(".")[2] for key in keys)
    return [short if last[short := key.rpartition(".")[2]] == 1 else key for key in keys]


def _number(value) -> str:
    return f"{value.mean:.6g}" + (f" +- {value.half_width:.2g}" if value.half_width == value.half_width else "")


def _assigned(assignment: dict[str, Any]) -> dict[str, Any]:
    """Return what an assignment says, by the names of columns: replicas of generated pools by their pool."""
    flat = flattened(assignment)
    pools = flat.pop("pools", None)
    if isinstance(pools, list):
        flat = {f"pools.{number}.replicas": pool["replicas"] for number, pool in enumerate(pools)} | flat
    return {key: _plain(value) for key, value in flat.items()}


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def _brief(question: Question, tried: Tried) -> dict[str, Any]:
    return {"id": tried.ends[0].id, "layout": tried.candidate.layout, "gpus": tried.candidate.gpus,
            "assignment": _assigned(tried.assignment), "seed": tried.ends[0].seed, "rate": tried.rate,
            "values": {each.key: {"mean": value.mean, "half_width": None if math.isnan(value.half_width)
                                  else value.half_width}
                       for each, value in zip(question.objectives, tried.values, strict=True)}}


def _row(question: Question, tried: Tried, rank: int | None, is_on_front: bool) -> dict[str, Any]:
    """Return a line of ranking.csv."""
    candidate: Candidate = tried.candidate
    row: dict[str, Any] = {"rank": rank, "number": candidate.number, "id": tried.ends[0].id if tried.ends else None,
                           "status": tried.status, "front": is_on_front, "layout": candidate.layout}
    row |= _assigned(candidate.assignment)
    values = tried.values or [None] * len(question.objectives)
    for objective, value in zip(question.objectives, values, strict=True):
        row[objective.key] = value and value.mean
        row[f"{objective.key}.ci"] = value and value.half_width
    done = [end for end in tried.ends if end.status == DONE]
    row |= {"rate": tried.rate, "gpus": candidate.gpus or None,
            "cost_per_hour": candidate.experiment and cost_per_hour(candidate.experiment),
            "num_requests": tried.num_requests, "seeds": len(done) or None, "margin": tried.margin}
    for key in SHOWN:
        row.setdefault(key, _mean([end.summary.get(key) for end in done]))
    thin = sorted({metric for end in done for metric in end.extra["thin"]})
    row |= {"thin": " ".join(thin), "notes": "; ".join(tried.notes), "reason": tried.why}
    return row


def _mean(values: list[float | None]) -> float | None:
    return sum(values) / len(values) if values and None not in values else None


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    """Return the columns of rows; those that only some have stand where they have them."""
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
