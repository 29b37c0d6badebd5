"""Command lines resolved by the real engines, below ../shared/goldens/engine_args: every line of every *.jsonl there.

A line holds argv, device, gpus, version and env, and either `resolved` or `error`. The engine and its version are read
from the line; nothing depends on a file's name, an id or a number of lines.
"""
import json
import re
from functools import cache
from importlib import import_module

from simulator.domain.server_defaults.cards import card_of
from simulator.errors import InputErrors
from simulator.server_line.facts.answers import Question, Refused
from simulator.server_line.facts.checkpoints import checkpoint_of
from simulator.server_line.facts.flag_tables import versions
from support.goldens import GOLDENS

FOLDER = GOLDENS / "engine_args"
CARDS = {"H100-80GB": "h100-sxm-80gb", "H200": "h200-sxm-141gb", "A100-80GB": "a100-sxm-80gb",
         "A100-40GB": "a100-sxm-40gb", "L40S": "l40s", "L4": "l4", "A10": "a10", "RTX4090": "rtx-4090",
         "B200": "b200-sxm-180gb", "GB200": "gb200", "RTXPRO6000": "rtx-pro-6000-server"}
DRAWN = {"random_seed"}             # a number that the engine draws
# The cause of a recorded refusal, by the first pattern that its message shows.
CAUSES = (
    ("unknown flag", r"unrecognized arguments"), ("ambiguous flag", r"ambiguous option"),
    ("not a choice", r"invalid choice"), ("missing value", r"expected (one|at least one) argument"),
    ("role of the connector", r"specify kv_role"),
    ("bad value", r"cannot be converted|Input should be an object|invalid \w+ value|argument error"),
    ("tool choice without parser", r"requires --tool-call-parser"),
    ("longer than the model", r"is greater than the derived"),
    ("dtype of the model", r"does not support float16"), ("dtype of the quantisation", r"not supported for quantiz"),
    ("quantisation of the checkpoint", r"does not match the quantization"),
    ("unknown quantisation", r"Unknown quantization method"),
    ("deprecated quantisation", r"quantization method .* is deprecated"),
    ("no file of the quantisation", r"Cannot find the config"),
    ("share of memory", r"gpu_memory_utilization\s+Input should be"),
    ("unknown KV dtype", r"Invalid kv_cache_dtype"),
    ("KV dtype of another model", r"kv_cache_dtype=.* is incompatible"),
    ("EPLB without experts in parallel", r"enable_expert_parallel must be True"),
    ("EPLB on one rank", r"EPLB requires tensor"), ("redundant experts without EPLB", r"EPLB is not\s+enabled"),
    ("DCP by TP", r"must be divisible by dcp_size"),
    ("DCP by KV heads", r"Decode context parallelism|query heads per KV"),
    ("more ranks than GPUs", r"World size .* is larger"), ("heads by TP", r"attention heads .* divisible"),
    ("no experts", r"Number of experts in the model must be greater"),
    ("external ranks of a dense model", r"Non-MoE models do not support external"),
    ("drafts without model", r"without speculative model"), ("unsupported drafts", r"Unsupported speculative method"),
    ("adapters with drafts", r"Consider increasing max_num_batched_tokens or"),
    ("fewer tokens than sequences", r"must be greater than or equal to max_num_seqs"),
    ("batch below length without chunks", r"smaller than max_model_len"),
    ("bad number", r"greater than or equal to 1"), ("optimisation level", r"should be 0, 1, 2 or 3"),
    ("graph sizes disagree", r"should be consistent with the max"),
    ("two places for one value", r"are mutually exclusive$"), ("unknown connector", r"Unsupported connector"),
    ("micro-batches", r"Microbatching"), ("async scheduling", r"[Aa]sync scheduling is"),
    ("cache switched on and off", r"mutually exclusive and cannot be used"),
    ("attention ranks by TP", r"^$"), ("experts' messages", r"MoE A2A requires"))


@cache
def lines():
    """Return the recorded lines of each file, by its name."""
    return {path.name: [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
            for path in sorted(FOLDER.glob("*.jsonl"))}


def engine_of(record):
    """Return engine and version of a recorded line."""
    name, _, number = record["version"].rpartition(" ")
    engine = name or "vllm"
    return engine, next(version for version in versions(engine) if f"{number}.".startswith(f"{version}."))


def resolved(record):
    """Return our answer to a recorded line: flat values, or (stage, cause)."""
    engine, version = engine_of(record)
    question = Question(engine, version, tuple(record["argv"]), card_of(CARDS[record["device"]]), record["gpus"],
                        checkpoint_of, record.get("env") or {})
    try:
        answer = import_module(f"simulator.server_line.{engine}.resolve").resolve(question)
    except Refused as refused:
        return refused.stage, refused.cause
    except InputErrors as unknown:
        return "unknown", str(unknown)
    return dict(flat(answer.values))


def recorded(record):
    """Return what the engine answered: flat values, or (stage, cause)."""
    if "error" not in record:
        return {key: value for key, value in flat(record["resolved"]) if key not in DRAWN}
    message = record["error"]["message"].strip()
    cause = next((cause for cause, pattern in CAUSES if re.search(pattern, message)), f"no cause for: {message}")
    return record["error"]["stage"], cause


def flat(table, path=""):
    """Yield ("table.key", value) of nested tables; an empty table is a value."""
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def difference(record):
    """Return how our answer differs from the engine's, in a line; None: not at all."""
    ours, theirs = resolved(record), recorded(record)
    if ours == theirs:
        return None
    told = f"{record['id']} on {record['device']}: {' '.join(record['argv'])}"
    if not (isinstance(ours, dict) and isinstance(theirs, dict)):
        return f"{told}\n    ours {short(ours)}, recorded {short(theirs)}"
    keys = sorted(key for key in ours.keys() | theirs.keys() if ours.get(key, "absent") != theirs.get(key, "absent"))
    return "\n".join([told, *(f"    {key}: ours {ours.get(key, 'absent')}, recorded {theirs.get(key, 'absent')}"
                              for key in keys)])


def short(answer):
    return "resolved" if isinstance(answer, dict) else answer
