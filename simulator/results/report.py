"""The summary table: the most important numbers, in one screen of 80 columns."""
from collections.abc import Iterator
from datetime import date
from textwrap import wrap

from simulator.domain.costs import mean_of
from simulator.registry import FACTS, imported
from simulator.results.verdicts import GROWING, LEAST_REQUESTS, OVERLOADED, TOO_SHORT

LATENCIES = (("TTFT", "ttft_ms"), ("TTFAT", "ttfat_ms"), ("TPOT", "tpot_ms"), ("ITL", "itl_ms"), ("E2EL", "e2el_ms"),
             ("queue", "queue_ms"))
COLUMNS = ("mean", "p50", "p90", "p95", "p99", "max")
OLD_DAYS = 180                  # of a price
COLUMNS_OF_A_SCREEN = 80
ENDLESS_BLOCKS = 2**31 - 2       # of a KV cache in which nothing is kept
INDENT = 13                     # of facts, behind their names
UNFINISHED = ("rejected", "dropped", "timed_out", "failed", "waiting", "running", "not_sent")


def summary_table(summary: dict) -> str:
    """Return the most important numbers of summary.json as lines of text."""
    lines = [f"{summary['name']}, seed {summary['seed']}" + ("" if summary["complete"] else ", INCOMPLETE"), ""]
    lines += [line for label, text in facts(summary) for line in wrapped_fact(label, text)]
    lines += ["", f"{'ms':<8}" + "".join(f" {column:>11}" for column in COLUMNS)]
    lines += [f"{label:<8}" + "".join(f" {milliseconds(summary[key][column]):>11}" for column in COLUMNS)
              for label, key in LATENCIES if key in summary]
    if others := summary["not_completed"]["in_itl"]:
        lines += ["", f"of completed requests; ITL also holds the gaps of {_plural(others, 'other')}"]
    return "\n".join(lines)


def wrapped_fact(label: str, text: str) -> list[str]:
    """Return a fact as lines that fit the screen, if no word is too long."""
    return wrap(text, COLUMNS_OF_A_SCREEN, initial_indent=f"{label:<{INDENT}}", subsequent_indent=" " * INDENT,
                break_long_words=False, break_on_hyphens=False)


def notes(summary: dict) -> list[str]:
    """Return notes for the reader of the results, one sentence each."""
    return list(summary["diagnosis"])


def aged(summary: dict, today: date) -> Iterator[str]:
    """Yield a sentence for each price that is old.

    The sentence depends on the day, so no summary holds it.
    """
    for price in summary.get("cost", {}).get("prices", ()):
        days = (today - date.fromisoformat(price["date"])).days
        if days > OLD_DAYS:
            yield (f"prices.{price['accelerator']}: {mean_of(price['per_gpu_hour']):g} an hour is {days} days old "
                   f"({price['date']}, {price['source']})")


def facts(summary: dict) -> list[tuple[str, str]]:
    """Return all facts except latencies: name and text of each."""
    requests, cache, prefix = summary["requests"], summary["kv_cache"], summary["prefix_cache"]
    counts = [f"{requests['completed']:,} of {requests['injected']:,} completed"]
    counts += [f"{requests[name]:,} {name.replace('_', ' ')}" for name in UNFINISHED if requests.get(name)]
    counts += [f"{requests['length_capped']:,} cut at max_model_len"] if requests["length_capped"] else []
    counts += [f"{requests['pool_capped']:,} cut by the KV pool"] if requests.get("pool_capped") else []
    found = [
        *([("unserved", summary["unserved"])] if summary.get("unserved") else []),
        ("requests", ", ".join(counts)),
        ("duration", f"{summary['duration_s']:,.3f} s, {_plural(summary['iterations'], 'iteration')}, "
                     f"{_plural(summary['preemptions'], 'preemption')}"),
        ("throughput", f"{summary['request_throughput']:,.2f} requests/s, "
                       f"{summary['output_throughput']:,.1f} output tokens/s, "
                       f"{summary['total_token_throughput']:,.1f} tokens/s"),
        ("load", _load(summary))]
    if summary["request_goodput"] is not None:
        found.append(("goodput", f"{summary['request_goodput']:,.2f} requests/s"))
    if due := summary.get("deadlines"):
        found.append(("deadlines", f"{due['missed']:,} of {due['given']:,} missed"))
    peak = cache["peak_used_blocks"] / cache["num_blocks"] if cache["num_blocks"] else 0.0
    used = (f"{_plural(cache['num_blocks'], 'block')}, {cache['mean_usage']:.1%} used on average, {peak:.1%} at the "
            "peak")
    found.append(("KV cache", used if cache["num_blocks"] < ENDLESS_BLOCKS else "none: nothing is kept of a text"))
    if prefix["query_tokens"]:
        found.append(("prefix cache", f"{prefix['hit_rate']:.1%} of {prefix['query_tokens']:,} prompt tokens found"))
    if images := summary.get("encoder"):
        found.append(("encoder", f"{images['encoded_tokens']:,} embeddings computed of {images['item_tokens']:,} that "
                                 "prompts have"))
    for key, (label, target) in FACTS.items():
        if value := summary.get(key):
            found.append((label, imported(target)(value)))
    return found


def _load(summary: dict) -> str:
    """Return the offered load, and the verdict on the backlog."""
    offered, growth = summary["offered_throughput"], summary["in_system"]["growth_per_s"]
    verdict, came = summary["verdict"], summary["requests"]["injected"]
    if verdict in (GROWING, OVERLOADED) and growth is not None and growth > 0:
        verdict += f", {growth:,.2f} more requests in the system each second"
    if verdict == TOO_SHORT and came < LEAST_REQUESTS:
        verdict += f", {LEAST_REQUESTS} requests would do"
    if offered is None:
        return f"all at once: {verdict}" if came > 1 else verdict
    return f"{offered:,.2f} requests/s offered: {verdict}"


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def milliseconds(value: float | None) -> str:
    """Return a latency as in the table, in 11 characters at most."""
    if value is None:
        return "-"
    return f"{value:,.2f}" if value < 999_999.995 else f"{value:,.0f}" if value < 999_999_999.5 else f"{value:.4e}"
