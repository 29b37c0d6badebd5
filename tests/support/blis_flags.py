"""Every flag of BLIS's `replay` in three versions, and what a run of ours needs to know of each.

A flag is translated (`DEFAULTS` names it with what BLIS takes where it is absent, support/blis_experiment.py uses it),
changes nothing that is compared (`IGNORED`), or is part of what we do not run (`LEFT_OUT`). Whatever else a command
holds is unknown, and an error. Source: inference-sim (BLIS), cmd/root.go and cmd/replay.go at f90a1e3a (head), v0.7.10
(bb) and v0.7.1 (v071); of v0.6.9 (v069), whose `run` alone was recorded, what its commands have.
"""

ALIASES = {"max-num-running-reqs": "max-num-seqs", "max-num-scheduled-tokens": "max-num-batched-tokens"}
SWITCHES = {        # flags that need no value
    "enable-expert-parallel", "flow-control", "in-flight-eviction", "lazy-generation", "pd-transfer-contention",
    "queue-shedding", "shuffle-corpus", "summarize-trace"}
DEFAULTS = {        # None: worked out from the model, the trace or other flags
    "admission-latency": "0",
    "admission-policy": "always-admit",
    "block-size-in-tokens": "16",
    "cache-signal-delay": "50000",
    "concurrency": "0",
    "counterfactual-k": "0",
    "dispatch-order": "fifo",
    "dispatch-tick-interval": "1000",
    "dp": "1",
    "fairness-policy": "global-strict",
    "flow-control": "false",
    "hardware": None,
    "hardware-config": None,
    "horizon": None,
    "in-flight-eviction": "false",
    "kv-cache-util-threshold": "0.8",
    "kv-cpu-blocks": "0",
    "kv-offload-threshold": "0.9",      # later than v0.6.9 deprecated and ignored
    "kv-transfer-bandwidth": "100.0",
    "kv-transfer-base-latency": "0",
    "latency-model": None,
    "long-prefill-token-threshold": "0",
    "lora-config": "",
    "lora-scorer-weight": "0",
    "max-concurrency": "100",
    "max-gateway-queue-depth": "0",
    "max-model-len": "0",
    "max-num-batched-tokens": "2048",
    "max-num-seqs": "256",
    "model": None,
    "model-config-folder": None,
    "moe-comm-backend": "allgather_reducescatter",
    "num-instances": "1",
    "num-requests": "0",
    "per-band-capacity": "0",
    "pd-decider": "never",
    "pd-prefix-threshold": "512",
    "pd-transfer-bandwidth": "25.0",
    "pd-transfer-base-latency": "0.05",
    "pd-transfer-contention": "false",
    "policy-config": None,
    "preemption-policy": "fcfs",
    "priority-policy": "constant",
    "queue-depth-threshold": "5",
    "queue-shedding": "false",
    "request-ttl": "0",
    "routing-latency": "0",
    "routing-policy": "round-robin",
    "routing-scorers": "",
    "saturation-detector": "never",
    "scheduler": "fcfs",
    "seed": None,
    "session-mode": "fixed",
    "slo-targets": "",
    "snapshot-refresh-interval": "50000",
    "think-time-ms": "0",
    "token-bucket-capacity": "10000",
    "token-bucket-refill-rate": "1000",
    "tp": "1",
    "trace-data": None,
    "trace-level": "none",
    "trace-output": None,
    "usage-limit-threshold": "1.0",
    # of a policy file alone
    "gaie-kv-threshold": "0.8",
    "gaie-qd-threshold": "5",
    "slo-priorities": None,
    "tenant-budgets": None,
    "tier-shed-min-priority": "3",
    "tier-shed-threshold": "0",
}
DEFAULTS_OF = {     # version: what it takes instead
    "head": {},
    "bb": {"snapshot-refresh-interval": "0"},
    "v071": {"snapshot-refresh-interval": "0", "cache-signal-delay": "2000000"},
    "v069": {"snapshot-refresh-interval": "0"},     # of one replica, which nobody looks at
}
IGNORED = {
    **dict.fromkeys(("alpha-coeffs", "beta-coeffs", "total-kv-blocks"), "its effect is read from the log"),
    **dict.fromkeys(("gpu-memory-utilization", "kv-cache-dtype"), "it sizes the KV cache, whose blocks the log tells"),
    "defaults-filepath": "its coefficients and sizes are in the log",
    "enable-expert-parallel": "experts are spread over all ranks in any case, and their exchange costs the same",
    "lazy-generation": "it has no effect on a replay",
    "log": "how much is logged",
    "vllm-version": "it chooses coefficients, which are in the log",
    "trace-header": "what it says of KV tiers is looked for, the rest describes how the trace came about",
    **dict.fromkeys(("decode-instances", "prefill-decode-instances", "prefill-instances"),
                    "which replicas there are is read from the log; `replay` of v0.7.1 makes all alike"),
    **dict.fromkeys(("metrics-path", "results-path"), "where results are written"),
    "summarize-trace": "what is printed of decisions; what was printed is compared",
    **dict.fromkeys(("fitness-weights", "slo-ttft", "slo-itl", "slo-e2e"), "how figures are weighed that are compared"),
    **dict.fromkeys(("detectors", "saturation-config", "saturation-report", "saturation-final-window",
                     "post-hoc-detector", "saturation-threshold-ms"), "a verdict on the finished run"),
    "workload-spec": "of `run`: the trace that it exports is read; without one, this, where nothing in it is drawn",
}
_TIERS = "a file of KV tiers, not in the header of the trace"
_ENCODERS, _UNLIKE = "encode replicas", "pools of unlike replicas"
_SESSIONS = "sessions of which so many are active at once"
_DRAWN = "a workload that BLIS draws itself, and does not export"
LEFT_OUT = {        # flag: what leaves it without effect, and what else it is part of
    "autoscaler": ("", "an autoscaler; see test_blis_autoscaler.py"),
    "instance-lifecycle": ("", "replicas that come and go; see test_blis_autoscaler.py"),
    "model-autoscaler-interval-us": ("0", "an autoscaler; see test_blis_autoscaler.py"),
    "node-pools": ("", "node pools; see test_blis_autoscaler.py"),
    "num-speculative-tokens": ("0", "speculative decoding, later than f90a1e3a"),
    "kv-offload-config": ("", _TIERS),
    "encode-instances": ("0", _ENCODERS),
    **{f"{pool}-{what}": (inert, _UNLIKE) for pool in ("prefill", "decode") for what, inert in (
        ("hardware", ""), ("latency-model", ""), ("max-model-len", "0"), ("moe-comm-backend", ""),
        ("routing-scorers", ""), ("tp", "0"))},
    **dict.fromkeys(("concurrent-sessions", "total-sessions"), ("0", _SESSIONS)),
    "lora-adapter-capacity": ("0", "a number of LoRA adapters that is not that of their file"),
    "workload": ("", _DRAWN), "rate": ("", _DRAWN), "think-time-dist": ("", "times to think that BLIS draws"),
}
# Flags that refine what one of LEFT_OUT switches on.
REFINING = {
    "bernoulli-f", "dpp-eta", "dpp-ttft-slo-d", "dpp-v", "encode-decider",
    "lora-footprint-bytes-per-rank",
    "lora-load-bandwidth-bytes-us", "lora-load-base-latency-us", "output-tokens", "output-tokens-max",
    "output-tokens-min", "output-tokens-stdev", "pd-direct-decode-threshold", "prefix-tokens", "prompt-tokens",
    "prompt-tokens-max", "prompt-tokens-min", "prompt-tokens-stdev",
    "shuffle-corpus", "speculative-acceptance-rate", "speculative-method", "timeout", "turn-timeout"}
# Where a policy file says what a flag says: its sections and key; the flag goes first.
IN_POLICY_FILE = {
    "admission-policy": ("admission", "policy"), "token-bucket-capacity": ("admission", "token_bucket_capacity"),
    "token-bucket-refill-rate": ("admission", "token_bucket_refill_rate"),
    "tier-shed-threshold": ("admission", "tier_shed_threshold"),
    "tier-shed-min-priority": ("admission", "tier_shed_min_priority"),
    "gaie-qd-threshold": ("admission", "gaie_qd_threshold"), "gaie-kv-threshold": ("admission", "gaie_kv_threshold"),
    "slo-priorities": ("admission", "slo_priorities"), "slo-targets": ("admission", "slo_targets"),
    "routing-policy": ("routing", "policy"), "routing-scorers": ("routing", "scorers"),
    "priority-policy": ("priority", "policy"), "scheduler": ("scheduler",),
    "preemption-policy": ("preemption", "policy"), "tenant-budgets": ("tenant_budgets",),
    "autoscaler": ("autoscaler",), "node-pools": ("node_pools",), "instance-lifecycle": ("instance_lifecycle",),
}


def options_of(words):
    """Return {flag: text} of a command line, `--flag value` or `--flag=value`; a switch is "true"."""
    options, i = {}, 0
    while i < len(words):
        word, i = words[i], i + 1
        if not word.startswith("--"):
            continue
        flag, has_value, text = word[2:].partition("=")
        if not has_value and flag in SWITCHES:
            text = "true"
        elif not has_value:
            text, i = words[i] if i < len(words) else "", i + 1
        options[ALIASES.get(flag, flag)] = text
    return options


def unknown_flags(options):
    """Return the flags of which this file knows nothing."""
    return sorted(options.keys() - DEFAULTS.keys() - IGNORED.keys() - LEFT_OUT.keys() - REFINING)


def from_policy_file(policies):
    """Return {flag: value} of what a policy file says.

    Raises
    ------
    ValueError
        It has a key that no flag stands for.
    """
    found, known = {}, set(IN_POLICY_FILE.values())
    for section, content in policies.items():
        for key, value in ({(section,): content} if (section,) in known else {
                (section, key): value for key, value in content.items()}).items():
            if key not in known:
                raise ValueError(f"policy file: {'.'.join(key)} has no counterpart here")
            found[next(flag for flag, place in IN_POLICY_FILE.items() if place == key)] = value
    return found


def settings(options, version, policies):
    """Return what holds: each translated flag as given, else as the policy file says, else the version's default."""
    given = from_policy_file(policies) | options
    return DEFAULTS | DEFAULTS_OF[version] | {flag: text for flag, text in given.items() if flag in DEFAULTS}


def left_out(options, policies):
    """Return why a command is not run; None if its flags are no reason."""
    given = from_policy_file(policies) | options
    return next((reason for flag, (inert, reason) in LEFT_OUT.items() if given.get(flag, inert) != inert), None)
