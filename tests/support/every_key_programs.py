"""As every_key_sections.py, for the keys of [cluster.programs]."""
from support.every_key import ABSENT, acts

AGENTS = {
    "topology__replicas": 2, "engine__policy": "priority", "engine__max_num_seqs": 1,
    "workload__type": "sessions", "workload__path": ABSENT, "workload__num_sessions": 10,
    "workload__arrival": {"process": "poisson", "rate_per_s": 40.0},
    "workload__sessions": {
        "rounds": {"distribution": "constant", "value": 4},
        "new_tokens": {"distribution": "uniform", "min": 20, "max": 90},
        "output_tokens": {"distribution": "uniform", "min": 2, "max": 12},
        "think_time_s": {"distribution": "exponential", "mean": 0.1}},
    "cluster__programs__scheduler_interval_s": 0.05, "cluster__programs__buffer_per_program": 20}
WAITS = AGENTS | {"cluster__programs__resume_timeout_s": 0.06}
DEMOTES = AGENTS | {"cluster__programs__soft_demote_threshold": 0.1}
HELD = {key: value for key, value in AGENTS.items() if not key.startswith("cluster")} | {
    "topology__replicas": 1, "engine__max_num_seqs": 4, "engine__num_gpu_blocks": 40}
PREDICTED = HELD | {"engine__kv_retention__policy": "predicted"}

PROGRAMS = {
    **{f"scheduler:vllm.kv_retention.{key}": case for key, case in {
        "policy": acts("lru", "pin", **HELD), "max_share": acts(1.0, 0.1, **PREDICTED),
        "ttl_s": acts(0.01, 10.0, **HELD, engine__kv_retention__policy="ttl"),
        "error_sigma": acts(0.0, 5.0, **PREDICTED)}.items()},
    "cluster.programs.policy": acts("thunderagent", "none", **{
        key: value for key, value in AGENTS.items() if not key.startswith("cluster")}),
    **{f"programs:thunderagent.{key}": case for key, case in {
        "pause_threshold": acts(0.95, 0.85, **AGENTS), "pause_target": acts(0.8, 0.3, **AGENTS),
        "soft_demote_threshold": acts(0.8, 0.1, **AGENTS),
        "soft_demote_priority_jump": acts(-2, 0, **DEMOTES), "resume_priority_boost": acts(1, 9, **AGENTS),
        "resume_hysteresis": acts(0.1, 0.5, **AGENTS), "acting_token_weight": acts(1.0, 0.1, **AGENTS),
        "acting_decay_tau_s": acts(1.0, 0.01, **WAITS), "buffer_per_program": acts(20, 0, **AGENTS),
        "scheduler_interval_s": acts(0.05, 0.02, **AGENTS), "offload_tokens": acts(0, 400, **AGENTS),
        "resume_timeout_s": acts(1800.0, 0.06, **AGENTS),
    }.items()}}
