"""Resolve a command line of trtllm-serve (PyTorch backend), as its sources document it; the engine was not run.

Source: NVIDIA/TensorRT-LLM, tensorrt_llm/commands/serve.py and llmapi/llm_args.py, a version of mid-2026.
"""
import itertools
import json
from collections.abc import Callable

from simulator.server_line.facts.answers import Answer, Question, Refused, Work
from simulator.server_line.facts.arguments import parse
from simulator.server_line.facts.flag_tables import flag_table

TAKEN = ("tp_size", "pp_size", "max_batch_size", "max_num_tokens", "max_beam_width",
         "kv_cache_free_gpu_memory_fraction", "kv_cache_dtype")
# Keys of the YAML file, which wins over flags: place in the file -> (ours, default).
OF_FILE = {"enable_chunked_prefill": ("enable_chunked_prefill", False),
           "kv_cache_config.enable_block_reuse": ("enable_block_reuse", True),
           "kv_cache_config.tokens_per_block": ("tokens_per_block", 32),
           "kv_cache_config.free_gpu_memory_fraction": ("kv_cache_free_gpu_memory_fraction", None),
           "kv_cache_config.dtype": ("kv_cache_dtype", None),
           "scheduler_config.capacity_scheduler_policy": ("capacity_scheduler_policy", "GUARANTEED_NO_EVICT"),
           "batch_wait_timeout_iters": ("batch_wait_timeout_iters", 0),
           "batch_wait_max_tokens_ratio": ("batch_wait_max_tokens_ratio", 0.0),
           "cuda_graph_config.max_batch_size": ("cuda_graph_max_batch_size", None),
           "max_batch_size": ("max_batch_size", None), "max_num_tokens": ("max_num_tokens", None),
           "max_seq_len": ("max_seq_len", None), "tensor_parallel_size": ("tp_size", None),
           "pipeline_parallel_size": ("pp_size", None), "moe_expert_parallel_size": ("ep_size", None)}
ON_FILE = "--config"


def resolve(question: Question, read_config: Callable[[str], list[str]] | None = None) -> Answer:
    """Return the values that the server resolves its command line to.

    Parameters
    ----------
    read_config : words of a --config file.

    Raises
    ------
    Refused
        By the parser's rules; more ranks than GPUs, or experts' ranks that do not divide.
    InputErrors
        A model of no known shape.
    """
    table = flag_table(question.engine, question.version)
    words = list(question.argv)
    model = words.pop(0) if words and not words[0].startswith("-") else None
    if model is None:
        raise Refused("parse", "missing value", "expected a model as the first word")
    given = parse(table, words) | {"model": model}
    work = Work(question, given, table.defaults())
    checkpoint = question.checkpoint_of(model)
    for key in TAKEN:
        work.set(key, work.flag(key), *(("flag", f"--{key}") if key in given else ("engine", "its default")))
    work.set("max_seq_len", given.get("max_seq_len", checkpoint.max_len), *(
        ("flag", "--max_seq_len") if "max_seq_len" in given else ("checkpoint", "the longest text of the model")))
    for place, (key, default) in OF_FILE.items():
        if key not in work.values and default is not None:
            work.set(key, default, "engine", f"default of {place}")
    work.set("enable_chunked_prefill", bool(given.get("enable_chunked_prefill")), "engine", "off by default")
    work.set("ep_size", given.get("ep_size") or 1, "engine", "experts split like the rest")
    if given.get("config") and read_config is not None:
        _take_file(work, read_config(given["config"]))
    work.set("dtype", checkpoint.dtype, "checkpoint", "config.json")
    work.set("quantization", checkpoint.method, "checkpoint", "config.json")
    if work.get("tp_size") * work.get("pp_size") > question.gpus and not given.get("gpus_per_node"):
        raise Refused("config", "more ranks than GPUs",
                      f"{work.get('tp_size') * work.get('pp_size')} ranks, {question.gpus} GPUs in the node")
    if checkpoint.num_heads % work.get("tp_size"):
        raise Refused("config", "heads by TP", f"{checkpoint.num_heads} attention heads on {work.get('tp_size')} ranks")
    if work.get("tp_size") % work.get("ep_size"):
        raise Refused("config", "experts by TP", f"ep_size {work.get('ep_size')} does not divide {work.get('tp_size')}")
    return work.answer()


def _take_file(work: Work, words: list[str]) -> None:
    """Set the values of the YAML file, in place of flags."""
    for flag, text in itertools.pairwise(words):
        if not flag.startswith("--"):
            continue
        name = flag[2:].replace("-", "_")
        try:
            value = json.loads(text)
        except ValueError:
            value = text if not text.startswith("--") else True
        table = value if isinstance(value, dict) else {"": value}
        for key, item in table.items():
            place = f"{name}.{key}" if key else name
            if place in OF_FILE:
                work.set(OF_FILE[place][0], item, "flag", f"{ON_FILE}: {place}")
            else:
                work.notes.append(f"{place} of the file is not modelled")
