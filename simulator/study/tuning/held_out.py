"""The best candidate beside the experiment as it is, on seeds that the search has not seen."""
from typing import Any

from simulator.study.statistics.intervals import of_pairs
from simulator.study.sweep.bench import num_gpus
from simulator.study.sweep.laboratory import Laboratory
from simulator.study.telling.screen import figure
from simulator.study.tuning.at_load import AtLoad
from simulator.study.tuning.candidates import Candidate
from simulator.study.tuning.findings import Findings
from simulator.study.tuning.objectives import numbers_of
from simulator.study.tuning.ranking import ranked
from simulator.study.tuning.result import FEASIBLE, MISSED, CandidateResult
from simulator.study.tuning.tune_table import Question

AS_GIVEN = "the experiment"


def held_out(question: Question, laboratory: Laboratory, outcome: Findings) -> dict[str, Any] | None:
    """Return the paired comparison for tune.json.

    None: none is asked for, or nothing is feasible. A candidate that is best of many is so partly by luck: its value
    on the seeds of the search is too good.

    Raises
    ------
    Stopped
        Some runs were not started.
    """
    count, ranking = question.settings.held_out, ranked(question, outcome.results)[0]
    if not count or not ranking:
        return None
    first, base = max(question.study.seeds) + 1, question.study.base
    seeds = tuple(range(first, first + count))
    own = Candidate(-1, AS_GIVEN, {}, base, num_gpus(base))
    runs = AtLoad(question._replace(study=question.study._replace(seeds=seeds)), laboratory, _nothing)
    best, own = runs.try_all([ranking[0].candidate, own])
    found: dict[str, Any] = {"seeds": list(seeds), "best": _brief(best), "experiment": _brief(own)}
    if {best.status, own.status} <= {FEASIBLE, MISSED}:
        found["values"] = {each.key: _paired(question, each.key, best, own) for each in question.objectives}
    return found


def held_out_lines(found: dict[str, Any] | None) -> list[str]:
    """Return the comparison as sentences."""
    if found is None:
        return []
    seeds = len(found["seeds"])
    lead = f"held out, {seeds} further seed{'s' * (seeds != 1)}"
    lines = []
    for key, each in found.get("values", {}).items():
        if each["difference"] is None:
            lines.append(f"{lead}: {key}: there is nothing to measure")
            continue
        width = "" if each["half_width"] is None else f" +- {each['half_width']:.2g}"
        lines.append(f"{lead}: {key} {figure(each['best'])}, {AS_GIVEN} as it is {figure(each['experiment'])}: "
                     f"{each['difference']:+.6g}{width}")
    for name in ("best", "experiment"):
        if found[name]["status"] != FEASIBLE:
            lines.append(f"{lead}: {'the best' if name == 'best' else AS_GIVEN}: {found[name]['why']}")
    return lines


def _brief(result: CandidateResult) -> dict[str, str]:
    return {"status": result.status, "why": result.why}


def _paired(question: Question, key: str, best: CandidateResult, own: CandidateResult) -> dict[str, float | None]:
    """Return means and the difference with its interval; None: there is nothing to measure."""
    mine, others = ([numbers_of(end, each.candidate.experiment)[key] for end in each.ends] for each in (best, own))
    if None in mine or None in others:
        return dict.fromkeys(("best", "experiment", "difference", "half_width"))
    pairs = of_pairs(mine, others, question.settings.statistics.confidence)
    return {"best": sum(mine) / len(mine), "experiment": sum(others) / len(others), "difference": pairs.mean,
            "half_width": None if pairs.half_width != pairs.half_width else pairs.half_width}


def _nothing(result: CandidateResult) -> None:
    pass
