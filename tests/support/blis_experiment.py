"""A recorded command of BLIS as an experiment of ours.

`experiment_of(case)` returns the tables of a TOML file. A new flag is a line in `KEYS` or `IGNORED`, or a function that
writes what several flags mean together; `missing_flags` says what is still unknown.
"""
from math import inf

from support.blis import ACCELERATORS, BLOCK_SIZE, GATHERING, MODELS

UNLIMITED = 10**6               # --max-model-len is absent: no request is so long
NEVER_US = 10**12               # a horizon behind it: until nothing is left to do

SNAPSHOT_S = 0.05               # the newest version's --snapshot-refresh-interval

ROUTERS = {"always-busiest": "always_busiest", "round-robin": "round_robin"}
KEYS = {    # flag: where its value goes in the experiment file, and what makes it of the text
    "block-size-in-tokens": ("engine.block_size", int),
    "horizon": ("horizon_s", lambda text: inf if int(text) > NEVER_US else int(text) / 1e6),
    "long-prefill-token-threshold": ("engine.long_prefill_token_threshold", int),
    "max-model-len": ("engine.max_model_len", int),
    "max-num-batched-tokens": ("engine.max_num_batched_tokens", int),
    "max-num-running-reqs": ("engine.max_num_seqs", int),
    "max-num-scheduled-tokens": ("engine.max_num_batched_tokens", int),
    "max-num-seqs": ("engine.max_num_seqs", int),
    "num-instances": ("topology.replicas", int),
    "preemption-policy": ("engine.preemption_policy", str),
    "priority-policy": ("engine.priority_policy", str),
    "routing-policy": ("cluster.routing.policy", lambda name: ROUTERS[name]),
    "scheduler": ("engine.policy", str),
    "snapshot-refresh-interval": ("cluster.routing.snapshot_refresh_interval_s", lambda text: int(text) / 1e6),
    "tp": ("topology.tensor_parallel", int),
}
READ_BY_LATENCY = {"alpha-coeffs", "beta-coeffs", "hardware", "latency-model", "moe-comm-backend", "model"}
IGNORED = {     # files whose content is known otherwise, and what is only printed
    "counterfactual-k", "hardware-config", "metrics-path", "model-config-folder", "results-path",
    "summarize-trace", "total-kv-blocks", "trace-data", "trace-header", "trace-level"}
DEFAULT_ALPHA = (15563.199579, 777.3455, 45.907545)         # of the published trained-physics


def missing_flags(case):
    """Return the flags, with the values where these matter, that have no counterpart here yet."""
    known = KEYS.keys() | READ_BY_LATENCY | IGNORED
    missing = [f"--{flag}" for flag in case.options if flag not in known]
    policy = case.options.get("routing-policy", "round-robin")
    return missing + ([f"--routing-policy {policy}"] if policy not in ROUTERS else [])


def experiment_of(case):
    """Return the experiment file of a case as nested tables."""
    version = "head" if case.is_head else "0.7"
    experiment = {
        "engine": {"scheduler": "blis", "upstream_compat": True, "blis_version": version, "block_size": BLOCK_SIZE,
                   "num_gpu_blocks": case.num_blocks + 1, "max_model_len": UNLIMITED,
                   "priority_policy": "class" if case.is_head else "constant"},
        "latency": {"resolution_us": 1.0, "host": {"output_token_accumulates": True}},
        "workload": {"type": "trace", "path": str(case.folder / "trace.csv"),
                     "format": "support.blis_trace:BlisTrace"},
        "cluster": {"routing": {"snapshot_refresh_interval_s": SNAPSHOT_S if case.is_head else 0.0}},
        "output": {"token_times": True},
    }
    for flag, text in case.options.items():
        if flag in KEYS:
            path, read = KEYS[flag]
            put(experiment, path, read(text))
    PRICES[case.options["latency-model"]](case, experiment)
    return experiment


def put(experiment, path, value):
    """Set a key, `section.sub.key`, of nested tables."""
    *sections, key = path.split(".")
    for section in sections:
        experiment = experiment.setdefault(section, {})
    experiment[key] = value


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
