"""Ranks in lock step, run as recorded scenarios and logs of vLLM's have them (../shared/specs/vllm_more.md, M.2)."""
from collections import Counter

from msgspec.structs import replace

from simulator.domain.data_parallel import LockStepRules
from simulator.domain.vllm_versions import behaviour_of
from simulator.engine.plan import ClusterPlan, GatewayPlan, Pool
from simulator.latency.python_model import PythonLatencyModel
from simulator.routing.python_router import PythonRouter
from simulator.scheduling.vllm import Vllm
from support.recording import record
from support.scenario import load, nanoseconds

RECORDER_DEFAULTS = {"hop": 0.0005, "dp_sync_interval": 16, "prefill_schedule_interval": 1}
RANK_KEYS = ("scheduled", "running", "waiting", "free_blocks")


class Prices(PythonLatencyModel):
    """What a scenario says of a batch; one decode token with no other in KV is a dummy, which has its own price."""

    def __init__(self, description):
        super().__init__()
        price = description["step_time"]
        self._us = [nanoseconds(price.get(key, 0.0)) / 1e3 for key in ("base", "per_token", "per_req")]
        dummy = description.get("dummy_time")
        self._dummy_us = self._us[0] if dummy is None else nanoseconds(dummy) / 1e3

    def batch_us(self, shape):
        """See PythonLatencyModel."""
        base, token, sequence = self._us
        if shape.num_sequences == shape.context_tokens == 1:
            return self._dummy_us
        return base + token * (shape.prefill_tokens + shape.decode_tokens) + sequence * shape.num_sequences


class ToGiven(PythonRouter):
    """Sends a request to the rank that its parameters name."""

    def choose(self, request, now_ns):
        """See PythonRouter."""
        return self.parameters[request.row]


def run(description, *, fast_forward=True, details=True):
    """Return the scenario, loaded, and the recording of it."""
    description = RECORDER_DEFAULTS | description
    scenario = load(description)
    ranks = {request["id"]: request["rank"] for request in description["requests"]}
    rules = LockStepRules(
        sync_interval=description["dp_sync_interval"], prefill_interval=description["prefill_schedule_interval"],
        hop_ns=nanoseconds(description["hop"]),
        engines_start=behaviour_of(scenario.parameters.vllm_version).engines_start_waves)
    pool = Pool(Vllm, scenario.parameters, Prices(description), replicas=description["ranks"],
                ranks=description["ranks"], lock_step=rules, **scenario.cache)
    front = GatewayPlan(ToGiven, tuple(ranks[name] for name in scenario.ids))
    workload = replace(scenario.workload, requests=scenario.workload.requests.copy())
    plan = ClusterPlan((pool,), front, fast_forward=fast_forward)
    return scenario, record(workload, plan, details=details)


def to_log(scenario, recording):
    """Return a recording of one engine's ranks in the words of the recorded logs; times are ns."""
    (lock_step,) = recording.lock_steps
    places = {}
    for step in recording.steps:
        if step["scheduled"]:
            places.setdefault(step["replica"], []).append(step)
    num_ranks, steps = max(len(recording.replicas), 1), []
    for number, step in enumerate(lock_step.log):
        ranks = ["dummy"] * num_ranks
        for rank in step["busy"]:
            ranks[rank] = _of_rank(places[rank].pop(0), scenario.ids)
        steps.append({"i": number, "t": step["begin_ns"], "end": step["end_ns"],
                      "step_counter": [step["counter"]] * num_ranks, "wave": step["waves"], "ranks": ranks,
                      "all_reduce": step["goes_on"]})
    requests = [{"id": scenario.ids[row], "first_scheduled": int(record["scheduled_ns"]),
                 "first_token": int(record["first_token_ns"]), "finish": int(record["completed_ns"]),
                 "n_out": int(record["output_tokens"])} for row, record in enumerate(recording.requests)]
    return {"steps": steps, "requests": requests, "messages": [list(each) for each in lock_step.waves.log]}


def _of_rank(step, ids):
    return {"scheduled": [[ids[row], tokens] for row, tokens in step["scheduled"]],
            "running": [ids[row] for row in step["running"]], "waiting": [ids[row] for row in step["waiting"]],
            "free_blocks": step["free_blocks"]}


def first_difference(recorded, ours):
    """Return where a recorded log and one of ours part, or None."""
    for name in ("steps", "messages", "requests"):
        theirs = [_in_ns(name, each) for each in recorded[name]]
        mine = ours[name]
        if name == "requests":
            mine = sorted(mine, key=lambda each: each["id"])
            theirs = sorted(theirs, key=lambda each: each["id"])
        for i, (one, other) in enumerate(zip(theirs, mine, strict=False)):
            if one != other:
                return f"{name}[{i}]: recorded {one}, ours {other}"
        if len(theirs) != len(mine):
            return f"{name}: recorded {len(theirs)}, ours {len(mine)}"
    return None


def _in_ns(name, entry):
    """Return an entry of a recorded log with times in ns, and of a request only what is compared."""
    if name == "messages":
        return [round(entry[0] * 1e9), *entry[1:]]
    if name == "requests":
        return {key: entry[key] if key in ("id", "n_out") else round(entry[key] * 1e9)
                for key in ("id", "first_scheduled", "first_token", "finish", "n_out")}
    ranks = [rank if rank == "dummy" else {key: rank[key] for key in RANK_KEYS} for rank in entry["ranks"]]
    return {key: entry[key] for key in ("i", "step_counter", "wave")} | {
        "t": round(entry["t"] * 1e9), "end": round(entry["end"] * 1e9), "ranks": ranks,
        "all_reduce": entry.get("all_reduce")}


def tables(recording):
    """Return what must not depend on whether iterations are taken at once, in an order of its own."""
    iterations = recording.iterations[[name for name in recording.iterations.dtype.names if name != "spare"]]
    gaps = Counter()
    for gap_ns, count in zip(recording.itl_gap_ns.tolist(), recording.itl_count.tolist(), strict=True):
        gaps[gap_ns] += count
    return [recording.requests.tobytes(), sorted(iterations.tolist()), recording.replicas.tobytes(),
            recording.token_times, gaps]
