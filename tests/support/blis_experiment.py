"""A recorded command of BLIS as an experiment of ours.

`experiment_of(case, folder)` returns the tables of a TOML file. What a flag means stands in `KEYS`, or in a function
that writes what several flags mean together; what it is where the command has none, in support/blis_flags.py.
"""
from math import inf

from support.blis import DECIDERS, GATHERING
from support.blis_models import UNLIMITED, accelerator_named, model_named, write_accelerator, write_model

NEVER_US = 10**12               # a horizon behind it: until nothing is left to do

ADMISSIONS = {"always-admit": "always", "gaie-legacy": "saturation_shed", "reject-all": "reject_all",
              "tier-shed": "tier_shed", "token-bucket": "token_bucket"}
DETECTORS = {"concurrency": "concurrency", "never": "never", "utilization": "utilisation"}
FAIRNESS = {"global-strict": "none", "round-robin": "round_robin"}
ROUTERS = {"always-busiest": "always_busiest", "least-loaded": "least_loaded", "round-robin": "round_robin",
           "weighted": "weighted"}


def seconds(text):
    return int(text) / 1e6


KEYS = {    # flag: where its value goes in the experiment file, and what makes it of the text
    "admission-latency": ("cluster.admission.latency_s", seconds),
    "block-size-in-tokens": ("engine.block_size", int),
    "cache-signal-delay": ("cluster.routing.cache_signal_delay_s", seconds),
    "long-prefill-token-threshold": ("engine.long_prefill_token_threshold", int),
    "max-num-batched-tokens": ("engine.max_num_batched_tokens", int),
    "max-num-seqs": ("engine.max_num_seqs", int),
    "num-instances": ("topology.replicas", int),
    "preemption-policy": ("engine.preemption_policy", str),
    "routing-latency": ("cluster.routing.latency_s", seconds),
    "routing-policy": ("cluster.routing.policy", ROUTERS.__getitem__),
    "scheduler": ("engine.policy", str),
    "snapshot-refresh-interval": ("cluster.routing.snapshot_refresh_interval_s", seconds),
    "tp": ("topology.tensor_parallel", int),
}
KEYS_OF_ADMISSION = {       # of one policy: the same
    "gaie-legacy": {"gaie-qd-threshold": ("queue_depth_threshold", float),
                    "gaie-kv-threshold": ("kv_usage_threshold", float)},
    "tier-shed": {"tier-shed-threshold": ("max_load", int), "tier-shed-min-priority": ("min_priority", int)},
    "token-bucket": {"token-bucket-capacity": ("capacity_tokens", float),
                     "token-bucket-refill-rate": ("refill_tokens_per_s", float)},
}
KEYS_OF_DETECTOR = {
    "concurrency": {"max-concurrency": ("max_concurrency", int)},
    "utilization": {"queue-depth-threshold": ("queue_depth_threshold", float),
                    "kv-cache-util-threshold": ("kv_usage_threshold", float)},
}
KEYS_OF_QUEUE = {
    "fairness-policy": ("fairness", FAIRNESS.__getitem__),
    "max-gateway-queue-depth": ("max_requests", int),
    "per-band-capacity": ("max_requests_per_band", int),
    "request-ttl": ("ttl_s", seconds),
    "usage-limit-threshold": ("lowest_ceiling", float),
}
KEYS_OF_HOST = {
    "kv-cpu-blocks": ("cpu_blocks", int),
    "kv-transfer-bandwidth": ("tokens_per_us", float),
    "kv-transfer-base-latency": ("base_us", float),
}
KEYS_OF_OFFLOAD = {"kv-offload-threshold": ("offload_threshold", float)}     # later than v0.6.9 it is ignored
# Version: when its gateway queue passes a request on, and what its order "fifo" is.
GATES = {"head": {"dispatch": "ticks", "fifo": "priority"}, "bb": {"dispatch": "departures", "fifo": "fifo"},
         "v071": {"dispatch": "departures", "fifo": "fifo"}}
TICK_US = 1000                  # what a tick interval of 0 means


def experiment_of(case, folder):
    """Return the experiment file of a case as nested tables; files of facts that it needs are written to `folder`."""
    is_head, settings = case.version == "head", case.settings
    experiment = {
        "horizon_s": _horizon_s(case),
        "engine": {"scheduler": "blis", "upstream_compat": True, "blis_version": "head" if is_head else "0.7",
                   "num_gpu_blocks": case.num_blocks + 1, "max_model_len": case.max_model_len or UNLIMITED,
                   "priority_policy": "class" if is_head else settings["priority-policy"]},
        "latency": {"resolution_us": 1.0, "host": {"output_token_accumulates": True}},
        "workload": _workload(case, folder),
        "output": {"token_times": True},
    }
    for flag, (path, read) in KEYS.items():
        put(experiment, path, read(settings[flag]))
    if case.number("kv-cpu-blocks"):
        experiment["kv_tiers"] = _host_memory(case.version) | _some(settings, KEYS_OF_HOST | (
            KEYS_OF_OFFLOAD if case.version == "v069" else {}))
    if case.kv_offload:
        experiment["kv_tiers"] = _chain(case.kv_offload, case.levels, int(settings["tp"]))
    if settings["trace-level"] == "decisions":
        experiment["output"]["decisions"] = max(1, case.number("counterfactual-k"))
    _router(case, experiment["cluster"]["routing"])
    if case.pools:
        _pools(case, experiment)
    if case.lora:
        experiment["engine"]["lora"] = _lora(case.lora)
    _gate(case, experiment["cluster"])
    _classes(case, experiment)
    PRICES[case.latency_model](case, experiment, folder)
    return experiment


def _host_memory(version):
    """Return the tier of `--kv-cpu-blocks`, without the keys that other flags give."""
    return {"protocol": "blis_offload"} if version == "v069" else {
        "protocol": "blis_mirror", "when_full": version != "head"}


def _chain(offload, levels, tensor_parallel):
    """Return the chain of KV tiers of a trace's header, whose bytes are those of one accelerator."""
    return {
        "protocol": "blis_chain", "offload_prompt_only": offload["offload_prompt_only"] == "true",
        "cpu_gib": int(offload["cpu_bytes_to_use"]) * tensor_parallel / 2**30,
        "kv_bytes_per_token": int(offload["per_block_bytes"]) * tensor_parallel / int(offload["block_size"]),
        "secondary": [{
            "readers": int(each["n_read_threads"]), "writers": int(each["n_write_threads"]),
            "read_gb_per_s": float(each["read_bandwidth"]) / 1e3,
            "write_gb_per_s": float(each["write_bandwidth"]) / 1e3,
            "base_us": round(float(each["base_latency"])), "full_depth": int(each.get("saturation_queue_depth") or 0),
            "first_frac": float(each.get("single_transfer_fraction") or 0) or 1.0} for each in levels]}


def _workload(case, folder):
    """Return where the requests come from: a trace, a workload spec, or users of whom all requests are alike."""
    if case.is_specified:
        return {"type": "clients", "format": "blis", "path": str(case.file("workload-spec"))}
    if case.num_users:
        path = folder / "users.yaml"
        path.write_text(_users(case), encoding="utf-8")
        return {"type": "clients", "format": "blis", "path": str(path), "upstream_compat": True}
    trace = {"type": "trace", "time_origin": "trace", "path": str(case.trace_path),
             "format": "support.blis_trace:UrgentBlisTrace" if case.held_back else "tracev2"}
    if case.is_closed_loop:
        trace |= {"header": str(case.file("trace-header")), "session_mode": "closed_loop", "upstream_compat": True,
                  "think_time_s": case.number("think-time-ms") / 1e3}
    return trace


def _users(case):
    """Return BLIS's YAML of the users that the flags describe."""
    prompt, output = (case.options[f"{what}-tokens-min"] for what in ("prompt", "output"))
    return f"""
version: "2"
num_requests: {case.num_requests}
clients:
- id: users
  concurrency: {case.num_users}
  think_time_us: {1000 * case.number("think-time-ms")}
  input_distribution: {{type: constant, params: {{value: {prompt}}}}}
  output_distribution: {{type: constant, params: {{value: {output}}}}}
"""


def put(experiment, path, value):
    """Set a key, `section.sub.key`, of nested tables."""
    *sections, key = path.split(".")
    for section in sections:
        experiment = experiment.setdefault(section, {})
    experiment[key] = value


def _some(settings, keys):
    return {key: read(settings[flag]) for flag, (key, read) in keys.items()}


def _horizon_s(case):
    """Return when the run ends: as given; of a replay else twice the last arrival, or 10 minutes."""
    given = case.settings["horizon"]
    if given is None and case.command == "replay":
        given = 2 * max((each.arrival_us for each in case.requests), default=0) or 600_000_000
    return inf if given is None or int(given) > NEVER_US else int(given) / 1e6


def _pools(case, experiment):
    """Write which replicas compute prompts, and how KV comes from them to others."""
    settings, decider = case.settings, DECIDERS[case.settings["pd-decider"]]
    roles = zip(("prefill", "decode", "both"), case.pools, strict=True)
    experiment["pools"] = [{"name": role, "role": role, "replicas": count} for role, count in roles if count]
    experiment["kv_transfer"] = {
        "protocol": "blis", "bandwidth_gb_per_s": float(settings["pd-transfer-bandwidth"]),
        "base_us": 1e3 * float(settings["pd-transfer-base-latency"]),
        "contention": "at_start" if case.is_on("pd-transfer-contention") else "none"}
    experiment["cluster"]["disaggregation"] = {"decider": decider} | (
        {"non_cached_tokens": int(settings["pd-prefix-threshold"]) + 1} if decider == "prefix_threshold" else {})
    if settings["routing-policy"] == "round-robin":     # BLIS has one for all pools, ours each its own
        experiment["cluster"]["routing"]["policy"] = "support.blis_pools:OneRoundRobin"


def _lora(given):
    """Return [engine.lora], which has the same keys; ranks of tiers stand in the tiers."""
    tiers = [{"rank": int(rank)} | {key: float(value) for key, value in prices.items()}
             for rank, prices in given.get("step_overhead_tiers", {}).items()]
    adapters = [{"id": each["id"], "rank": int(each["rank"])} for each in given["adapters"]]
    prices = {key: float(given[key]) for key in (
        "load_base_latency_us", "load_bandwidth_bytes_us", "footprint_bytes_per_rank") if key in given}
    return prices | {"step_overhead_tiers": tiers, "adapters": adapters,
                     "adapter_capacity": int(given["adapter_capacity"])}


# ---- what stands before the replicas

def _router(case, routing):
    """Write what a router goes by; queue-depth of v0.7.1 counts requests that run and are on their way, too."""
    policy, is_old = case.settings["routing-policy"], case.version == "v071"
    if policy == "least-loaded":
        routing["metric"] = "effective"
    if policy != "weighted":
        return
    scorers = _scorers(case.settings["routing-scorers"])
    if float(case.settings["lora-scorer-weight"]) > 0:
        scorers.append(("lora-affinity", float(case.settings["lora-scorer-weight"])))
    if not scorers:
        routing["profile"] = "blis-0.7.1" if is_old else "blis"
        return
    routing["scorers"] = [
        {"name": name, "weight": weight} | ({"load": "effective"} if is_old and name == "queue-depth" else {})
        for name, weight in scorers]


def _scorers(given):
    """Return (name, weight) of a flag's list, or of a policy file's."""
    if not isinstance(given, str):
        return [(each["name"], float(each["weight"])) for each in given]
    pairs = (each.split(":") for each in given.split(",") if each)
    return [(name.strip(), float(weight)) for name, weight in pairs]


def _gate(case, cluster):
    """Write the gateway queue, which takes the place of the admission policy, or that policy."""
    settings = case.settings
    if not case.is_on("flow-control"):
        cluster["admission"] |= _admission(settings)
        return
    given, gate, detector = GATES[case.version], {}, settings["saturation-detector"]
    order = settings["dispatch-order"]
    if case.version == "head":
        gate["tick_s"] = seconds(int(settings["dispatch-tick-interval"]) or TICK_US)
        gate["shedding"] = "sheddable" if case.is_on("queue-shedding") else "none"
        gate["in_flight_eviction"] = case.is_on("in-flight-eviction")
    else:
        gate["shedding"] = "lowest"
    cluster["gateway_queue"] = gate | _some(settings, KEYS_OF_QUEUE) | {
        "upstream_compat": True, "dispatch": given["dispatch"],
        "order": given["fifo"] if order == "fifo" else order.replace("-", "_"),
        "saturation": {"detector": DETECTORS[detector]} | _some(settings, KEYS_OF_DETECTOR.get(detector, {}))}


def _admission(settings):
    policy = settings["admission-policy"]
    admission = {"policy": ADMISSIONS[policy]} | _some(settings, KEYS_OF_ADMISSION.get(policy, {}))
    if not settings["tenant-budgets"]:
        return admission
    budgets = [{"tenant": name, "share": float(share)} for name, share in settings["tenant-budgets"].items()]
    return {"policy": "tenant_budgets", "budgets": budgets, "inner": admission}


def _classes(case, experiment):
    """Write what is said of SLO classes: their priorities, and the bounds that deadlines go by."""
    targets, priorities = case.settings["slo-targets"], case.settings["slo-priorities"] or {}
    if isinstance(targets, str):
        targets = dict(each.split("=") for each in targets.split(",") if each)
    classes = {name: {"name": name} for name in [*targets, *priorities]}
    for name, target_us in targets.items():
        classes[name]["ttft_ms"] = int(target_us) / 1e3
    for name, priority in priorities.items():
        classes[name]["priority"] = int(priority)
    if priorities:
        experiment["workload"]["priorities"] = {name: int(priority) for name, priority in priorities.items()}
    if classes:
        experiment["slo"] = {"classes": list(classes.values())}


# ---- how long an iteration takes

def _trained_physics(case, experiment, folder):
    gathers = case.settings["moe-comm-backend"] in GATHERING
    experiment["latency"] |= {"backend": "trained_physics", "beta": list(case.beta), "conventions": "blis",
                              "expert_exchange": "all_gather" if gathers else "all_to_all"}
    _deployment(case, experiment, folder)
    queue, completion, output = case.alpha
    experiment["latency"]["host"] |= {
        "queue_base_us": queue, "completion_us": completion, "output_token_us": output}


def _blackbox(case, experiment, _):
    experiment["latency"] |= {"backend": "blackbox", "beta": list(case.beta)}
    _host(case, experiment)


def _crossmodel(case, experiment, folder):
    experiment["latency"] |= {"backend": "crossmodel", "beta": list(case.beta)}
    _deployment(case, experiment, folder)
    _host(case, experiment)


def _roofline(case, experiment, folder):
    experiment["latency"] |= {"backend": "step_roofline"}
    _deployment(case, experiment, folder)
    _host(case, experiment)


PRICES = {"trained-physics": _trained_physics, "blackbox": _blackbox, "crossmodel": _crossmodel,
          "roofline": _roofline}


def _deployment(case, experiment, folder):
    """Write model and accelerator: files that the command gives, or ours of that name."""
    model, hardware = case.file("model-config-folder"), case.file("hardware-config")
    if model:
        experiment["model"] = {"name": write_model(model / "config.json", folder)}
    else:
        name, weight_dtype = model_named(case.settings["model"])
        experiment["model"] = {"name": name} | ({"dtype": weight_dtype} if weight_dtype else {})
    if hardware:
        path, shares = write_accelerator(hardware, case.settings["hardware"], folder)
        experiment["hardware"] = {"name": path}
        if experiment["latency"]["backend"] == "step_roofline":
            experiment["latency"] |= dict(zip(("mfu_prefill", "mfu_decode"), shares, strict=True))
    else:
        experiment["hardware"] = {"name": accelerator_named(case.settings["hardware"])}
    if case.number("dp") > 1:
        experiment["topology"]["data_parallel"] = case.number("dp")


def _host(case, experiment):
    base, per_token, output = case.alpha
    experiment["latency"]["host"] |= {
        "queue_base_us": base, "queue_per_prompt_token_us": per_token, "output_token_us": output}
