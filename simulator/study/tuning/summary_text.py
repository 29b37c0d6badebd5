"""The result of a tuning study on a screen: the best candidates, and why others are not among them."""
from collections import Counter
from collections.abc import Iterable
from typing import Any

from simulator.errors import number_of
from simulator.study.statistics.intervals import Estimate
from simulator.study.telling.screen import figure, lines_of, numbered
from simulator.study.telling.screen import table_of as fitted
from simulator.study.tuning.candidates import TRANSFER, Candidate
from simulator.study.tuning.files import StudyResults, assigned, axis_keys, default_of
from simulator.study.tuning.findings import Findings
from simulator.study.tuning.held_out import held_out_lines
from simulator.study.tuning.result import ELIMINATED, FEASIBLE, CandidateResult
from simulator.study.tuning.tune_table import Question

MOST_SHOWN = 10                 # ranks
MOST_REASONS = {True: 5, False: 10}     # why candidates are out, by whether any candidate is in


def screen_of(question: Question, outcome: Findings, results: StudyResults) -> str:
    """Return the best candidates, counts by status, and reasons of the others."""
    counts = ", ".join(f"{count:,} {status.replace('_', ' ')}" for status, count in results.summary["counts"].items())
    lines = [f"{number_of(results.summary['candidates'], 'candidate')}: {counts}"
             + ("" if results.summary["complete"] else f"; not complete ({results.summary['search']})")]
    if results.ranking:
        lines += ["", table_of(question, results)]
        lines += filter(None, [_ties(results)])
        lines += ["* nobody beats it in everything"] * (len(question.objectives) > 1)
        beside = held_out_lines(results.summary.get("held_out"))
        lines += [""] * bool(beside) + beside
    reasons = rejected(question, outcome, results)
    lines += [""] * bool(results.ranking and reasons) + reasons
    return "\n".join(map(lines_of, lines if results.ranking else [*lines, nothing(question, results)]))


def _ties(results: StudyResults) -> str:
    """Return a sentence on candidates with the same values as the best; "": none has."""
    values = [tuple(value.mean for value in each.values) for each in results.ranking]
    alike = values.count(values[0])
    return "" if alike == 1 else f"{alike:,} candidates have the values of the first: the choice among them is free"


def answer_of(question: Question, results: StudyResults) -> str:
    """Return the answer alone: the best candidate, or that nothing qualifies."""
    if not results.ranking:
        return lines_of(nothing(question, results))
    best = results.ranking[0]
    values = ", ".join(f"{each.key} {_number(value)}" for each, value in
                       zip(question.objectives, best.values, strict=True))
    gpus = f"{best.candidate.gpus:,} GPU{'s' * (best.candidate.gpus != 1)}"
    return lines_of(f"{words_of(question, best.candidate)}, {gpus}: {values}")


def nothing(question: Question, results: StudyResults) -> str:
    """Return that nothing qualifies, with the nearest miss."""
    miss = results.nearest_miss
    if miss is None:
        return "nothing qualifies"
    return f"nothing qualifies; nearest: {words_of(question, miss.candidate)}: {miss.why}"


def rejected(question: Question, outcome: Findings, results: StudyResults) -> list[str]:
    """Return why candidates are not in the ranking, the nearest misses first."""
    found = [(each.status, each.why, each.candidate, each.margin)
             for each in outcome.results if each.status != FEASIBLE]
    found += [(ELIMINATED, _few(each), each.candidate, each.margin) for each in outcome.eliminated]
    found += [(each.kind, each.why, each.candidate, float("nan")) for each in outcome.dropped]
    found.sort(key=lambda each: (each[3] != each[3], -each[3] if each[3] == each[3] else 0.0, each[2].number))
    groups: dict[tuple[str, str], list[Candidate]] = {}
    for status, why, candidate, _ in found:
        groups.setdefault((status, why), []).append(candidate)
    lines = []
    for (status, why), (first, *others) in list(groups.items())[:MOST_REASONS[bool(results.ranking)]]:
        more = f" and {len(others):,} more" if others else ""
        lines.append(f"{status.replace('_', ' ')}: {words_of(question, first)}{more}: {why}")
    if (left := len(groups) - len(lines)) > 0:
        lines.append(f"and {left:,} reasons more: ranking.csv has each candidate's")
    return lines


def _few(result: CandidateResult) -> str:
    """Return why a candidate did not go on, the same words for many."""
    if result.status == ELIMINATED:
        return f"worse than the best on {len(result.ends)} equal seeds"
    return f"not among the best third after {result.num_requests} requests"


def table_of(question: Question, results: StudyResults, most: int = MOST_SHOWN) -> str:
    """Return the best candidates as a table, with a column for each axis."""
    names = names_of(question, [each.candidate for each in results.ranking])
    rows, shown = [["rank", *(each.key for each in question.objectives), "GPUs", "layout"]], results.ranking[:most]
    for place, each in enumerate(shown, 1):
        star = "*" if each.candidate.number in results.on_front and len(question.objectives) > 1 else ""
        rows.append([f"{place}{star}", *map(_number, each.values), str(each.candidate.gpus), each.candidate.layout])
    owns, below = [assigned(each.candidate.assignment) for each in shown], []
    for key, name in names.items():
        cells, meanings = numbered(name, [_plain(own[key] if key in own else default_of(each.candidate, key))
                                          for each, own in zip(shown, owns, strict=True)])
        rows = [[*row, cell] for row, cell in zip(rows, [name, *cells], strict=True)]
        below += meanings
    return "\n".join([fitted(rows), *below])


def names_of(question: Question, candidates: Iterable[Candidate]) -> dict[str, str]:
    """Return the names of axes and of counts of replicas, by their keys.

    Pools that a layout makes go by their roles.
    """
    keys = list(dict.fromkeys([key for each in candidates for key in assigned(each.assignment)] + axis_keys(question)))
    keys = [key for key in keys if key not in TRANSFER]
    roles = keys if question.study.base.pools else [
        key.replace("pools.0.", "prefill.").replace("pools.1.", "decode.") for key in keys]
    last = Counter(key.rpartition(".")[2] for key in roles)
    return {key: short if last[short := role.rpartition(".")[2]] == 1 else role
            for key, role in zip(keys, roles, strict=True)}


def words_of(question: Question, candidate: Candidate) -> str:
    """Return a candidate as words, by all axes: "disaggregated, tensor_parallel 2"."""
    own, words = assigned(candidate.assignment), [candidate.layout]
    for key, name in names_of(question, [candidate]).items():
        value = own[key] if key in own else default_of(candidate, key)
        words += [f"{name} {_plain(value)}"] if value != "" else []
    return ", ".join(words)


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number(value: Estimate) -> str:
    return figure(value.mean) + (f" +- {value.half_width:.2g}" if value.half_width == value.half_width else "")
