"""The answer about two versions, on a screen of 80 columns and as JSON."""
import json
from typing import Any, NamedTuple

from simulator.domain.vllm_versions import VERSIONS, description_of
from simulator.errors import number_of
from simulator.study.compare import METRICS, metrics_of
from simulator.study.first_difference import (
    Difference,
    Extent,
    Schedule,
    batch_of,
    compared,
    request_of,
    schedule_of,
)
from simulator.study.responsible_rules import Answer, Cause
from simulator.study.telling.screen import lines_of, table_of
from simulator.study.two_versions import Side, keys_without_flag

MOST_ROWS = 10                  # replicas, and settings, that the screen shows; the JSON has all
BATCH = {"start_ns": "start, ms", "duration_ns": "duration, ms", "sequences": "sequences",
         "prefill_tokens": "prompt tokens", "decode_tokens": "decode tokens", "padded_tokens": "tokens with padding",
         "running": "running", "waiting": "waiting", "used_blocks": "blocks in use", "preempted": "preempted"}
REQUEST = {"scheduled_ns": "scheduled, ms", "first_token_ns": "first token, ms", "completed_ns": "completed, ms",
           "cached_tokens": "cached tokens", "output_tokens": "output tokens", "preemptions": "preemptions",
           "replica": "replica", "rank": "rank"}


class Findings(NamedTuple):
    """All that is known of an experiment under two versions.

    settings : (key, old, new, rules). extent, answer : None where one version refuses the experiment.
    """

    file: str
    old: Side
    new: Side
    settings: list[tuple[str, Any, Any, tuple[str, ...]]]
    extent: Extent | None = None
    answer: Answer | None = None

    @property
    def schedules(self) -> tuple[Schedule, Schedule]:
        """Both runs, as they are compared."""
        return schedule_of(self.old.result), schedule_of(self.new.result)


def findings_of(file: str, old: Side, new: Side, settings: list) -> Findings:
    """Return the differences of two sides, before any search for their rules."""
    if old.result is None or new.result is None:
        return Findings(file, old, new, settings)
    return Findings(file, old, new, settings, compared(schedule_of(old.result), schedule_of(new.result)))


def screen_text(found: Findings) -> str:
    """Return the answer for a screen."""
    parts = [*_refusals(found), *_flags(found), *_settings(found)]
    if found.extent is not None and found.extent.first is None:
        parts.append(lines_of(_equal(found)))
    elif found.extent is not None:
        parts += [_schedule(found), _first(found), *_rules(found), _summary(found)]
    return "\n\n".join(parts)


def json_text(found: Findings) -> str:
    """Return the answer as JSON."""
    old, new = found.old.version, found.new.version
    content: dict[str, Any] = {
        "file": found.file, "versions": [old, new],
        "refused": {side.version: list(side.faults) for side in (found.old, found.new) if side.faults},
        "without_flag": {side.version: keys_without_flag(side.experiment, side.version)
                         for side in (found.old, found.new) if side.plan is not None},
        "settings": [{"key": key, "old": before, "new": after, "rules": list(rules)}
                     for key, before, after, rules in found.settings],
        "schedule": None, "causes": None, "rules": {}, "summary": None}
    if found.extent is not None:
        content["schedule"] = _schedule_content(found)
        content["summary"] = {key: {"old": before, "new": after, "change_percent": _change(before, after)}
                              for key, before, after in _metrics(found)}
    if found.answer is not None:
        content["causes"] = {
            "runs": found.answer.runs, "is_complete": found.answer.rest is None,
            "found": [{"difference": each.difference._asdict(), "rules": list(each.rules), "together": each.together}
                      for each in found.answer.causes]}
    named = dict.fromkeys([*(rule for *_, rules in found.settings for rule in rules), *_all_rules(found)])
    content["rules"] = {rule: {"text": description_of(rule), "old": getattr(VERSIONS[old], rule),
                               "new": getattr(VERSIONS[new], rule)} for rule in named}
    return json.dumps(content, indent=2, ensure_ascii=False)


def _refusals(found: Findings) -> list[str]:
    return [lines_of("\n".join([f"vLLM {side.version} refuses this experiment:", *(f"  {fault}"
                                                                                  for fault in side.faults)]))
            for side in (found.old, found.new) if side.faults]


def _flags(found: Findings) -> list[str]:
    """Return keys for which a version has no flag: it runs without them, the simulator with them."""
    texts = []
    for side in (found.old, found.new):
        if side.plan is not None and (keys := keys_without_flag(side.experiment, side.version)):
            texts.append(lines_of(f"vLLM {side.version} has no flag for {', '.join(keys)}, which its run has even so"))
    return texts


def _settings(found: Findings) -> list[str]:
    if not found.settings:
        return []
    rows = [["setting", found.old.version, found.new.version, "rule"]]
    rows += [[key, _value(before), _value(after), ", ".join(rules) or "facts by version"]
             for key, before, after, rules in found.settings[:MOST_ROWS]]
    lines = [table_of(rows, left=(0, 3))]
    if len(found.settings) > MOST_ROWS:
        lines.append(f"{len(found.settings) - MOST_ROWS} settings more are in --json")
    lines += [lines_of(f"{rule}: {description_of(rule)}")
              for rule in dict.fromkeys(rule for *_, rules in found.settings for rule in rules)]
    return ["\n".join(lines)]


def _equal(found: Findings) -> str:
    requests, (schedule, _) = len(found.old.result.requests), found.schedules
    return (f"vLLM {found.old.version} and {found.new.version} give the same run: {requests:,} requests, "
            f"{schedule.num_iterations:,} iterations")


def _schedule(found: Findings) -> str:
    extent, (before, after) = found.extent, found.schedules
    head = (f"{extent.iterations:,} of {extent.num_iterations:,} iterations and {extent.requests:,} of "
            f"{len(found.old.result.requests):,} requests differ")
    if not extent.firsts:
        return lines_of(head)
    ranks = any(rank for schedule in (before, after) for _, rank in schedule.batches)
    rows = [["replica", *(["rank"] if ranks else []), "first that differs", "at, ms",
             f"iterations {found.old.version}", f"iterations {found.new.version}"]]
    for each in extent.firsts[:MOST_ROWS]:
        counts = [len(schedule.batches.get((each.replica, each.rank), ())) for schedule in (before, after)]
        rows.append([str(each.replica), *([str(each.rank)] if ranks else []), f"{each.row:,}", _ms(each.time_ns),
                     *(f"{count:,}" for count in counts)])
    lines = [lines_of(head), table_of(rows)]
    if len(extent.firsts) > MOST_ROWS:
        lines.append(f"{len(extent.firsts) - MOST_ROWS:,} replicas more are in --json")
    return "\n".join(lines)


def _first(found: Findings) -> str:
    """Return the first differing iteration and request, column by column."""
    (before, after), extent, texts = found.schedules, found.extent, []
    versions = [found.old.version, found.new.version]
    if extent.firsts:
        batches = [batch_of(schedule, extent.firsts[0]) for schedule in (before, after)]
        title = _place(extent.firsts[0], found)
        texts.append(table_of([[title, *versions], *_rows(BATCH, batches)], left=(0,)))
    if extent.request is not None:
        pair = [request_of(schedule, extent.request.row) for schedule in (before, after)]
        title = _place(extent.request, found)
        texts.append(table_of([[title, *versions], *_rows(REQUEST, pair, only_different=True)], left=(0,)))
    return "\n\n".join(texts)


def _rows(columns: dict[str, str], pair: list[dict | None], only_different: bool = False) -> list[list[str]]:
    """Return a row for each column that is not 0 in both."""
    rows = []
    for name, label in columns.items():
        values = [None if each is None else each.get(name) for each in pair]
        if (values[0] == values[1] and only_different) or not any(values):
            continue
        show = _ms if name.endswith("_ns") else _value
        rows.append([label, *("-" if value is None or (value < 0 and name.endswith("_ns")) else show(value)
                              for value in values)])
    return rows


def _rules(found: Findings) -> list[str]:
    if found.answer is None:
        return []
    texts = [_cause_text(cause, found) for cause in found.answer.causes]
    if found.answer.rest is not None:
        texts.append(f"The search ended after {number_of(found.answer.runs, 'run')}: differences from "
                     f"{_place(found.answer.rest, found)} on have no cause yet; --runs allows more")
    elif found.answer.causes and found.answer.causes[-1].rules:
        texts.append(f"With {'this' if len(set(_all_rules(found))) == 1 else 'these'} set back, {found.new.version} "
                     f"gives the run of {found.old.version}")
    return ["\n".join(map(lines_of, texts))]


def _cause_text(cause: Cause, found: Findings) -> str:
    where = f"From {_place(cause.difference, found)} on"
    if not cause.rules:
        return f"{where}: facts by version, such as memory and kernels; no rule set back removes it"
    named = "\n".join(f"  {_rule(rule, found)}" for rule in cause.rules)
    if len(cause.rules) == 1:
        return f"{where}:\n{named}"
    how = "all of these together" if cause.together else "any of these, set back alone, takes it away"
    return f"{where}, {how}:\n{named}"


def _rule(rule: str, found: Findings) -> str:
    before, after = (getattr(VERSIONS[side.version], rule) for side in (found.old, found.new))
    return f"{rule}, {_value(before)} -> {_value(after)}: {description_of(rule)}"


def _all_rules(found: Findings) -> list[str]:
    return [rule for cause in (found.answer.causes if found.answer else ()) for rule in cause.rules]


def _place(difference: Difference, found: Findings) -> str:
    if difference.of_request:
        name = found.old.result.request(difference.row)["request_id"]
        return f"request {name.decode() if isinstance(name, bytes) else name}, {_ms(difference.time_ns)} ms"
    rank = f", rank {difference.rank}" if difference.rank else ""
    return f"replica {difference.replica}{rank}, iteration {difference.row:,}, {_ms(difference.time_ns)} ms"


def _summary(found: Findings) -> str:
    rows = [["", found.old.version, found.new.version, "change, %"]]
    for key, before, after in _metrics(found):
        change = _change(before, after)
        rows.append([METRICS[key], _number(before), _number(after),
                     "-" if change is None else f"{round(change, 2) + 0.0:+.2f}"])
    return table_of(rows, left=(0,))


def _metrics(found: Findings) -> list[tuple[str, float | None, float | None]]:
    before, after = (metrics_of(side.result.summary) for side in (found.old, found.new))
    return [(key, before[key], after[key]) for key in METRICS]


def _change(before: float | None, after: float | None) -> float | None:
    return None if not before or after is None else 100 * (after / before - 1)


def _schedule_content(found: Findings) -> dict[str, Any]:
    extent, (before, after) = found.extent, found.schedules
    request = extent.request and extent.request._asdict() | {
        "old": request_of(before, extent.request.row), "new": request_of(after, extent.request.row)}
    return {"iterations": {"old": before.num_iterations, "new": after.num_iterations, "different": extent.iterations},
            "requests": {"all": len(found.old.result.requests), "different": extent.requests},
            "replicas": [each._asdict() | {"old": batch_of(before, each), "new": batch_of(after, each)}
                         for each in extent.firsts], "request": request}


def _ms(time_ns: int) -> str:
    return "-" if time_ns < 0 or time_ns > 2**62 else f"{time_ns / 1e6:,.3f}"


def _value(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else json.dumps(value)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
