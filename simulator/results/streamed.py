"""The summary of requests that are given up when they have ended: sums, and sketches of the latencies.

Numbers and definitions are those of `metrics`. Counts and sums are exact; percentiles have the error of
`quantile_sketch`, and batch means of long runs that of `streamed_load`.
"""
from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
from msgspec.structs import replace

from simulator.core.quantile_sketch import QuantileSketch
from simulator.core.weighted_samples import WeightedSamples
from simulator.domain import records
from simulator.domain.run import Run
from simulator.results import cluster, metrics
from simulator.results.cut import cut_notes
from simulator.results.distributions import sketched_distribution
from simulator.results.finish import cut_short
from simulator.results.journeys import journeys_of
from simulator.results.rates import per_second
from simulator.results.served import NAMES, counts_by_limit, is_too_few, limit_texts
from simulator.results.slo import LEAST_TOKENS, MEASURES, verdicts_of
from simulator.results.streamed_load import LoadSums, QueueSums
from simulator.results.verdicts import OVERLOADED, TOO_SHORT, UNSERVED
from simulator.workload.base import Workload

PS_PER_MS, NS_PER_MS = 1e9, 1e6
REFUSED = (records.REJECTED, records.DROPPED)
UNITS = {key: PS_PER_MS if key == "tpot_ms" else NS_PER_MS for key in MEASURES}      # of the sketches


class StreamedTotals:
    """Sums of the requests of a run, as `workload.chunks.Taker`.

    Parameters
    ----------
    bounds : object with `ttft_ms`, `tpot_ms`, `e2el_ms`, each a float or None.
    num_requests : of the whole run.
    num_replicas : of the cluster.

    Attributes
    ----------
    keep : called with the requests of each chunk that have come; None: they are summed up alone.
    limits : returns why each replica turns requests away, as in `domain.run.Run`; set before the run.
    """

    keep: Callable[[Workload], None] | None = None
    limits: Callable[[], list]

    def __init__(self, bounds, num_requests: int, num_replicas: int):
        self._bounds, self._num_requests = bounds, num_requests
        self._replicas = np.zeros(num_replicas, records.REPLICA)
        self._counts = np.zeros(len(records.STATUS_NAMES), np.int64)
        self._sums: Counter[str] = Counter()
        self._causes: dict[str, Counter[str]] = {}
        self._refused = {status: (Counter(), {}) for status in REFUSED}         # as `counts_by_limit`
        self._is_asked, self._num_asked, self._first_cut = False, 0, None
        self._last_completed_ns = 0
        self._latencies = {key: QuantileSketch() for key in MEASURES}
        self._others = {key: QuantileSketch() for key in ("ttft_ms", "queue_ms")}       # of requests not completed
        self._gaps, self._gateway = QuantileSketch(), QuantileSketch()
        self._load, self._queues = LoadSums(), QueueSums(num_replicas)

    def take_gaps(self, gaps: WeightedSamples) -> None:
        """Take gaps between tokens."""
        self._gaps.observe(*gaps.drain())

    def take(self, part: Workload) -> None:
        """Take the next requests, in order of their rows."""
        came = records.has_come(part.requests["status"])
        if not came.all():                      # in a run that was stopped
            part = replace(part, requests=part.requests[came], demands=part.demands[came],
                           outcomes=part.outcomes[came], request_ids=part.request_ids[came])
        requests = part.requests
        if not len(requests):
            return
        if self.keep is not None:
            self.keep(part)
        self._counts += np.bincount(requests["status"], minlength=len(self._counts))
        self._take_verdicts(part)
        self._take_ends(part)
        is_complete = requests["status"] == records.COMPLETED
        completed, others = requests[is_complete], requests[~is_complete]
        for key, sketch in self._latencies.items():
            sketch.observe(samples(key, completed[completed["output_tokens"] >= LEAST_TOKENS.get(key, 0)]))
        self._sums.update({name: int(completed[name].sum(dtype=np.int64)) for name in (
            "prompt_tokens", "output_tokens")})
        self._last_completed_ns = max(self._last_completed_ns, int(completed["completed_ns"].max(initial=0)))
        self._take_others(others)
        if len(self._replicas) > 1:             # they go to their replicas at once
            self._gateway.observe(np.zeros(int((requests["replica"] >= 0).sum()), np.int64))
        self._load.take(requests)
        self._queues.take(requests)

    def _take_verdicts(self, part: Workload) -> None:
        verdicts = verdicts_of(self._run(part), self._bounds)
        self._is_asked, self._num_asked = verdicts.is_asked, self._num_asked + int(verdicts.asked.sum())
        self._sums["good"] += int(verdicts.good.sum())

    def _take_ends(self, part: Workload) -> None:
        """Count outputs that were cut, and causes of requests that were not served."""
        cut = cut_short(part)
        if len(cut) and self._first_cut is None:
            self._first_cut = int(part.request_ids[cut[0]])
        self._sums["cut"] += len(cut)
        for status, causes in cluster.by_cause(part.requests, journeys_of(self._run(part))).items():
            self._causes.setdefault(status, Counter()).update(causes)
        for status in REFUSED if np.isin(part.requests["status"], REFUSED).any() else ():
            self._take_refused(self._run(part, self.limits()), status)

    def _take_refused(self, run: Run, status: int) -> None:
        """Count requests that replicas refused, by the limit of each."""
        counts, longest, count = counts_by_limit(run, status)
        known, known_longest = self._refused[status]
        known.update(counts)
        known_longest |= {words: max(tokens, known_longest.get(words, 0)) for words, tokens in longest.items()}
        self._sums[f"refused {status}"] += count

    def _take_others(self, others: np.ndarray) -> None:
        streamed = others[(others["first_token_ns"] >= 0) & (others["output_tokens"] > 0)]
        self._sums.update({"streamed": len(streamed), "in_itl": int((others["output_tokens"] > 1).sum()),
                           "lost_tokens": int(others["output_tokens"].sum(dtype=np.int64))})
        self._others["ttft_ms"].observe(samples("ttft_ms", streamed))
        self._others["queue_ms"].observe(samples("queue_ms", others[others["scheduled_ns"] >= 0]))

    def _run(self, part: Workload, limits: Iterable = ()) -> Run:
        return Run(workload=part, complete=True, clock_ns=0, replicas=self._replicas, itl_ns=None, limits=limits)

    # ---- the numbers

    def summary(self, run: Run) -> dict:
        """Return the numbers of `metrics.summarise`; all requests were taken."""
        completed = int(self._counts[records.COMPLETED])
        has_bounds = self._num_asked > 0 if self._counts.sum() else self._is_asked
        good, duration_s = self._sums["good"] if has_bounds else None, self._last_completed_ns / 1e9
        lost = self._unserved(run)
        queues = self._queues.of_all(int(run.clock_ns))
        load = self._load.summary()
        load["verdict"] = self._verdict(load["verdict"])
        rates = per_second(duration_s, completed, self._sums["prompt_tokens"], self._sums["output_tokens"], good)
        return {
            "complete": bool(run.complete),
            "requests": self._by_status() | self._not_sent(run),
            "by_cause": {name: dict(self._causes[name]) for name in NAMES if name in self._causes},
            "unserved": lost,
            "duration_s": duration_s,
            "clock_s": int(run.clock_ns) / 1e9,
            **rates,
            "slo_attainment": None if good is None or not self._counts.sum() else good / int(self._counts.sum()),
            **load,
            **{key: sketched_distribution(sketch, UNITS[key]) for key, sketch in self._latencies.items()},
            "itl_ms": sketched_distribution(self._gaps, NS_PER_MS),
            "not_completed": self._not_completed(),
            **self._of_gateway(),
            "iterations": int(run.replicas["iterations"].sum()),
            **metrics.preemptions(run),
            "kv_cache": metrics.kv_cache(run.replicas),
            "prefix_cache": metrics.prefix_cache(run.replicas),
            **{f"by_{each}": {} for each in metrics.LABELS},
            "fairness": None,
            "by_pool": {},
            "cost_by_node": {},
            "replicas": metrics.described_replicas(run, cluster.replica_shares(run, (), queues)),
            "latency": dict(run.latency),
            "diagnosis": [*([lost] if lost else self._turned_away()), *cut_notes(run, self._all_counts(run)),
                          *run.diagnosis, *self._remarks()],
        }

    def _all_counts(self, run: Run) -> np.ndarray:
        """Return the number of requests by status, with those that were not drawn yet."""
        counts = self._counts.copy()
        counts[records.NOT_SENT] = run.workload.chunks.num_not_sent
        counts[records.PENDING] = self._num_requests - counts.sum()
        return counts

    def _not_sent(self, run: Run) -> dict[str, int]:
        """Return the number of requests that no slot sent, where that can be."""
        chunks = run.workload.chunks
        return {} if chunks.loop is None else {"not_sent": chunks.num_not_sent}

    def _by_status(self) -> dict[str, int]:
        by_name = dict(zip(records.STATUS_NAMES, self._counts.tolist(), strict=True))
        return {"injected": int(self._counts.sum()), **{name: by_name[name] for name in metrics.COUNTED},
                "length_capped": self._sums["cut"]}

    def _verdict(self, verdict: str) -> str:
        if not self._counts.sum():
            verdict = TOO_SHORT
        return UNSERVED if is_too_few(*self._served(), nothing=verdict == OVERLOADED) else verdict

    def _served(self) -> tuple[int, int]:
        return int(self._counts[records.COMPLETED]), int(self._counts.sum() - self._counts[records.RUNNING])

    def _unserved(self, run: Run) -> str | None:
        came, (completed, over) = int(self._counts.sum()), self._served()
        if not came:
            return f"no request came before the run ended, after {run.clock_ns / 1e9:g} s"
        if not is_too_few(completed, over):
            return None
        served = "none was" if not completed else f"{completed:,} {'were' if completed > 1 else 'was'}"
        waiting = int(self._counts[records.WAITING])
        why = [*self._ends(), *([f"{waiting:,} still waited at the end of the run"] if waiting else [])]
        return f"of {came:,} request{'s' * (came > 1)} {served} served: {'; '.join(why)}"

    def _turned_away(self) -> list[str]:
        why = [text for status in REFUSED for text in limit_texts(status, *self._refused[status])]
        return [f"of {int(self._counts.sum()):,} requests some were not served: {'; '.join(why)}"] if why else []

    def _ends(self) -> list[str]:
        found = []
        for name, words in NAMES.items():
            status = records.STATUS_NAMES.index(name)
            count = int(self._counts[status])
            if status in REFUSED:
                own = limit_texts(status, *self._refused[status])
                found, count = found + own, count - self._sums[f"refused {status}"] * bool(own)
            found += [f"{count:,} {words}"] if count else []
        return found

    def _not_completed(self) -> dict:
        return {
            "requests": int(self._counts.sum() - self._counts[records.COMPLETED]),
            "streamed": self._sums["streamed"],
            "in_itl": self._sums["in_itl"],
            "output_tokens": self._sums["lost_tokens"],
            **{key: sketched_distribution(sketch, NS_PER_MS) for key, sketch in self._others.items()},
        }

    def _of_gateway(self) -> dict:
        if len(self._replicas) < 2:
            return {}
        return {"gateway_ms": sketched_distribution(self._gateway, NS_PER_MS),
                "downtime_ms": sketched_distribution(QuantileSketch(), NS_PER_MS), "retries": 0, "migrations": 0}

    def _remarks(self) -> list[str]:
        return [metrics.cut_remark(self._sums["cut"], self._first_cut)] if self._sums["cut"] else []


def samples(key: str, requests: np.ndarray) -> np.ndarray:
    """Return a latency of requests that have it, int64, in its unit of `UNITS`."""
    begin, end = {"ttft_ms": ("arrival_ns", "first_token_ns"), "tpot_ms": ("first_token_ns", "completed_ns"),
                  "e2el_ms": ("arrival_ns", "completed_ns"), "queue_ms": ("enqueued_ns", "scheduled_ns")}[key]
    spans_ns = requests[end] - requests[begin]
    if key != "tpot_ms":
        return spans_ns
    return np.rint(spans_ns / (requests["output_tokens"] - 1) * (PS_PER_MS / NS_PER_MS)).astype(np.int64)
