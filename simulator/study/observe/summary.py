"""Summary of a measurement: counts, latencies, and a verdict on whether it measures the server."""
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from simulator.results.distributions import distribution
from simulator.results.report import COLUMNS, milliseconds
from simulator.study.observe.answer import OK
from simulator.study.observe.self_test import lag_ns
from simulator.study.observe.sender import Seen

# A p99 of the lag above this measures the client: 2 ms, or a fiftieth of the median TTFT where that is
# more.
LAG_MS, LAG_SHARE = 2.0, 0.02
FAILED_SHARE, SHORT_SHARE = 0.05, 0.01      # shares above which another load was measured than the planned one
LATENCIES = (("TTFT", "ttft_ms"), ("  planned", "ttft_from_planned_ms"), ("TPOT", "tpot_ms"), ("ITL", "itl_ms"),
             ("E2EL", "e2el_ms"), ("  planned", "e2el_from_planned_ms"), ("lag", "lag_ms"),
             ("queue", "client_queue_ms"))


class Measured(NamedTuple):
    """The data of a measurement.

    seen : requests that have ended, warm-ups left out. unsent : number never sent. asked : int64 (n,), output tokens by
    row. is_complete : neither a signal nor the end of the load cut it. streams : answers are streamed token by token.
    """

    seen: list[Seen]
    unsent: int
    asked: np.ndarray
    is_complete: bool
    streams: bool


def summary_of(measured: Measured) -> dict:
    """Return the numbers, ready for JSON."""
    seen, good = measured.seen, [each for each in measured.seen if each.answer.status == OK]
    sent = [each for each in seen if each.answer.sent_ns is not None]
    samples = _samples(good) | {"lag_ms": [lag_ns(each) for each in sent],
                                "client_queue_ms": [each.free_ns - each.planned_ns for each in sent]}
    latencies = {name: distribution(np.array(values, np.float64) / 1e6) for name, values in samples.items()}
    span_s = _span_s(sent)
    outputs = [each.answer.output_tokens for each in good]
    inputs = [each.answer.input_tokens for each in good]
    counts = {"sent": len(sent), "ok": len(good), "not_sent": measured.unsent,
              "failed": dict(sorted(Counter(each.answer.status for each in seen if each.answer.status != OK).items()))}
    return {
        "complete": measured.is_complete, "requests": counts, "duration_s": span_s,
        "request_throughput": _rate(len(good), span_s), "output_throughput": _total_rate(outputs, span_s),
        "input_throughput": _total_rate(inputs, span_s), "messages": sum(len(each.answer.tokens) for each in seen),
        "batched": sum(sum(each.answer.batched) for each in seen),
        "peak_messages_per_s": _peak(seen), **latencies, "verdict": _verdict(measured, good, latencies)}


def _samples(good: list[Seen]) -> dict[str, list[float]]:
    """Return latencies in ns, of successful requests."""
    streamed = [each for each in good if each.answer.times_ns]
    return {
        "ttft_ms": [each.answer.first_token_ns - each.answer.sent_ns for each in streamed],
        "ttft_from_planned_ms": [each.answer.first_token_ns - each.planned_ns for each in streamed],
        "tpot_ms": [(each.answer.last_token_ns - each.answer.first_token_ns) / (each.answer.output_tokens - 1)
                    for each in streamed if (each.answer.output_tokens or 0) > 1],
        "itl_ms": np.concatenate([np.diff(each.answer.times_ns) for each in streamed] or [np.empty(0)]),
        "e2el_ms": [each.answer.last_token_ns - each.answer.sent_ns for each in good],
        "e2el_from_planned_ms": [each.answer.last_token_ns - each.planned_ns for each in good]}


def _verdict(measured: Measured, good: list[Seen], latencies: dict[str, dict]) -> dict:
    """Return whether the measurement is valid for the server, with the deciding numbers."""
    ended = measured.unsent + sum(each.answer.status != "interrupted" for each in measured.seen)
    counted = [each for each in good if each.answer.output_tokens is not None]
    short = [each for each in counted if each.answer.output_tokens < measured.asked[each.row]]
    first = "ttft_ms" if measured.streams else "e2el_ms"
    allowed_ms = max(LAG_MS, LAG_SHARE * (latencies[first]["p50"] or 0.0))
    lag_p99_ms = latencies["lag_ms"]["p99"]
    failed_frac = (ended - len(good)) / ended if ended else 0.0
    short_frac = len(short) / len(counted) if counted else 0.0
    verdict = {
        "client_bound": lag_p99_ms is not None and lag_p99_ms > allowed_ms, "lag_p99_ms": lag_p99_ms,
        "lag_allowed_ms": allowed_ms, "failed_frac": failed_frac, "too_many_failed": failed_frac > FAILED_SHARE,
        "short_frac": short_frac, "too_many_short": short_frac > SHORT_SHARE,
        "untold_outputs": len(good) - len(counted)}
    bad = [name for name in ("client_bound", "too_many_failed", "too_many_short") if verdict[name]]
    return verdict | {"usable": not bad}


def warnings_of(summary: dict, self_test: dict | None) -> list[str]:
    """Return warnings for the reader, a sentence each."""
    verdict, found = summary["verdict"], []
    if verdict["client_bound"]:
        found.append(f"client-bound: p99 of the lag is {verdict['lag_p99_ms']:,.2f} ms, more than "
                     f"{verdict['lag_allowed_ms']:,.2f} ms: this client is measured, not the server. A machine that "
                     "does nothing else helps, and --processes where no request waits for others")
    if verdict["too_many_failed"]:
        found.append(f"{verdict['failed_frac']:.1%} of the requests failed, more than {FAILED_SHARE:.0%}: what is left "
                     "is another load than was planned")
    if verdict["too_many_short"]:
        found.append(f"{verdict['short_frac']:.1%} of the answers have fewer tokens than asked for, more than "
                     f"{SHORT_SHARE:.0%}: does the server heed min_tokens and ignore_eos?")
    if verdict["untold_outputs"]:
        found.append(f"the server does not tell the tokens of {verdict['untold_outputs']:,} answers (usage): TPOT and "
                     "output_tokens lack them")
    most = self_test and self_test.get("messages_per_s")
    if most and summary["peak_messages_per_s"] > most:
        found.append(f"{summary['peak_messages_per_s']:,} messages came in one second; on loopback this client takes "
                     f"{most:,.0f}: --processes lets several read")
    return found


def summary_table(title: str, summary: dict) -> str:
    """Return the most important numbers as lines of text, as `run` has them."""
    requests, batched = summary["requests"], summary["batched"]
    failed = [f"{count:,} {status}" for status, count in requests["failed"].items()]
    failed += [f"{requests['not_sent']:,} not sent"] if requests["not_sent"] else []
    facts = [("requests", ", ".join([f"{requests['ok']:,} of {requests['sent']:,} sent are ok", *failed])),
             ("duration", f"{summary['duration_s']:,.3f} s"),
             ("throughput", f"{summary['request_throughput']:,.2f} requests/s" + "".join(
                 f", {summary[key]:,.1f} {name} tokens/s" for key, name in (
                     ("output_throughput", "output"), ("input_throughput", "prompt")) if summary[key] is not None)),
             ("messages", f"{summary['messages']:,}, {batched:,} of them in one read with the one before"),
             ("verdict", _words(summary["verdict"]))]
    lines = [title + ("" if summary["complete"] else ", INCOMPLETE"), ""]
    lines += [f"{label:<13}{text}" for label, text in facts]
    lines += ["", f"{'ms':<9}" + "".join(f" {column:>11}" for column in COLUMNS)]
    lines += [f"{label:<9}" + "".join(f" {milliseconds(summary[key][column]):>11}" for column in COLUMNS)
              for label, key in LATENCIES if summary[key]["mean"] is not None]
    legend = "of answers that are ok, from when they were sent; planned: from when they should have been"
    return "\n".join([*lines, "", legend])


def _words(verdict: dict) -> str:
    bad = [text for key, text in (("client_bound", "client-bound"), ("too_many_failed", "too many failed"),
                                  ("too_many_short", "too many short answers")) if verdict[key]]
    if verdict["lag_p99_ms"] is None:
        return "nothing was sent"
    return ", ".join(bad) or "the client kept pace"


def _span_s(sent: list[Seen]) -> float:
    """Return the time from the first request sent to the last end, in s."""
    if not sent:
        return 0.0
    return (max(each.answer.end_ns for each in sent) - min(each.answer.sent_ns for each in sent)) / 1e9


def _peak(seen: list[Seen]) -> int:
    """Return the most messages that were read in one whole second of the clock."""
    seconds = [np.frombuffer(each.answer.times_ns, np.int64) // 1_000_000_000 for each in seen if each.answer.times_ns]
    return int(np.unique(np.concatenate(seconds), return_counts=True)[1].max()) if seconds else 0


def _total_rate(counts: Iterable[int | None], span_s: float) -> float | None:
    known = [count for count in counts if count is not None]
    return _rate(sum(known), span_s) if known else None


def _rate(count: int, span_s: float) -> float:
    return count / span_s if span_s else 0.0
