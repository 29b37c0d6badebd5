"""The answer of `plan` as text for a screen, and as JSON."""
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

from simulator.study.capacity.point_search import cost_per_hour
from simulator.study.planning.deployments import RATE, Deployment
from simulator.study.planning.plan import Plan, StudyRun
from simulator.study.planning.question import Question, version_words
from simulator.study.planning.texts import PART, REL_TOL
from simulator.study.planning.units import words_of
from simulator.study.sweep.names import WINNERS
from simulator.study.telling.said import Said
from simulator.study.telling.screen import lines_of, table_of
from simulator.study.tuning.result import FEASIBLE, CandidateResult

SCHEMA = 1
SHORT = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "e2el_ms": "E2EL", "itl_ms": "ITL"}
IDLE = 0.2                      # of the rate that the smallest deployment is predicted to hold
MOST_REASONS = 6
CLOSE = 0.05                    # of a rate: twice the tolerance of a search


def text_of(plan: Plan) -> str:
    """Return the answer for a screen of 80 columns."""
    parts = [lines_of("\n".join(_question_lines(plan))), lines_of(_answer_line(plan))]
    parts += [lines_of(_server_line(plan))] if plan.server is not None else []
    for study in plan.all_studies:
        parts += [_heading(plan, study) + _table(plan, study)] if study.ended.results.ranking else []
        parts += ["\n".join(lines_of(line) for line in misses)] if (misses := _misses(study)) else []
    notes = [lines_of(f"note: {each}") for each in (*plan.notes, *_own_notes(plan))]
    again = [f"  python -m simulator tune {study.file.name} --out {study.file.stem}" for study in plan.all_studies]
    if plan.best is not None:
        again.insert(0, f"  python -m simulator run {_answer_file(plan).relative_to(plan.directory).as_posix()}")
    parts += ["\n".join(notes)] if notes else []
    return "\n\n".join([*parts, "\n".join([f"results in {plan.directory}; there, changed or not:", *again])])


def content_of(plan: Plan, said: Said) -> dict[str, Any]:
    """Return the answer as JSON has it."""
    question = plan.question
    best = plan.best
    return {
        "schema": SCHEMA, "name": question.name, "model": question.title, "hardware": question.card,
        "engine": question.engine, "engine_version": version_words(question), "gpus": question.gpus,
        "prompt_tokens": question.requests.prompt, "output_tokens": question.requests.output,
        "rate": question.requests.rate, "max_model_len": question.max_model_len,
        "bounds": {each.key: {"max" if each.is_most else "min": each.limit} for each in question.bounds.bounds},
        "fits": [{"gpus": each.gpus, **each.ways, "refusal": each.refusal, "kv_tokens": each.kv_tokens,
                  "sequences": each.sequences} for each in plan.fits],
        "answer": _answer_line(plan), "holds": plan.holds,
        "server": None if plan.server is None else _server_line(plan),
        "best": None if best is None else _row(plan, plan.answer, best),
        "studies": {study.file.stem: {
            "file": str(study.file), "complete": not study.ended.is_stopped,
            "load": "offered" if study.is_offered else "capacity",
            "deployments": [_row(plan, study, each) for each in study.ended.candidates],
            "dropped": [{"deployment": study.deployments[each.candidate.number].words, "reason": each.why}
                        for each in study.ended.findings.dropped]} for study in plan.all_studies},
        "notes": [*plan.notes, *_own_notes(plan)], "experiment": str(plan.directory / "experiment.toml"),
        "answer_file": None if best is None else str(_answer_file(plan)),
        **plan.studies[0].ended.question.study.risk_content, **said.content()}


def _question_lines(plan: Plan) -> list[str]:
    question, requests = plan.question, plan.question.requests
    bounds = ", ".join(f"{_title(each.key)} {'<=' if each.is_most else '>='} {plain(each.limit)}"
                       f"{' ms' if '_ms.' in each.key else ''}" for each in question.bounds.bounds)
    if question.model_confidence is not None:
        bounds += f", with {100 * question.model_confidence:.10g} % of confidence over the model"
    rate = "" if requests.rate is None else f", {plain(requests.rate)} requests/s"
    least = min((unit.fit for unit in plan.units), key=lambda fit: (
        fit.gpus, fit.ways["pipeline_parallel"], -fit.kv_tokens))
    return [f"{question.title} on {question.gpus} {question.card}, {version_words(question)}",
            f"requests: {requests.prompt:,} tokens in, {requests.output:,} out, Poisson arrivals{rate}; {bounds}",
            f"fits on {gpus_of(least.gpus)} ({words_of(least.ways)}) and more: KV cache of "
            f"{least.kv_tokens:,} tokens, {least.sequences:,.1f} texts of {least.max_model_len:,}"]


def _answer_line(plan: Plan) -> str:
    question, rate, best = plan.question, plan.question.requests.rate, plan.best
    stopped = " (stopped: so far)" if plan.is_stopped else ""
    if best is None:
        return f"nothing that was simulated keeps the bounds{stopped}"
    words = plan.answer.of(best).words
    if rate is not None and plan.holds:
        return f"fewest GPUs for {plain(rate)} requests/s: {best.candidate.gpus}, {words}{stopped}"
    gpus = gpus_of(question.gpus)
    if best.candidate.gpus <= question.gpus // 2 and plan.answer.file.stem.startswith(PART):
        gpus = f"{best.candidate.gpus} of {gpus}"
    if rate is None:
        return f"largest rate of {gpus}: {rate_text(plan.rate)} requests/s, {words}{stopped}"
    verb, them = ("do", "they hold") if question.gpus > 1 else ("does", "it holds")
    return (f"{gpus} {verb} not hold {plain(rate)} requests/s; the most that {them}: {rate_text(plan.rate)}, {words}"
            f"{stopped}")


def _server_line(plan: Plan) -> str:
    """Return a line on the rate that the server of --from holds, beside the plan."""
    found, rate = plan.server.ended.candidates, plan.question.requests.rate
    if not found:
        dropped = plan.server.ended.findings.dropped
        return f"the server was not run: {dropped[0].why if dropped else 'stopped'}"
    own = found[0]
    if own.rate is None or own.status != FEASIBLE:
        return f"the server as it is keeps the bounds at no rate: {own.why}"
    asked = "" if rate is None else f", {'more' if own.rate >= rate else 'less'} than the {plain(rate)} that are asked"
    line = f"the server as it is holds {rate_text(own.rate)} requests/s on {gpus_of(own.candidate.gpus)}{asked}"
    if plan.best is None:
        return line
    best = plan.answer.of(plan.best).words
    if rate is not None and plan.holds:
        saved = own.candidate.gpus - plan.best.candidate.gpus
        return f"{line}; the plan takes {gpus_of(plan.best.candidate.gpus)} ({best})" + (
            f", {saved} fewer" if saved > 0 else "" if saved == 0 else f", {-saved} more")
    gain = plan.rate / plan.best.candidate.gpus / (own.rate / own.candidate.gpus) - 1
    word = "no better" if gain <= CLOSE else f"{gain:.0%} more for each GPU"
    return f"{line}; the plan with the engine's defaults: {word} ({best})"


def _heading(plan: Plan, study: StudyRun) -> str:
    if study is plan.routers:
        words = plan.answer.of(plan.best).words
        return lines_of(f"routers in front of {words} at {rate_text(plan.rate)} requests/s:") + "\n"
    return ""


def _table(plan: Plan, study: StudyRun) -> str:
    """Return the deployments that keep the bounds, the best first."""
    keys = [key for key in study.ended.question.bounds.metrics if key.endswith(("p50", "p90", "p95", "p99", "mean"))]
    rows = [["rank", "layout" if study is not plan.routers else "router", "GPUs", "req/s", "output tokens/s per GPU",
             *map(_head, keys), *_cost_heads(plan.question)]]
    for rank, each in enumerate(study.ended.results.ranking, 1):
        row = _row(plan, study, each)
        rows.append([str(rank), row["deployment"], str(row["gpus"]), rate_text(row["rate"]),
                     rate_text(row["output_tokens_per_s_per_gpu"], 10), *(_cell(row["metrics"][key]) for key in keys),
                     *([_cell(row["cost_per_hour"]), _cell(row["cost_per_million_output_tokens"])]
                       if plan.question.price is not None else [])])
    return table_of(rows, 2, (1,))


def _answer_file(plan: Plan) -> Path:
    """Return the experiment of the best deployment, at the rate that it holds."""
    return plan.answer.file.with_suffix("") / WINNERS / "0001.toml"


def _head(key: str) -> str:
    """Return the head of a column of a bounded metric, with its unit."""
    return _title(key) + (", ms" if "_ms." in key else "")


def _cost_heads(question: Question) -> list[str]:
    """Return the heads of the columns of costs, in the currency of the price; none without a price."""
    prices = list((question.price or {}).values())      # of one accelerator
    return [f"{prices[0]['currency']}{of}" for of in ("/h", " per 1M out")] if prices else []


def _row(plan: Plan, study: StudyRun, result: CandidateResult) -> dict[str, Any]:
    """Return a deployment with its numbers."""
    rate = study.rate_of(result, plan.question)
    tokens = None if rate is None else rate * plan.question.requests.output
    cost = cost_per_hour(result.candidate.experiment)
    metrics = {key: _mean([end.summary.get(key) for end in result.ends])
               for key in study.ended.question.bounds.metrics}
    return {
        "deployment": study.of(result).words, "status": result.status, "reason": result.why,
        "layout": result.candidate.layout, "gpus": result.candidate.gpus, "rate": rate, "metrics": metrics,
        "predicted_rate": study.of(result).rate, "margin": None if math.isnan(result.margin) else result.margin,
        "output_tokens_per_s_per_gpu": tokens and tokens / result.candidate.gpus, "cost_per_hour": cost,
        "cost_per_million_output_tokens": cost / tokens / 3600 * 1e6 if cost and tokens else None,
        "assignment": study.of(result).point}


def _misses(study: StudyRun) -> list[str]:
    """Return why deployments are not in the table, a line each."""
    found = [(f"{study.of(each).words} ({gpus_of(each.candidate.gpus)}){_at(study.of(each))}", each.why)
             for each in study.ended.findings.results if each.status != FEASIBLE]
    found += [(study.deployments[each.candidate.number].words, each.why) for each in study.ended.findings.dropped]
    lines = [f"misses: {words}: {why}" for words, why in found[:MOST_REASONS]]
    return lines + [f"and {len(found) - MOST_REASONS} more"] * (len(found) > MOST_REASONS)


def rate_text(rate: float, whole_from: float = 1000) -> str:
    """Return a rate in four digits; from `whole_from` on, as a whole number."""
    return f"{rate:,.0f}" if rate >= whole_from else f"{rate:.4g}"


def plain(number: float) -> str:
    """Return a number as it was given, without an exponent."""
    return f"{Decimal(repr(number)).normalize():,f}"


def gpus_of(count: int) -> str:
    """Return a number of GPUs in words."""
    return f"{count} GPU{'s' * (count != 1)}"


def _at(deployment: Deployment) -> str:
    """Return the rate of a deployment that has one of its own, in words."""
    return f" at {rate_text(deployment.point[RATE])} requests/s" if RATE in deployment.point else ""


def _own_notes(plan: Plan) -> list[str]:
    question, best, notes = plan.question, plan.best, []
    shown = {each.words for study in plan.all_studies for each in study.deployments}
    others = sorted({unit.words for unit in plan.units
                     if not any(each.startswith(f"{unit.words} x") for each in shown)})
    if others:
        notes.append(f"not simulated, behind by prediction: {', '.join(others)}")
    notes += [thin for study in plan.all_studies if (thin := study.ended.results.summary.get("thin"))]
    if best is None:
        return notes
    deployment = plan.answer.of(best)
    if not plan.answer.is_offered:
        alike = [plan.answer.of(each).words for each in plan.answer.ended.results.ranking[1:]
                 if each.rate >= (1 - REL_TOL) * best.rate]
        notes.append(f"rates are found to {REL_TOL:.0%}, each with one seed" + (
            f"; as good as {deployment.words}: {', '.join(alike)}" if alike else ""))
    if question.requests.rate is None and (idle := question.gpus - best.candidate.gpus):
        notes.append(f"{idle} of {question.gpus} GPUs are idle: {deployment.words} takes {best.candidate.gpus}")
    if question.requests.rate is not None and plan.holds and question.requests.rate < IDLE * deployment.rate:
        share = question.requests.rate / deployment.rate
        words = f"{share:.1%}" if share >= 0.001 else "less than 0.1%"
        notes.append(f"the rate is {words} of the one that {deployment.words} is predicted to hold: it idles most "
                     "of the time")
    return notes


def _title(key: str) -> str:
    name, _, statistic = key.rpartition(".")
    return f"{SHORT.get(name, name)} {statistic}" if name else key


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def _mean(values: list[float | None]) -> float | None:
    return sum(values) / len(values) if values and None not in values else None
