"""Recorded runs of SGLang's scheduler: which of them the engine can run, how, and where the two differ first.

A case is a scenario `CASE.json` with its log `CASE.log.json[.gz]` beside it, in any folder whose name begins
with `sglang`, or below it.
"""
from dataclasses import dataclass
from itertools import zip_longest

from simulator.engine.build import build
from simulator.engine.output.recorder import Recorder
from simulator.engine.plan import Hooks
from simulator.latency.linear import Linear
from simulator.scheduling.sglang import Sglang
from simulator.scheduling.sglang_arguments import SglangParameters
from support import engine
from support.goldens import GOLDENS, log_path
from support.scenario import nanoseconds, prices_of, workload_of
from support.step_log import StepLog

# What the recorder assumed for options that a scenario leaves out
DEFAULTS = {"max_total_tokens": 4096, "max_running_requests": 64, "context_length": 8192, "chunked_prefill_size": 2048,
            "page_size": 1, "disable_overlap_schedule": True}
NOT_OURS = {"max_total_tokens", "context_length", "page_size", "disable_radix_cache"}
IGNORING = "ignores its end token"          # an SLO class


def case_paths():
    """Return the scenario files of each folder: its own first, then those of its sub-folders."""
    found = []
    for folder in sorted(GOLDENS.glob("sglang*/")):
        paths = (path for path in folder.rglob("*.json") if not path.name.endswith(".log.json") and log_path(path))
        found += sorted(paths, key=lambda path: (path.parent != folder, str(path)))
    return found


def options_of(description):
    """Return the options of a scenario, those left out as the recorder had them."""
    return DEFAULTS | {key: value for key, value in description["options"].items() if value is not None}


def missing(description):
    """Return what a scenario needs that the engine does not have, or None."""
    options, requests = options_of(description), description["requests"]
    if options.get("enable_priority_scheduling") and any(request.get("priority") is None for request in requests):
        return "requests with and without a priority, of which nothing was recorded"
    return None


def unsettled(log, description):
    """Return what a log shows that SGLang leaves to chance, or its recorder, or None."""
    order = [request["id"] for request in sorted(description["requests"], key=lambda request: request["arrival"])]
    lasts = {request["id"] for request in description["requests"] if request.get("stop_at")}
    for step in log["steps"]:
        places = [order.index(name) for name in step["waiting"] if name in step["preempted"]]
        if places != sorted(places):
            return "the order of several requests put back for one, which is arbitrary upstream"
    if lasts & _cut_short(log, lengths(description["requests"])):
        return "an end token of a prompt that was cut twice, which the recorder counts from the end of its whole text"
    return None


def _cut_short(log, lengths):
    """Return the requests that decode though a part of their prompt was never computed."""
    found, computed = set(), {}
    for step in log["steps"]:
        for name in step["decode"]:
            if computed.get(name, lengths[name]) < lengths[name]:
                found.add(name)
        for name, prefix, tokens in step["prefill"]:
            computed[name] = prefix + tokens
    return found


def lengths(requests):
    """Return the tokens of each prompt, by id."""
    found = {}
    for request in requests:
        found[request["id"]] = sum(found[piece[1]] if piece[0] == "prompt" else piece[-1]
                                   for piece in request["prompt"])
    return found


def parameters_of(options):
    """Return the parameters of a scenario's options."""
    given = {key: value for key, value in options.items() if key not in NOT_OURS} | {"upstream_compat": True}
    if not given.get("enable_priority_scheduling"):
        for key in ("disable_priority_preemption", "schedule_low_priority_values_first", "retraction_policy",
                    "priority_scheduling_preemption_threshold"):
            given.pop(key, None)
    return SglangParameters(**given, ignore_eos=(IGNORING,))


@dataclass
class Case:
    """A scenario in the engine's terms: its Workload, the plan of one replica, ids by row."""

    workload: object
    plan: object
    ids: list


def load(description, fast_forward=True):
    """Return the `Case` of a scenario."""
    options = options_of(description)
    requests = sorted(description["requests"], key=lambda request: nanoseconds(request.get("arrival", 0.0)))
    said = [{key: value for key, value in request.items() if key != "stop_at" or not request.get("ignore_eos")}
            | {"max_tokens": request.get("max_new_tokens", request["output_len"])} for request in requests]
    workload = workload_of(said, ())
    workload.labels["slo_class"] = [IGNORING]
    workload.demands["slo_class"] = [0 if request.get("ignore_eos") else -1 for request in requests]
    plan = engine.plan_of(
        parameters_of(options), Linear(prices_of(description | {"step_time": {"per_token": 0.0, "per_req": 0.0, **(
            description.get("step_time") or {"base": 1.0})}})),
        scheduler=Sglang, num_gpu_blocks=options["max_total_tokens"] // options["page_size"],
        block_size=options["page_size"], max_model_len=options["context_length"],
        enable_prefix_caching=not options.get("disable_radix_cache"), fast_forward=fast_forward)
    return Case(workload, plan, [request["id"] for request in requests])


class Log(StepLog):
    """Also how the policy stands, when a batch is chosen and when it has ended."""

    def scheduled(self, replica):
        """See StepLog."""
        before = len(self.steps)
        super().scheduled(replica)
        if len(self.steps) > before:
            self.steps[-1]["policy"] = replica.scheduler.glance()

    def ended(self, replica):
        """See StepLog."""
        step = self._open[replica.index][0]
        replica.check()
        super().ended(replica)
        step["tokens_end"] = replica.scheduler.kv.tokens_free


def run(case, limit):
    """Return the steps of a run, up to `limit` of them, and its requests."""
    log = Log(limit)
    cluster = build(case.workload, case.plan, Hooks(recorder=Recorder(_Nobody()), observer=log))
    try:
        cluster.run()
    except Exception as error:
        if type(error).__name__ != "IterationLimit":
            raise
    return log.steps


class _Nobody:
    """A sink that keeps nothing."""

    def iterations(self, rows):
        """Take rows."""

    def tokens(self, rows):
        """Take rows."""


def entry(step, ids, evicted, aborted):
    """Return a step in the words of the log; `aborted`: ids of those who are refused while they wait."""
    policy, tokens = step["policy"], dict(step["scheduled"])
    name = [ids[row] for row in policy["running"]]
    free, evictable, protected = policy["tokens"]
    found = {"t": step["t_ns"], "tokens": {ids[row]: count for row, count in tokens.items()}, "running": name,
             "hits": {ids[row]: count for row, count in step["hits"].items()},
             "waiting": [ids[row] for row in policy["waiting"]],
             "chunked": None if policy["chunked"] is None else ids[policy["chunked"]],
             "batch_is_full": policy["batch_is_full"], "ratio": policy["ratio"], "free": free, "evictable": evictable,
             "protected": protected, "evicted": policy["evicted"] - evicted,
             "put_back": sorted(ids[row] for row in step["preempted"])}
    if "tokens_end" in step:
        free, evictable, protected = step["tokens_end"]
        found |= {"start": step["begin_ns"], "end": step["begin_ns"] + step["duration_ns"], "free_end": free,
                  "evictable_end": evictable, "protected_end": protected,
                  "finished": sorted({ids[row] for row in step["finished"]} - aborted)}
    return found


def recorded_entry(step):
    """Return a recorded step likewise."""
    tokens = {name: count for name, _, count in step["prefill"]} | dict.fromkeys(step["decode"], 1)
    found = {name: step[name] for name in ("running", "waiting", "chunked", "batch_is_full", "free", "evictable",
                                           "protected", "evicted")}
    found |= {"t": nanoseconds(step["t"]), "tokens": tokens, "ratio": step["ratio"],
              "put_back": sorted(step["retracted"] + step["preempted"])}
    if "start" in step:
        found |= {"start": nanoseconds(step["start"]), "end": nanoseconds(step["end"]),
                  "finished": sorted(step["finished"])}
        found |= {name: step[name] for name in ("free_end", "evictable_end", "protected_end") if name in step}
    return found


def _is_lost(step):
    """Say whether nothing happened but that some left which waited, or one which cannot go on: the log has no step."""
    return not step["preempted"] or (
        len(step["preempted"]) == 1 and step["preempted"][0] not in step["policy"]["waiting"])


def first_difference(log, steps, ids):
    """Return an account of the first difference, or None."""
    recorded = [step for step in log["steps"] if step["mode"] != "none" or step["retracted"] or step["preempted"]]
    steps = [step for step in steps if step["scheduled"] or not _is_lost(step)]
    evicted, aborted = 0, {name for step in log["steps"] for name in step["aborted"]}
    for number, (theirs, ours) in enumerate(zip_longest(recorded, steps)):
        if theirs is None or ours is None:
            return f"{len(recorded)} steps recorded, ours {len(steps)}"
        expected, found = recorded_entry(theirs), entry(ours, ids, evicted, aborted)
        for put_back in (expected["put_back"], found["put_back"]):
            put_back[:] = [name for name in put_back if name not in theirs["aborted"]]
        evicted = ours["policy"]["evicted"]
        for name, value in expected.items():
            if name == "ratio":
                if abs(value - found[name]) > 1e-8:
                    return f"step {number}, ratio: recorded {value}, ours {found[name]}"
            elif name in found and found[name] != value:
                return f"step {number} at {theirs['t']}, {name}: recorded {value}, ours {found[name]}"
        hits = {name: prefix for name, prefix, _ in theirs["prefill"] if name in found["hits"]}
        if found["hits"] != hits:
            return f"step {number}, hits: recorded {hits}, ours {found['hits']}"
    return None


def random_parameters(rng, max_running_requests):
    """Draw SGLang's options."""
    chunk = rng.choice([-1, 16, 64, 8192])
    priorities = rng.random() < 0.4
    preempts = priorities and rng.random() < 0.5
    interval = rng.choice([0, 0, 0, 3])
    return SglangParameters(
        max_running_requests=max_running_requests, max_queued_requests=rng.choice([None, None, None, 4]),
        chunked_prefill_size=chunk, max_prefill_tokens=rng.choice([32, 200, 16384]),
        prefill_max_requests=rng.choice([None, None, 2]), enable_mixed_chunk=chunk > 0 and rng.random() < 0.3,
        schedule_policy=rng.choice(["fcfs", "fcfs", "lpm", "dfs-weight", "lof", "hrrn", "shortest-prefill-first",
                                    "random", "routing-key"]), upstream_compat=rng.random() < 0.5,
        schedule_conservativeness=rng.choice([0.0, 0.1, 0.5, 1.0, 1.5]), enable_priority_scheduling=priorities,
        disable_priority_preemption=priorities and not preempts,
        priority_scheduling_preemption_threshold=0 if preempts else 10,
        schedule_low_priority_values_first=priorities and rng.random() < 0.5,
        retraction_policy=rng.choice(["default", "priority"]) if priorities else "default",
        prefill_decode_interval=interval, prefill_decode_interval_min_bs=rng.choice([0, 2]) if interval else 0,
        radix_eviction_policy=rng.choice(["lru", "lru", "lfu", "fifo", "mru", "filo", "priority", "slru"]),
        disable_overlap_schedule=rng.random() < 0.4, ignore_eos=rng.random() < 0.3)
