"""`dynamo_planner`: replicas by a forecast of the demand, by the present load, or both, within a budget of GPUs.

Source: ai-dynamo 1.6.1 (PyPI), dynamo/planner.
"""
import collections
import math

import numpy as np

from simulator.domain import records
from simulator.scaling.base import Autoscaler, Observation, spread
from simulator.scaling.dynamo.budget import NO_BOUND, Band
from simulator.scaling.dynamo.core import Core, Replicas
from simulator.scaling.dynamo.load import thresholds_of_kv, thresholds_of_prefill
from simulator.scaling.dynamo.parameters import DynamoPlannerParameters
from simulator.scaling.dynamo.sla import DecodeSla, Lengths, PrefillSla, WholeSla
from simulator.scaling.planner import of_role
from simulator.scaling.profile import Profile

SAMPLES = 64            # completed requests that give the mean lengths; Dynamo keeps as many iterations


def _no_verdict(loads, floor, *, may_stay):
    """Return that nothing is known of the load."""


class DynamoPlanner(Autoscaler):
    """Dynamo's planner of 2026: a throughput loop and a load loop, see `Core`.

    Measures: queued prompt tokens of the waiting requests; KV tokens of the running requests without those that they
    still prefill; for decode replicas also those of waiting requests and of KV on its way.

    Differences from Dynamo: profiles replace its regression over iterations; the mean lengths of the last completed
    requests replace its moving averages. A replica of whole requests spends a part of its time on prompts and the
    rest on decoding: 1 / rate = isl / prefill tokens per s + osl / decode tokens per s. Replicas that start are not
    called off: while some start, only reductions are made, of replicas that serve. Without any replica of a kind
    `min_endpoint` are started.
    """

    Parameters = DynamoPlannerParameters
    wants_finished = True
    needs_roles = True
    takes_whole = True

    def __init__(self, parameters):
        super().__init__(parameters)
        self._plan = parameters.plan
        self._due_ns = {"throughput": round(self._plan.throughput_interval_s * 1e9),
                        "load": round(self._plan.load_interval_s * 1e9)}
        self._core, self._then_ns = None, 0
        self._profile = Profile(parameters.prefill_profile, parameters.decode_profile)
        self._series = {name: parameters.forecasts.series() for name in ("requests", "isl", "osl")}
        self._window = []                                       # completed since the throughput loop's last decision
        self._recent = collections.deque(maxlen=SAMPLES)        # (prompt, output tokens)

    @classmethod
    def faults(cls, parameters, interval_s, pools):
        """See Autoscaler."""
        return parameters.misfits(interval_s, {pool.role for pool in pools} or {"both"})

    @classmethod
    def notes(cls, parameters):
        """See Autoscaler."""
        notes = ["autoscaling: replicas that start are not called off; Dynamo's planner cancels them"]
        if parameters.target == "sla":
            notes.append("autoscaling: prefill_profile and decode_profile replace the regression of Dynamo's planner")
        return tuple(notes)

    @classmethod
    def unfounded(cls, parameters, clock_s):
        """See Autoscaler; the forecasts of the throughput loop."""
        forecasts = parameters.forecasts
        decisions = math.floor(clock_s / forecasts.interval_s)
        if parameters.plan.loop not in ("throughput", "both") or not 0 < decisions < forecasts.fewest_values:
            return ()
        return (f'autoscaling: forecast = "{forecasts.kind}" needs {forecasts.fewest_values} values, one for each '
                f"throughput_interval_s = {forecasts.interval_s:g}, and the run has {decisions}: the last value was "
                "the forecast",)

    def decide(self, observation):
        """See Autoscaler."""
        if self._plan.loop == "none":
            return {}
        sides = self._sides(observation)
        self._note(observation.finished)
        replicas = Replicas(tuple(side.serving for side in sides), tuple(s.serving + s.starting for s in sides),
                            tuple(side.starting for side in sides), observation.starting > 0)
        self._core = self._core or self._begin(sides)
        if 0 in replicas.there:
            return self._applied(sides, tuple(max(now, self.parameters.min_endpoint) for now in replicas.there),
                                 replicas.there)
        counts = None
        if self._is_due("throughput", observation.now_ns):
            counts = self._throughput(sides, replicas, observation.now_ns)
        if self._is_due("load", observation.now_ns):
            counts = self._load(sides, replicas)
        return {} if counts is None else self._applied(sides, counts, replicas.ready)

    # ---- inputs

    def _sides(self, observation) -> tuple[Observation, ...]:
        """Return the observation of each kind of replicas that it scales."""
        roles = {variant.role for variant in observation.variants}
        kinds = ("both",) if "both" in roles else ("prefill", "decode")
        if self.parameters.scales != "all":
            kinds = (self.parameters.scales,)
        return tuple(of_role(observation, kind) for kind in kinds)

    def _begin(self, sides):
        given, kinds = self.parameters, len(sides)
        band = Band(NO_BOUND if given.min_gpus is None else given.min_gpus,
                    NO_BOUND if given.max_gpus is None else given.max_gpus,
                    tuple(side.variants[0].accelerators for side in sides), (given.min_endpoint,) * kinds)
        return Core(band, given.max_change or 8, has_throughput=self._plan.loop in ("throughput", "both"),
                    has_load=self._plan.loop in ("load", "both"))

    def _note(self, finished):
        done = finished[finished["status"] == records.COMPLETED]
        rows = done[["prompt_tokens", "output_tokens"]].tolist()
        self._recent.extend(rows)
        if self._plan.loop in ("throughput", "both"):
            self._window += rows

    def _is_due(self, loop, now_ns):
        if self._plan.loop not in (loop, "both") or now_ns < self._due_ns[loop]:
            return False
        self._due_ns[loop] = now_ns + round(getattr(self._plan, f"{loop}_interval_s") * 1e9)
        return True

    # ---- throughput loop

    def _throughput(self, sides, replicas, now_ns):
        window, self._window = np.array(self._window, float).reshape(-1, 2), []
        span_s, self._then_ns = (now_ns - self._then_ns) / 1e9, now_ns
        self._series["requests"].add(float(len(window)))
        if len(window):
            self._series["isl"].add(float(window[:, 0].mean()))
            self._series["osl"].add(float(window[:, 1].mean()))
        requests, isl, osl = (self._series[name].forecast() for name in ("requests", "isl", "osl"))
        lengths = Lengths(max(isl, 0.0), max(osl, 0.0), hit_rate(sides[0]))
        rates = [self._requests_per_s(side, lengths) for side in sides]
        return self._core.throughput(replicas, max(requests, 0.0) / span_s, rates).counts

    def _requests_per_s(self, side, lengths) -> float | None:
        """Return the requests that a replica serves in a second; None: their lengths are not known."""
        if lengths.isl == 0 or lengths.osl == 0:
            return None
        gpus, role = side.variants[0].accelerators, side.variants[0].role
        prompt_s = lengths.computed / (self._profile.prefill_tokens_per_s(lengths.computed) * gpus)
        answer_s = lengths.osl / (self._profile.decode_tokens_per_s(self._itl_ms, lengths.context) * gpus)
        return 1 / {"prefill": prompt_s, "decode": answer_s, "both": prompt_s + answer_s}[role]

    @property
    def _itl_ms(self):
        return self.parameters.itl_ms or 50.0

    # ---- load loop

    def _load(self, sides, replicas):
        loads = [self._loads(side) for side in sides]
        verdicts = [self._verdict(side) for side in sides]
        return self._core.load(replicas, loads, verdicts, is_whole=sides[0].variants[0].role == "both").counts

    def _loads(self, side):
        """Return the measure of load of each replica; pairs of measures for target "sla" with whole requests."""
        states, role, target = side.states(), side.variants[0].role, self.parameters.target
        queued = states["waiting_prefill_tokens"]
        if role == "prefill":
            longest = side.variants[0].context_tokens if target in ("throughput", "latency") else 1
            return (queued / longest).tolist()
        running = states["running_tokens"] - states["running_prefill_tokens"] + states["loading_tokens"]
        if target != "sla":
            return ((running + (queued if role == "both" else states["waiting_tokens"]))
                    / side.variants[0].capacity_tokens).tolist()
        if role == "decode":
            return (running + states["waiting_tokens"]).tolist()
        return list(zip(queued.tolist(), running.tolist(), strict=True))

    def _verdict(self, side):
        """Return the rule for one kind of replicas, see `load.Thresholds.verdict`."""
        given, first = self.parameters, side.variants[0]
        if given.target != "sla":
            if first.role == "prefill":
                return thresholds_of_prefill(
                    given.target, (given.scale_up_queue_tokens, given.scale_down_queue_tokens)).verdict
            return thresholds_of_kv(given.target, (given.scale_up_kv_frac, given.scale_down_kv_frac)).verdict
        margin, fewest = given.caution
        if len(self._recent) < fewest:
            return _no_verdict
        isl, osl = (sum(row[i] for row in self._recent) / len(self._recent) for i in (0, 1))
        lengths = Lengths(isl, osl, hit_rate(side))
        per_ms = self._profile.prefill_tokens_per_s(lengths.computed) * first.accelerators / 1e3
        prefill = PrefillSla(self._profile.ttft_ms(lengths.computed), per_ms, lengths.hit_rate, given.ttft_ms or 500.0,
                             margin)
        decode = DecodeSla(self._profile, lengths.context, first.capacity_tokens, self._itl_ms, margin)
        return {"prefill": prefill, "decode": decode, "both": WholeSla(prefill, decode)}[first.role].verdict

    def _applied(self, sides, counts, now):
        """Return the changes of pools that lead from one number of replicas of each kind to another."""
        changes = {}
        for side, count, there in zip(sides, counts, now, strict=True):
            if count is not None:
                changes |= spread(side, count - there)
        return changes


def hit_rate(side: Observation) -> float:
    """Return the share of prompt tokens that prefix caches have held so far."""
    states = side.states()
    looked_up = int(states["prefix_query_tokens"].sum())
    return int(states["prefix_hit_tokens"].sum()) / looked_up if looked_up else 0.0
