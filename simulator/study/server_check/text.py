"""The answer of a check on a screen of 80 columns, and as JSON."""
import math
from typing import Any

from simulator.study.server_check.check import INTERVAL_SHARE, Answer, Ranked, Row
from simulator.study.telling.said import wrapped
from simulator.study.telling.screen import table_of

SHOWN, LEAST_SHARE = 3, 0.01    # causes with where to look
RIGHT = "The server behaves as the experiment says."
WRONG = "The server does not behave as the experiment says. Likely causes, each simulated as one change:"
UNCLEAR = ("No cause of the catalogue explains what is outside better than the experiment does: see its prices "
           "(`calibrate`) and whether several things differ.")


def text_of(title: str, answer: Answer) -> str:
    """Return the answer as lines of text."""
    outside = [row for row in answer.rows if not row.is_inside]
    lines = [*wrapped(f"{title}: {facts_of(answer)}"), "", table_of(_table(answer.rows), left=(5, 6)), ""]
    if outside:
        lines += wrapped(f"* outside of the expected interval, which holds {INTERVAL_SHARE:.0%} of runs; about one in "
                         "twenty is so by chance")
        lines.append("")
    lines += _verdict(answer, outside)
    return "\n".join(lines)


def facts_of(answer: Answer) -> str:
    """Return the size of the comparison, in words."""
    series, arrivals = answer.series, answer.arrivals
    said = [f"{answer.span_s:,.0f} s", f"{len(series.times_s):,} readings",
            "arrivals of the experiment's own clients" if arrivals is None else f"{arrivals:,} arrivals as observed"]
    if series.restarts:
        said.append(f"the server was started again {series.restarts} times")
    return ", ".join(said)


def _verdict(answer: Answer, outside: list[Row]) -> list[str]:
    if answer.is_right:
        return wrapped(f"{RIGHT} {UNCLEAR}" if len(outside) > 2 else RIGHT)
    lines = wrapped(WRONG)
    likely = [each for each in answer.ranked[:SHOWN] if each.share >= LEAST_SHARE]
    for number, each in enumerate(likely, 1):
        lines += wrapped(f"{number}. {each.cause.title}: {each.change.text} ({each.share:.0%})")
        lines += [f"   {line}" for line in wrapped(f"see {each.cause.look}")]
    return lines


def _table(rows: list[Row]) -> list[list[str]]:
    table = [["", "measured", "expected", "from", "to", "", ""]]
    for row in rows:
        numbers = map(_number, (row.measured, row.expected, row.low, row.high))
        table.append([row.title, *numbers, row.unit, "" if row.is_inside else "*"])
    return table


def _number(value: float) -> str:
    """Return a number with three digits, or all of its whole ones."""
    if abs(value) < 5e-4 or value == round(value):
        return f"{value:,.0f}"
    digits = max(2 - math.floor(math.log10(abs(value))), 0)
    return f"{value:,.{digits}f}"


def content_of(name: str, answer: Answer) -> dict[str, Any]:
    """Return the content of compare.json."""
    return {
        "schema": 1, "name": name, "span_s": answer.span_s, "readings": len(answer.series.times_s),
        "arrivals": answer.arrivals, "restarts": answer.series.restarts, "is_right": answer.is_right,
        "features": [row._asdict() | {"is_inside": row.is_inside} for row in answer.rows],
        "causes": [_cause(each) for each in answer.ranked], "not_simulated": answer.refused}


def _cause(each: Ranked) -> dict[str, Any]:
    change = each.change
    factors = {name: getattr(change, name) for name in ("pace", "demand", "prompts", "answers")
               if getattr(change, name) != 1}
    return {"name": each.cause.name, "title": each.cause.title, "change": change.text, "keys": dict(change.keys),
            **factors, "gain": each.gain, "share": each.share, "look": each.cause.look}
