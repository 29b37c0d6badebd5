"""A recorded command of BLIS as an experiment of ours.

`experiment_of(case)` returns the tables of a TOML file. A new flag is a line in `KEYS` or `IGNORED`, or a function that
writes what several flags mean together.
"""
from math import inf

from support.blis import ACCELERATORS, BLOCK_SIZE, GATHERING, MODELS

UNLIMITED = 10**6               # --max-model-len is absent: no request is so long
NEVER_US = 10**12               # a horizon behind it: until nothing is left to do

SNAPSHOT_S = 0.05               # the newest version's --snapshot-refresh-interval

ADMISSIONS = {"always-admit": "always", "gaie-legacy": "saturation_shed", "reject-all": "reject_all",
              "tier-shed": "tier_shed", "token-bucket": "token_bucket"}
DETECTORS = {"concurrency": "concurrency", "never": "never", "utilization": "utilisation"}
FAIRNESS = {"global-strict": "none", "round-robin": "round_robin"}
# Where BLIS draws among equals, so do these, with its random numbers.
ROUTERS = {"always-busiest": "always_busiest", "least-loaded": "support.blis_routers:BlisLeastLoaded",
           "round-robin": "round_robin", "weighted": "support.blis_routers:BlisWeighted"}
KEYS = {    # flag: where its value goes in the experiment file, and what makes it of the text
    "admission-policy": ("cluster.admission.policy", lambda name: ADMISSIONS[name]),
    "block-size-in-tokens": ("engine.block_size", int),
    "cache-signal-delay": ("cluster.routing.cache_signal_delay_s", lambda text: int(text) / 1e6),
    "fairness-policy": ("cluster.gateway_queue.fairness", lambda name: FAIRNESS[name]),
    "horizon": ("horizon_s", lambda text: inf if int(text) > NEVER_US else int(text) / 1e6),
    "in-flight-eviction": ("cluster.gateway_queue.in_flight_eviction", lambda _: True),
    "kv-cache-util-threshold": ("cluster.gateway_queue.saturation.kv_usage_threshold", float),
    "long-prefill-token-threshold": ("engine.long_prefill_token_threshold", int),
    "max-concurrency": ("cluster.gateway_queue.saturation.max_concurrency", int),
    "max-gateway-queue-depth": ("cluster.gateway_queue.max_requests", int),
    "max-model-len": ("engine.max_model_len", int),
    "max-num-batched-tokens": ("engine.max_num_batched_tokens", int),
    "max-num-running-reqs": ("engine.max_num_seqs", int),
    "max-num-scheduled-tokens": ("engine.max_num_batched_tokens", int),
    "max-num-seqs": ("engine.max_num_seqs", int),
    "num-instances": ("topology.replicas", int),
    "per-band-capacity": ("cluster.gateway_queue.max_requests_per_band", int),
    "preemption-policy": ("engine.preemption_policy", str),
    "priority-policy": ("engine.priority_policy", str),
    "queue-depth-threshold": ("cluster.gateway_queue.saturation.queue_depth_threshold", float),
    "request-ttl": ("cluster.gateway_queue.ttl_s", lambda text: int(text) / 1e6),
    "routing-policy": ("cluster.routing.policy", lambda name: ROUTERS[name]),
    "routing-scorers": ("cluster.routing.scorers", lambda text: _pairs(text, ":", "name", "weight", float)),
    "saturation-detector": ("cluster.gateway_queue.saturation.detector", lambda name: DETECTORS[name]),
    "scheduler": ("engine.policy", str),
    "snapshot-refresh-interval": ("cluster.routing.snapshot_refresh_interval_s", lambda text: int(text) / 1e6),
    "slo-targets": ("slo.classes", lambda text: _pairs(text, "=", "name", "ttft_ms", lambda us: int(us) / 1e3)),
    "token-bucket-capacity": ("cluster.admission.capacity_tokens", float),
    "token-bucket-refill-rate": ("cluster.admission.refill_tokens_per_s", float),
    "tp": ("topology.tensor_parallel", int),
    "usage-limit-threshold": ("cluster.gateway_queue.lowest_ceiling", float),
}
READ_BY_GATE = {"dispatch-order", "flow-control", "policy-config"}
READ_BY_LATENCY = {"alpha-coeffs", "beta-coeffs", "hardware", "latency-model", "moe-comm-backend", "model"}
IGNORED = {     # files whose content is known otherwise, and what is only printed
    "counterfactual-k", "hardware-config", "metrics-path", "model-config-folder", "results-path",
    "summarize-trace", "total-kv-blocks", "trace-data", "trace-header", "trace-level"}
# Version: when its gateway queue passes a request on, who has to go when it is full, what its order "fifo" is.
GATES = {
    "head": {"dispatch": "ticks", "shedding": "none", "fifo": "priority"},
    "bb": {"dispatch": "departures", "shedding": "lowest", "fifo": "fifo"},
    "v071": {"dispatch": "departures", "shedding": "lowest", "fifo": "fifo"},
}
DEFAULT_ALPHA = (15563.199579, 777.3455, 45.907545)         # of the published trained-physics


def experiment_of(case):
    """Return the experiment file of a case as nested tables."""
    unknown = case.options.keys() - KEYS.keys() - READ_BY_GATE - READ_BY_LATENCY - IGNORED
    assert not unknown, f"{case}: flags without a counterpart here: {sorted(unknown)}"
    version = "head" if case.is_head else "0.7"
    experiment = {
        "engine": {"scheduler": "blis", "upstream_compat": True, "blis_version": version, "block_size": BLOCK_SIZE,
                   "num_gpu_blocks": case.num_blocks + 1, "max_model_len": UNLIMITED,
                   "priority_policy": "class" if case.is_head else "constant"},
        "latency": {"resolution_us": 1.0, "host": {"output_token_accumulates": True}},
        "workload": {"type": "trace", "path": str(case.folder / "trace.csv"),
                     "format": f"support.blis_trace:{'UrgentBlisTrace' if case.held_back else 'BlisTrace'}"},
        "cluster": {"routing": {"snapshot_refresh_interval_s": SNAPSHOT_S if case.is_head else 0.0}},
        "output": {"token_times": True},
    }
    for flag, text in case.options.items():
        if flag in KEYS:
            path, read = KEYS[flag]
            put(experiment, path, read(text))
    _gate(case, experiment)
    PRICES[case.options["latency-model"]](case, experiment)
    return experiment


def put(experiment, path, value):
    """Set a key, `section.sub.key`, of nested tables."""
    *sections, key = path.split(".")
    for section in sections:
        experiment = experiment.setdefault(section, {})
    experiment[key] = value


def _pairs(text, separator, name, key, read):
    """Return the tables that a list of names and values means."""
    pairs = (each.split(separator) for each in text.split(","))
    return [{name: label, key: read(value)} for label, value in pairs]


# ---- what stands before the replicas

def _gate(case, experiment):
    """Write what several flags, and the version, say of admission, gateway queue and router."""
    cluster, version = experiment["cluster"], "head" if case.is_head else "v071" if "v071" in case.name else "bb"
    if version == "v071" and case.options.get("routing-policy") == "weighted":
        cluster["routing"]["profile"] = "blis-0.7.1"
    if "flow-control" in case.options:
        gate, order = dict(GATES[version]), case.options.get("dispatch-order", "fifo")
        fifo = gate.pop("fifo")
        cluster.setdefault("gateway_queue", {}).update(
            gate | {"upstream_compat": True, "order": fifo if order == "fifo" else order.replace("-", "_")})
    if "policy-config" in case.options:
        cluster["admission"] = _admission(_policy_file(case))


def _policy_file(case):
    """Return the sections of policy.yaml, each of keys and plain values."""
    sections, section = {}, None
    for line in (case.folder / "policy.yaml").read_text(encoding="utf-8").splitlines():
        key, _, value = map(str.strip, line.partition(":"))
        if value:
            section[key] = value
        else:
            section = sections[key] = {}
    return sections


def _admission(policies):
    given = policies["admission"]
    admission = {"policy": ADMISSIONS[given["policy"]]}
    if admission["policy"] == "tier_shed":
        admission |= {"max_load": int(given["tier_shed_threshold"]),
                      "min_priority": int(given["tier_shed_min_priority"])}
    if "tenant_budgets" in policies:
        budgets = [{"tenant": name, "share": float(share)} for name, share in policies["tenant_budgets"].items()]
        admission = {"policy": "tenant_budgets", "budgets": budgets, "inner": admission}
    return admission


# ---- how long an iteration takes

def _trained_physics(case, experiment):
    if case.options["model"] == "unit":
        return _unit(case, experiment)
    gathers = case.options.get("moe-comm-backend", GATHERING[0]) in GATHERING
    experiment["latency"] |= {"backend": "trained_physics",
                              "expert_exchange": "all_gather" if gathers else "all_to_all"}
    _deployment(case, experiment)
    _host(experiment, *(case.coefficients("alpha-coeffs") or DEFAULT_ALPHA))


def _unit(case, experiment):
    """The model of goldens/blis/_unit, for which BLIS's formula is that of `linear`; see its README."""
    beta = case.coefficients("beta-coeffs")
    assert not any(beta[:5] + beta[7:8] + beta[10:]), f"{case}: not the unit model's coefficients"
    experiment["latency"] |= {"backend": "linear", "per_sequence_us": beta[5], "base_us": beta[6],
                              "per_prefill_token_us": beta[8], "per_context_token_us": beta[9]}
    experiment["topology"] = experiment.get("topology", {}) | {"tensor_parallel": 1}
    _host(experiment, *case.coefficients("alpha-coeffs"))


def _blackbox(case, experiment):
    experiment["latency"] |= {"backend": "blackbox", "beta": list(case.coefficients("beta-coeffs"))}
    base, per_token, output = case.coefficients("alpha-coeffs")
    _host(experiment, base, 0.0, output)
    experiment["latency"]["host"]["queue_per_prompt_token_us"] = per_token


def _roofline(case, experiment):
    experiment["latency"] |= {"backend": "step_roofline"}
    _deployment(case, experiment)


PRICES = {"trained-physics": _trained_physics, "blackbox": _blackbox, "roofline": _roofline}


def _deployment(case, experiment):
    model, weight_dtype = MODELS[case.options["model"]]
    experiment["model"] = {"name": model} | ({"dtype": weight_dtype} if weight_dtype else {})
    experiment["hardware"] = {"name": ACCELERATORS[case.options["hardware"]]}
    del experiment["engine"]["max_model_len"]


def _host(experiment, queue, completion, output):
    experiment["latency"]["host"] |= {
        "queue_base_us": queue, "completion_us": completion, "output_token_us": output}
