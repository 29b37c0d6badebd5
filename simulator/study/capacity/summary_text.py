"""An answer as JSON, as a table on a screen, and as a curve."""
import csv
import io
import math
from collections.abc import Sequence
from typing import Any

from simulator.study.capacity.bounds import ANY, BACKLOG, STABLE, Bounds
from simulator.study.capacity.interval import by_seed
from simulator.study.capacity.mix import Chosen, Kind, Mix, text_of
from simulator.study.capacity.point_search import Answer, finite, notes_of
from simulator.study.capacity.thin import thin_values
from simulator.study.capacity.varied import Varied
from simulator.study.capacity.verdict import Verdict
from simulator.study.telling.said import AGAIN
from simulator.study.telling.screen import figure, lines_of
from simulator.study.telling.screen import table_of as fitted

SCHEMA = 1


def content_of(asked: Answer, varied: Varied, bounds: Bounds, cost: float | None) -> dict[str, Any]:
    """Return the content of capacity.json for one point.

    cost : of the deployment an hour; None: not known.
    """
    found, figures = asked.found, asked.figures
    tokens, gpus, value = figures.get("output_tokens_per_s"), figures.get("gpus"), asked.value
    carried = value if varied.is_rate else figures.get("requests_per_s")
    return {
        "vary": varied.key, "verdict": asked.word, "answer": value, "interval": asked.interval and list(asked.interval),
        "by_seed": _by_seed(asked, varied), "slo": _slo(bounds),
        "lo": _value(found.bad if varied.span.is_least else found.good),
        "hi": _value(found.good if varied.span.is_least else found.bad),
        "binding": (found.bad or found.good).binding or None, "misses": found.bad.sentence if found.bad else None,
        "at_bound": found.at_bound, "monotone": found.is_monotone, "undecided": found.is_noisy,
        "before": found.before.answer if found.before else None,
        "repeated_with_new_seeds": asked.is_repeated, "thin": asked.thin and asked.thin.content,
        "probes": [probe_of(each) for each in asked.verdicts],
        "repeats": [probe_of(each) for each in asked.repeats],
        "gpus": gpus, "per_gpu": carried / gpus if gpus and carried is not None else None,
        "requests_per_s": figures.get("requests_per_s"), "output_tokens_per_s": tokens,
        "tokens_per_s_per_gpu": figures.get("tokens_per_s_per_gpu"), "cost_per_hour": cost,
        "cost_per_million_output_tokens": cost * 1e6 / (3600 * tokens) if cost and tokens else None,
        "unserved_share": figures.get("unserved_share"), "notes": notes_of(asked, bounds), "curve": asked.curve,
    }


def _by_seed(asked: Answer, varied: Varied) -> dict[str, float] | None:
    """Return the capacity by each seed; None: not known."""
    good, bad = asked.found.good, asked.found.bad
    known = by_seed(good, bad, varied.span) if good and bad and asked.interval else None
    return known and {str(seed): value for seed, value in known.items()}


def _slo(bounds: Bounds) -> dict[str, Any]:
    """Return the bounds in the form of [study.slo]."""
    table: dict[str, Any] = {}
    for each in bounds.bounds:
        table.setdefault(each.key, {})["max" if each.is_most else "min"] = each.limit
    return table | {BACKLOG: STABLE if bounds.wants_stable else ANY}


def probe_of(verdict: Verdict) -> dict[str, Any]:
    """Return a probe in the form of capacity.json."""
    return {"value": verdict.value, "seeds": sorted(verdict.by_seed), "requests": verdict.num_requests,
            "margins": {key: {"mean": finite(each.mean), "half_width": finite(each.half_width)}
                        for key, each in verdict.margins.items()},
            "verdict": verdict.word, "reasons": list(verdict.reasons)}


def line_of(verdict: Verdict, varied_key: str) -> str:
    """Return a verdict as a line of progress."""
    worst = verdict.estimates.get(verdict.binding)
    numbers = "" if worst is None else f", {verdict.binding} {figure(worst.mean)}" + (
        "" if math.isnan(worst.half_width) else f" +- {worst.half_width:.3g}")
    return lines_of(f"{varied_key} = {figure(verdict.value)}: {verdict.word}{numbers}"
                    f" ({len(verdict.by_seed)} seeds x {verdict.num_requests:,} requests)"
                    + (f"; {verdict.reasons[0]}" if verdict.reasons else ""))


def table_of(asked: Answer, varied: Varied, bounds: Bounds) -> str:
    """Return the curve as a table, and the answer below it."""
    keys = list(dict.fromkeys(each.key for each in bounds.bounds))
    name, head = "request_goodput", "goodput/s"
    if all(row[name] is None for row in asked.curve):           # no [slo]
        name, head = "request_throughput", "requests/s"
    rows = [[varied.key, head, *keys, "verdict"]]
    for row in asked.curve:
        rows.append([figure(row['value']), _text(row[name]), *(_with_ci(row[key], row[f"{key}.ci"]) for key in keys),
                     row["verdict"]])
    return f"{fitted(rows)}\n\n{lines_of(sentence_of(asked, varied))}"


def sentence_of(asked: Answer, varied: Varied) -> str:
    """Return the answer in sentences."""
    found, value, figures = asked.found, asked.value, asked.figures
    least = "least" if varied.span.is_least else "largest"
    if value is None:
        return _nothing(asked, varied)
    sentence = f"{least} {varied.key}: {figure(value)}"
    if asked.interval is not None:
        ends = f"{figure(asked.interval[0])} to {figure(asked.interval[1])}"
        sentence += f"; the bounds are met at {ends}" if varied.span.is_whole else f" ({ends})"
    lines = [sentence]
    if found.bad is not None:
        lines.append(f"{figure(found.bad.value)} {found.bad.miss_text}")
    if (steps := len(asked.repeats) - 1) > 0:
        lines.append(f"the search's {figure(asked.repeats[0].value)} did not hold with new seeds: {steps} "
                     f"step{'s' * (steps > 1)} of rel_tol from there")
    if asked.is_repeated:
        last = asked.repeats[-1]
        lines.append(f"{AGAIN}: {len(last.by_seed)} x {last.num_requests:,} requests"
                     + ", by the mean: the interval holds the bound" * last.is_undecided)
    if (gpus := figures.get("gpus")) is not None:
        parts = [f"{gpus} GPU{'s' * (gpus != 1)}", f"{_text(figures['requests_per_s'])} requests/s",
                 f"{_text(figures['tokens_per_s_per_gpu'])} output tokens/s per GPU"]
        lines.append(", ".join(parts))
    return "\n".join(lines)


def _nothing(asked: Answer, varied: Varied) -> str:
    """Return that no value passes, or that none could be judged."""
    worst, thin = asked.found.bad, asked.thin
    if thin is None:
        return f"nothing passes: even {varied.key} = {figure(worst.value)} {worst.miss_text}"
    lead = "nothing can be told" if thin.is_all else "nothing passes of what can be told"
    return f"{lead}: {varied.key} = {thin_values(thin)} is thin: too few requests for {thin.sentence}"


def curve_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Return the curve as CSV, nothing where there is no number."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: "" if value is None else value for key, value in row.items()} for row in rows)
    return stream.getvalue()


def mix_content(chosen: Chosen, kinds: Sequence[Kind], target_per_s: float, bounds: Bounds) -> dict[str, Any]:
    """Return the content of capacity.json for a mix."""
    def content(mix: Mix) -> dict[str, Any]:
        return {"replicas": dict(zip((kind.pool for kind in kinds), mix.counts, strict=True)),
                "bound_per_s": finite(mix.bound_per_s), "price_per_hour": mix.price_per_hour, "gpus": mix.gpus}

    return {"target_per_s": target_per_s, "slo": _slo(bounds), "answer": chosen.answer and content(chosen.answer),
            "kinds": [kind._asdict() | {"capacity_per_s": finite(kind.capacity_per_s)} for kind in kinds],
            "skipped": chosen.num_skipped,
            "undecided": [content(mix) for mix in chosen.undecided],
            "probes": [content(mix) | probe_of(verdict) for mix, verdict in chosen.verdicts]}


def mix_table(chosen: Chosen, kinds: Sequence[Kind], target_per_s: float) -> str:
    """Return the mixes that were tried as a table, and the answer below it."""
    rows = [["mix", "GPUs", "price per hour", "bound, requests/s", "verdict"]]
    rows += [[text_of(mix, kinds), str(mix.gpus), figure(mix.price_per_hour),
              f"{mix.bound_per_s:.4g}" if math.isfinite(mix.bound_per_s) else "-", verdict.word]
             for mix, verdict in chosen.verdicts]
    if chosen.answer is None:
        end = f"no mix carries {figure(target_per_s)} requests/s"
        if chosen.verdicts:
            mix, verdict = chosen.verdicts[-1]
            end += f": {text_of(mix, kinds)} {verdict.miss_text}"
    else:
        best = chosen.answer
        end = (f"{text_of(best, kinds)}: {best.gpus} GPUs, {figure(best.price_per_hour)} per hour, at "
               f"{figure(target_per_s)} requests/s")
    lines = f"{chosen.num_skipped} mixes skipped by their bound"
    if not any(kind.price_per_hour for kind in kinds):
        lines += "\nno price is known, of [prices] or of [[pools]] with cost_per_hour: fewer GPUs are better"
    return f"{fitted(rows)}\n{lines_of(lines)}\n\n{lines_of(end)}"


def _value(verdict: Verdict | None) -> float | None:
    return verdict.value if verdict else None


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"


def _with_ci(value: float | None, half: float | None) -> str:
    return "-" if value is None else f"{value:.5g}" + ("" if half is None else f" +- {half:.2g}")
