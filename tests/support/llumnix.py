"""The recorded decisions of the real Llumnix scheduler under ../shared/goldens/llumnix, in the terms of ours."""
import json

from msgspec import ValidationError, convert
from msgspec.structs import fields, replace

from simulator.core.draws import Draws
from simulator.core.random_streams import RandomStreams
from simulator.routing.llumnix.account import LocalAccount
from simulator.routing.llumnix.candidates import Candidates
from simulator.routing.llumnix.composition import (
    INFER_TYPES,
    METRIC_NAMES,
    FilterSpec,
    SelectorSpec,
    compose,
    metric_code,
)
from simulator.routing.llumnix.dispatcher import Dispatcher
from simulator.routing.llumnix.predictor import ProfileTable
from simulator.routing.llumnix.rescheduler import LlumnixReschedulerParameters
from simulator.routing.llumnix.router import LlumnixParameters
from support.goldens import GOLDENS
from support.llumnix_faces import PredictorFace, computed, dispatches, set_clock

NOW_NS = 2 * 10**18         # later than any age in the cases
FOLDER = GOLDENS / "llumnix"
MAX_FLOAT32, INFINITE = 3.4028234663852886e38, float("inf")

STATUS_FIELDS = {
    "num_total_gpu_tokens": "total_tokens", "num_used_gpu_tokens": "used_tokens",
    "num_uncomputed_tokens_all_waiting_prefills": "waiting_prefill_tokens",
    "num_uncomputed_tokens_scheduler_running_prefills": "running_prefill_tokens",
    "num_unallocated_tokens_scheduler_running_prefills": "unallocated_prefill_tokens",
    "num_unallocated_tokens_hybrid_scheduler_waiting_decodes": "hybrid_unallocated_tokens",
    "hybrid_scheduler_waiting_to_decode_requests_num": "hybrid_decodes",
    "hybrid_scheduler_waiting_to_decode_tokens_num": "hybrid_decode_tokens",
    "scheduler_waiting_to_decode_requests_num": "waiting_decodes",
    "scheduler_waiting_to_decode_tokens_num": "waiting_decode_tokens",
    "scheduler_running_to_decode_requests_num": "running_decodes",
    "scheduler_running_to_decode_tokens_num": "running_decode_tokens",
    "num_loading_requests": "loading", "num_tokens_loading_requests": "loading_tokens",
    "num_waiting_requests": "waiting", "num_running_requests": "running",
}
ACCOUNT_FIELDS = {
    "num_inflight_dispatch_requests": "in_flight", "num_inflight_dispatch_prefill_requests": "in_flight_prefills",
    "num_inflight_dispatch_decode_requests": "in_flight_decodes",
    "num_uncomputed_tokens_inflight_dispatch_prefill_requests": "in_flight_prefill_tokens",
    "num_tokens_inflight_dispatch_decode_requests": "in_flight_decode_tokens",
}
CONTEXT_FIELDS = {"prefix_hit_tokens": "hit_tokens", "prefix_miss_tokens": "miss_tokens",
                  "num_computed_prefill_tokens_predicted": "predicted_tokens", "needs_failover": "needs_failover"}
LITE_FIELDS = {"num_requests": "lite_requests", "num_tokens": "lite_tokens"}
OTHER_FIELDS = {"dp_size": "data_parallel_size", "max_num_batched_tokens": "max_batched_tokens",
                "schedulable": "is_schedulable"}
# Flags whose names here tell their unit, or are shorter.
FLAGS = {
    "instance-staleness-seconds": "instance_staleness_s", "ttft-slo": "ttft_slo_ms", "tpot-slo": "tpot_slo_ms",
    "request-local-account-staleness-seconds": "request_local_account_staleness_s",
    "cache-aware-scheduling-min-tokens": "cache_aware_min_tokens",
    "requests-report-duration": "requests_report_duration_s",
}


def cases():
    """Return (file, case) of every case of every file, or nothing where the goldens are absent."""
    found = []
    for path in sorted(FOLDER.rglob("*.json")):
        content = json.loads(path.read_bytes())
        found += [(path.stem, case) for case in content.get("cases", ())]
    return found


def number(value):
    return {"max_float32": MAX_FLOAT32, "inf": INFINITE}.get(value, value)


def indexed(instances):
    """Return the instances in the order of their ids, which decides between equals, and id -> index."""
    ordered = sorted(instances, key=lambda instance: instance["id"])
    return ordered, {instance["id"]: i for i, instance in enumerate(ordered)}


def profile_tables(profiling):
    if not profiling:
        return None, None
    return (ProfileTable([(tokens, 0, ms) for tokens, ms in profiling["ttft"]]), ProfileTable(profiling["tpot"]))


def candidates_of(instances, profiling=None):
    """Return Candidates that hold instances of a case; `indexed` gives their order."""
    ordered, _ = indexed(instances)
    candidates = Candidates(max(1, len(ordered)), *profile_tables(profiling))
    domains = {field: {name: i for i, name in enumerate(sorted({each.get(field) or "" for each in ordered} - {""}))}
               for field in ("node_id", "unit_id")}
    for row, instance in zip(candidates.array, ordered, strict=False):
        for group, names in (("status", STATUS_FIELDS), ("local_account", ACCOUNT_FIELDS), ("ctx", CONTEXT_FIELDS),
                             ("lrs", LITE_FIELDS)):
            for name, value in instance.get(group, {}).items():
                row[names[name]] = value
        for name, field in OTHER_FIELDS.items():
            row[field] = instance.get(name, row[field])
        row["time_ns"] = NOW_NS - 10**6 * instance.get("age_ms", 0)
        row["infer_type"] = INFER_TYPES.index(instance.get("infer_type", "neutral"))
        row["reserved"] = INFER_TYPES.index(instance.get("reserved_infer_type") or "neutral")
        for field, column in (("node_id", "node"), ("unit_id", "unit")):
            row[column] = domains[field].get(instance.get(field) or "", -1)
    for i, instance in enumerate(ordered):
        for name, value in instance.get("metrics", {}).items():
            candidates.metric_array[metric_code(name), i] = number(value)
    set_clock(candidates, NOW_NS)
    return candidates


def filter_spec(given):
    """Return the FilterSpec of a filter of a case."""
    if given["type"] == "inverted":
        inner = filter_spec(given["inner"])
        return replace(inner, invert=not inner.invert)
    names = {"reserved_infer_type": "reserved", "failover_migration_src": "failover_migration_source"}
    return convert({
        "name": names.get(given["type"], given["type"]), "metric": given.get("metric"),
        "threshold": given.get("threshold"), "skip_in_fallback": not given.get("not_skip_when_fallback", False),
        "infer_type": given.get("infer_type", given.get("rejected_reserved_infer_type")),
        "instance_staleness_s": given.get("instance_staleness_seconds"),
        "failover_domain": given.get("failover_domain")}, FilterSpec)


def selector_spec(given):
    names = {"slo_prefill_apd": "slo_prefill_adaptive", "slo_decode_apd": "slo_decode_adaptive"}
    limit_ms = given.get("tpot_slo", 0) * given.get("tpot_slo_dispatch_threshold", 0)
    return convert({"name": names.get(given["type"], given["type"]), "metrics": given.get("metric_names", []),
                    "top_k": given.get("top_k", 1), "tpot_limit_ms": limit_ms}, SelectorSpec)


def keys_of(flags, parameters):
    """Return the keys that flags of upstream stand for, those without a meaning in a simulated cluster left out."""
    known, found = {field.name for field in fields(parameters)}, {}
    for flag, value in flags.items():
        key = FLAGS.get(flag, flag.replace("-", "_"))
        key = key if key in known else key.removeprefix("rescheduling_")
        if key in known:
            found[key] = tuple(value.split(",")) if key == "policies" else value
    return found


def parameters_of(flags, upstream_compat, profiling=None):
    """Return the LlumnixParameters that flags of upstream stand for.

    What a mode does not offer is refused by default; here it is then replaced, as upstream does.
    """
    mode = "full" if flags.get("enable-full-mode-scheduling", True) else "lite"
    paths = ("ttft_profiling_data_path", "tpot_profiling_data_path") if profiling else ()
    keys = keys_of(flags, LlumnixParameters) | dict.fromkeys(paths, "given")
    try:
        return convert(keys | {"mode": mode, "upstream_compat": upstream_compat}, LlumnixParameters)
    except ValidationError:
        replaced = convert(keys | {"mode": mode, "upstream_compat": True}, LlumnixParameters)
        return replace(replaced, upstream_compat=upstream_compat)


def rescheduler_parameters_of(flags):
    return convert(keys_of(flags, LlumnixReschedulerParameters), LlumnixReschedulerParameters)


def flag_defaults():
    """Return the flags of upstream and their defaults, as the types they have there; {} where no file tells them."""
    kinds = {"Bool": lambda text: text == "true", "String": str, "Duration": str}
    flags = {}
    for path in sorted(FOLDER.rglob("*.json")):
        flags |= json.loads(path.read_bytes()).get("flags", {})
    return {name: kinds.get(flag["type"], float)(flag["default"]) for name, flag in flags.items()}


class Scheduler:
    """A dispatcher over the instances of a case, as the router builds one over a view."""

    def __init__(self, given, upstream_compat):
        parameters = parameters_of(given["flags"], upstream_compat, given.get("profiling"))
        self.parameters = parameters
        self.ordered, self.index = indexed(given["instances"])
        self.candidates = candidates_of(given["instances"], given.get("profiling"))
        self.rows, account = {}, None
        if parameters.enable_instance_status_local_account:
            account = LocalAccount(len(self.ordered), 64, self.candidates, leaks=upstream_compat,
                                   is_cache_aware=parameters.enable_cache_aware_scheduling)
        predictor = None
        if parameters.enable_predictor_enhanced_scheduling:
            face = PredictorFace(parameters.num_predictor_warmup_samples)
            for tokens, duration_ms in given.get("predictor_samples", ()):
                face.learn(tokens, duration_ms)
            face.refit()
            predictor = face.predictor
        self.dispatcher = Dispatcher(
            self.candidates, compose(parameters), Draws(RandomStreams(0).generator("routing")), parameters, account,
            predictor)

    def account_of(self, name):
        """Return the account of an instance, as the cases write it."""
        row = self.candidates.array[self.index[name]]
        ids = {row: request for request, row in self.rows.items()}
        return {flag: int(row[field]) for flag, field in ACCOUNT_FIELDS.items()} | {"requests": {
            ids[each]: {"infer_type": role, "num_tokens": tokens, "num_uncomputed_tokens": uncomputed,
                        "found_in_cms": found}
            for each, (role, tokens, uncomputed, found) in (
                dispatches(self.dispatcher.account, self.index[name]).items())}}

    def metrics_of(self, name):
        instance = self.ordered[self.index[name]]
        codes = computed(self.dispatcher, instance.get("infer_type", "neutral"))
        return {METRIC_NAMES[code].removesuffix("_lite"): float(self.candidates.metric_array[code, self.index[name]])
                for code in codes}

    def context_of(self, name):
        row = self.candidates.array[self.index[name]]
        return {field: int(row[ours]) for field, ours in CONTEXT_FIELDS.items() if field != "needs_failover"}
