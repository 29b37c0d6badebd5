"""The keys of summary.json: unit and meaning of each, for documents and for tests.

A path names the way to a value. `NAME` is a placeholder for a name of the experiment's, `[]` for an item of a list; a
path that ends in `*` covers all facts that a latency backend reports about itself. A distribution is a table
with `STATISTICS`; where nothing was measured each is null.
"""
import re
from collections.abc import Iterable, Iterator
from functools import cache

from simulator import registry
from simulator.domain.columns import Column
from simulator.errors import nearest

STATISTICS = ("mean", "std", "min", "p50", "p90", "p95", "p99", "max")
DISTRIBUTION = "distribution: "         # beginning of the text of a distribution
EXAMPLES = ("ttft_ms.p99", "tpot_ms.mean", "request_throughput")       # of numbers
WORDS = ("name", "complete", "verdict", "unserved", "diagnosis")        # values at the top that are not numbers


def keys_of(unit: str = "", /, **given: str) -> dict[str, Column]:
    """Return keys of one unit; `__` in a name is replaced by a point."""
    return {name.replace("__", "."): Column(unit, text) for name, text in given.items()}


def below(prefix: str, keys: dict[str, Column]) -> dict[str, Column]:
    """Return keys of a table of the summary."""
    return {f"{prefix}.{name}": column for name, column in keys.items()}


_COUNTS = keys_of(
    injected="requests that arrived", completed="requests with all their tokens",
    rejected="refused by the admission policy or the gateway queue", dropped="given up by the engine",
    timed_out="given up by their clients", failed="streamed and lost, or with a grammar that did not compile",
    waiting="waiting at the end of the run", running="running at the end of the run",
    length_capped="completed requests with an output cut by max_model_len")
_RATES = {
    **keys_of("tokens", total_input_tokens="prompt tokens of completed requests; with a measured window, of all "
            "prompts with their first token in it",
            total_output_tokens="output tokens of completed requests; with a window, all generated in it"),
    **keys_of("requests/s", request_throughput="completed requests over duration_s; with a window, all that ended in "
                                             "it, measured or not"),
    **keys_of("tokens/s", output_throughput="total_output_tokens over duration_s",
            total_token_throughput="total_input_tokens and total_output_tokens over duration_s"),
    **keys_of("requests/s", request_goodput="requests of request_throughput that kept every bound of [slo]; "
                                          "null without bounds")}
_ATTAINMENT = keys_of(slo_attainment="share of the injected requests that completed within their bounds; null without "
                                   "bounds")
_LATENCIES = keys_of(
    "ms", ttft_ms=DISTRIBUTION + "arrival to first token, of completed requests with an output token",
    tpot_ms=DISTRIBUTION + "(E2EL - TTFT) / (output tokens - 1), of completed requests of more than one token",
    e2el_ms=DISTRIBUTION + "arrival to last token, of completed requests",
    queue_ms=DISTRIBUTION + "entry into the waiting queue to first scheduled, of completed requests")
_KV_CACHE = {
    **keys_of("blocks", kv_cache__num_blocks="KV blocks, null blocks not counted",
            kv_cache__peak_used_blocks="the most in use; of several replicas the sum of their peaks"),
    **keys_of(kv_cache__mean_usage="share of the blocks in use, mean over the time in which iterations ran; of several "
            "replicas the sum of their means over all blocks; one that runs none counts, as 0, here and in the peak"),
    **keys_of("tokens", prefix_cache__query_tokens="prompt tokens looked up at first admissions",
            prefix_cache__hit_tokens="tokens of query_tokens found in the prefix cache"),
    **keys_of(prefix_cache__hit_rate="hit_tokens / query_tokens")}
_OF_A_LABEL = {
    **below("requests", _COUNTS), **_RATES,
    **_ATTAINMENT,
    **_LATENCIES}
_SHARE = {
    **keys_of("s", up_s="time that the replica was up; within the measured window, as the keys beside it"),
    **keys_of(utilisation="busy time over up_s"),
    **keys_of("requests", mean_waiting="in its waiting queue, mean over up_s",
              peak_waiting="most in its waiting queue"),
    **keys_of(pool="the pool that it belongs to"),
    **keys_of("currency", cost="cost of the replica: the pool's cost_per_hour x time")}
_REPLICA = {
    **keys_of(replica="row in /replicas", requests="sent to it", completed="by it; with a measured "
            "window requests, completed and busy_s are of it", iterations="forward passes",
            preemptions="preemptions of its requests"),
    **keys_of("tokens", prefill_tokens="prompt tokens computed", decode_tokens="tokens generated after the first"),
    **keys_of("s", busy_s="time during which iterations ran"), **_KV_CACHE, **_SHARE}
COSTS = keys_of("currency", cost_per_hour="of the whole pool or type", cost="over the run")
_POOL = {**keys_of(replicas="of the pool", requests="sent to it", completed="completed by it"),
         **keys_of("s", up_s="of all its replicas"), **keys_of(utilisation="busy time over up_s"), **COSTS,
         **keys_of(not_completed="measured requests that ended there without being complete"),
         **keys_of(slo_attainment="share of its measured requests that completed within their bounds; null without "
                   "bounds"), **_LATENCIES}

SUMMARY: dict[str, Column] = {
    **keys_of(schema="version of this layout", name="of the experiment", seed="of the experiment",
            complete="false: the run was interrupted, or could not go on"),
    **below("requests", {**_COUNTS, **keys_of(not_sent="that never came; where requests wait for others",
                                             pool_capped="completed, cut where the KV pool ends; some engines")}),
    **keys_of(by_cause__NAME__NAME="requests that were not completed, by status and cause"),
    **keys_of(unserved="why fewer than half of the measured requests were served, or that none arrived; else null"),
    **keys_of("s", duration_s="from 0 to the last completion; with [workload.measure], of the measured window",
            clock_s="simulated time at the end"),
    **_RATES, **_ATTAINMENT,
    **keys_of("requests/s", offered_throughput="requests that arrived, (n - 1) / (last arrival - first)"),
    **keys_of(verdict="stable, growing or overloaded: does the backlog grow; too short to tell: it does, in a run less "
            "than five times as long as its first requests stayed, fewer than 40 requests came, or none is complete; "
            "unserved: fewer than half of the requests were served, and the load does not say why"),
    **keys_of("requests", in_system__mean="requests in the system at an arrival, mean",
            in_system__peak="most in the system at an arrival"),
    **keys_of("requests/s", in_system__growth_per_s="slope of the regression of in_system; null: too few"),
    **keys_of(served_share="completions over arrivals while requests arrived"),
    **_LATENCIES,
    **keys_of("ms", itl_ms=DISTRIBUTION + "gaps between tokens that follow each other, of all requests, by gap",
            ttfat_ms=DISTRIBUTION + "arrival to the first token behind the reasoning"),
    **keys_of(deadlines__given="requests with a deadline", deadlines__missed="not completed by their deadline"),
    **keys_of("tokens", encoder__item_tokens="of images of scheduled requests",
            encoder__encoded_tokens="computed ones of item_tokens"),
    **keys_of(not_completed__requests="arrived and not completed", not_completed__streamed="with a first token",
            not_completed__in_itl="with a second token, so with gaps in itl_ms"),
    **keys_of("tokens", not_completed__output_tokens="output tokens of uncompleted requests"),
    **keys_of("ms", not_completed__ttft_ms=DISTRIBUTION + "of those with a first token",
            not_completed__queue_ms=DISTRIBUTION + "of those that were scheduled",
            gateway_ms=DISTRIBUTION + "admitted to dispatched; of a cluster",
            downtime_ms=DISTRIBUTION + "without progress, for failures and migrations"),
    **keys_of(retries="times that requests were sent elsewhere after a failure",
            migrations="times that requests moved without a failure",
            iterations="forward passes of all replicas", preemptions="times that a request lost its place",
            kv_allocation_failures="times that a request that ran asked for KV blocks in vain, and one was preempted; "
                                   "under blis, as BLIS counts: for the last token of one that ends",
            preemptions_by_cause__places="for places of waiting requests",
            preemptions_by_cause__blocks="since KV blocks ran out"),
    **_KV_CACHE,
    **{f"by_{label}.NAME.{name}": column for label in ("slo_class", "tenant", "model")
       for name, column in _OF_A_LABEL.items()},
    **keys_of(fairness="Jain's index of the output tokens of tenants; null: no tenants"),
    **below("by_pool.NAME", _POOL), **below("cost_by_node.NAME", COSTS),
    **below("replicas[]", _REPLICA),
    **below("replicas[].ranks[]", {**keys_of(rank="data-parallel rank"), **_REPLICA}),
    "latency.*": Column("", "the latency backend's report about itself: files with version and SHA-256, measured "
                               "ranges, predictions inside and outside them"),
    **keys_of(diagnosis="remarks on the numbers for the reader"),
    **keys_of(fitness__total="by [fitness], one number to compare runs by", fitness__parts__NAME__weight="as given",
            fitness__parts__NAME__value="0 to 1"),
    **below("uncertainty", {
        **keys_of(interval_frac="share of replications that an interval holds", replications="runs"),
        **below("metrics.NAME", keys_of(low="end of the interval", high="end of the interval",
                                       nominal="of the run itself")),
        "*": Column("", "by operator: its error, its share of the time and of the variance, its tables")}),
}


def all_keys() -> dict[str, Column]:
    """Return the keys of `SUMMARY`, and those of parts."""
    return SUMMARY | {key: column for part in registry.parts() for key, column in part.summary_keys.items()}


def described(path: str) -> Column | None:
    """Return the description of a value of summary.json; None: there is none.

    Parameters
    ----------
    path : keys of the value joined by points, `[]` behind the key of a list.
    """
    return next((column for known, column in all_keys().items()
                 if _stands_for(known.split("."), path.split("."))), None)


def _stands_for(known: list[str], path: list[str]) -> bool:
    if known[-1] == "*":
        return len(path) >= len(known) and _stands_for(known[:-1], path[:len(known) - 1])
    return len(known) == len(path) and all(a in (b, "NAME") for a, b in zip(known, path, strict=True))


def check_numbers(keys: Iterable[str], place: str, others: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield a fault for each key that is no number of a summary.

    Parameters
    ----------
    keys : dotted, "ttft_ms.p99".
    place : name of the table in messages.
    others : further known names that are no keys of a summary.
    """
    for key in keys:
        if key not in others and not _numbers().fullmatch(key):
            close = nearest(key, [*number_names(), *others]) or f"; for instance {', '.join(EXAMPLES)}"
            yield f'{place}: summary.json has no number "{key}"{close}'


@cache
def number_names() -> tuple[str, ...]:
    """Return the dotted names of the numbers of summary.json, lists aside.

    `NAME` and `*` are placeholders as in `SUMMARY`.
    """
    names = []
    for path, column in all_keys().items():
        if "[]" not in path and path not in WORDS:
            names += [f"{path}.{each}" for each in STATISTICS] if column.text.startswith(DISTRIBUTION) else [path]
    return tuple(names)


@cache
def _numbers() -> re.Pattern:
    """Return a pattern for names; the user's own names may contain points."""
    escaped = (re.escape(name).replace("NAME", ".+").replace(r"\*", ".+") for name in number_names())
    return re.compile("|".join(escaped))
