"""A calibration as text: the held-out error first."""
from collections.abc import Iterable
from typing import Any

from simulator.study.calibration.calibrate_table import STEPS
from simulator.study.calibration.solver import NAMES, STEP, Answer, values_now

PER_CENT = 100.0
TITLES = {STEP: "iteration", "ttft": "TTFT", "tpot": "TPOT", "e2el": "E2EL"}
LEVELS = {STEPS: "iterations"}


def text_of(answer: Answer) -> str:
    """Return the verdict, the fitted values, and the errors."""
    parts = ["\n".join(verdict_of(answer))]
    if answer.coefficients:
        parts.append(_table(_values(answer)))
        parts += ["\n".join(f"* not identified: {key}: {each.interval.reason}"
                            for key, each in answer.coefficients.items() if each.interval.reason is not None)]
    if answer.residual is not None:
        parts.append("\n".join(residual_lines(answer)))
    parts.append(_table(_errors(answer)))
    return "\n\n".join(filter(None, parts))


def verdict_of(answer: Answer) -> list[str]:
    """Return the headline, a line or two."""
    what = "iterations" if answer.training["headline"] == STEP else "requests"
    if answer.held_out is None or answer.held_out["mape"] is None:
        lines = [f"nothing was held out; MAPE of {what} {'that were fitted to ' * bool(answer.coefficients)}"
                 f"{_percent(answer.training['mape'])}: how it predicts others is not known"]
    else:
        of = "training" if answer.coefficients else "the others"
        lines = [f"held out: MAPE of {what} {_percent(answer.held_out['mape'])}, median "
                 f"{_percent(answer.held_out['median_ape'])}; {of}: {_percent(answer.training['mape'])}"]
    if answer.transfers is False and (answer.coefficients or answer.residual):
        lines.append("does not transfer: the held-out error is more than twice that of training")
    return lines


def residual_lines(answer: Answer) -> list[str]:
    """Return the errors of a residual, of its prior, and the noise of the data."""
    facts = answer.residual.table.fit
    rows = [["residual of iterations", "n", "MAPE", "median", "bias", "sum"]]
    rows += [[title, f"{found['iterations']:,}", *(_percent(found[name], sign) for name, sign in (
        ("mape", ""), ("median_ape", ""), ("bias", "+"), ("of_sum", "+")))] for title, found in (
            ("latency model alone", facts["prior"]), ("with the residual", facts["fitted"]),
            ("blocks left out in turn", facts["left_out"].get("inside")),
            ("loads left out", facts["left_out"].get("other_load")),
            ("noise: iterations of equal counts", facts["noise"])) if found]
    return [_table(rows), f"{facts['shape']} curves; latency model x {answer.residual.table.scale:.4g}"]


def _values(answer: Answer) -> Iterable[list[str]]:
    now = values_now(answer.question, answer.coefficients)
    yield ["key", "was", "fitted", "95 %", "told by"]
    for key, each in answer.coefficients.items():
        yield [key, _number(now[key]), _number(each.value),
               f"{_number(each.interval.low)} to {_number(each.interval.high)}"
               + ("" if each.interval.reason is None else " *"), LEVELS.get(each.level, each.level)]


def _errors(answer: Answer) -> Iterable[list[str]]:
    yield ["", "n", "MAPE", "median", "bias", "r", "quality", "mean", "p99", "KS", "W/mean", "within noise"]
    for title, side in (("held out", answer.held_out), ("training" if answer.coefficients else "", answer.training)):
        for name in (STEP, *NAMES.values()):
            if side is not None and side[name] is not None:
                yield [f"{title} {TITLES[name]}".strip(), *_row(side[name])]


def _row(found: dict[str, Any]) -> list[str]:
    pairs, levels = found["request_level"], found["workload_level"]
    within = found["within_noise"]
    covered = [name for name, is_within in (within or {}).items() if is_within]
    return [f"{found['n']:,}", _percent(pairs["mape"]), _percent(pairs["median_ape"]), _percent(pairs["bias"], "+"),
            "-" if pairs["pearson_r"] is None else f"{pairs['pearson_r']:.4f}", pairs["quality"] or "-",
            _percent(_share(levels["mean"]["percent"]), "+"), _percent(_share(levels["p99"]["percent"]), "+"),
            f"{found['ks']:.3f}", "-" if found["wasserstein_over_mean"] is None else
            f"{found['wasserstein_over_mean']:.3f}", "-" if within is None else f"{len(covered)} of {len(within)}"]


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / PER_CENT


def _percent(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{PER_CENT * value:{sign}.1f} %"


def _number(value: Any) -> str:
    return "-" if not isinstance(value, (int, float)) else f"{value:,.6g}" if abs(value) < 1e5 else f"{value:,.0f}"


def _table(rows: Iterable[list[str]]) -> str:
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                               for i, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
                     for row in rows)
