"""vLLM's compilation and CUDA graphs.

Sources: vLLM 0.32.0 and 0.33.0, vllm/config/vllm.py (_set_cudagraph_sizes, optimisation levels),
vllm/config/compilation.py.
"""
from simulator.domain.server_defaults.vllm import GPT_OSS_GRAPHS, Captured, drops_graphs, graph_sizes
from simulator.domain.vllm_versions import behaviour_of
from simulator.server_line.facts.answers import Refused, Work
from simulator.server_line.facts.checkpoints import Checkpoint
from simulator.server_line.vllm.rules import RULES

MODES = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
COMPILATION = ("NONE", "STOCK_TORCH_COMPILE", "DYNAMO_TRACE_ONCE", "VLLM_COMPILE")
BY_LEVEL = {"O0": "NONE", "O1": "PIECEWISE", "O2": "FULL_AND_PIECEWISE", "O3": "FULL_AND_PIECEWISE"}
WITHOUT_PIECES = {"PIECEWISE": "NONE", "FULL_AND_PIECEWISE": "FULL_DECODE_ONLY"}
# Architectures that break their graphs at attention by themselves, without compilation; the second set since 0.33.
BREAKABLE = {
    "DeepseekV32MTPModel", "DeepseekV32ForCausalLM", "DeepseekV4ForCausalLM", "DeepseekV4ForConditionalGeneration",
    "DeepSeekV4MTPModel", "DeepseekV41ForCausalLM", "Dots3NoteForCausalLM", "Glm5NextForCausalLM",
    "Glm5NextForConditionalGeneration", "GlmMoeDsaForCausalLM", "HYV4ForCausalLM", "InklingForCausalLM",
    "InklingForConditionalGeneration", "KimiK3ForConditionalGeneration", "KimiLinearForCausalLM",
    "MiniMaxM3SparseForCausalLM", "MiniMaxM3SparseForConditionalGeneration", "Qwen4ExpForCausalLM",
    "Qwen4ExpForConditionalGeneration"}
BREAKABLE_SINCE_033 = {"AliceAIForCausalLM", "BeamForCausalLM", "MuseSpark1xForCausalLM",
                       "MuseSparkForConditionalGeneration", "Step5ForCausalLM", "Step5ForConditionalGeneration"}
FULL = ("FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")


def compilation_of_flag(work: Work) -> dict:
    """Return the compilation configuration of its flag.

    Raises
    ------
    Refused
        A mode that is none.
    """
    asked = dict(work.flag("compilation_config") or {})
    mode = asked.get("cudagraph_mode")
    if mode is not None and str(mode).upper() not in MODES:
        raise Refused("parse", "bad value", f"cudagraph_mode {mode}: expected one of {', '.join(MODES)}")
    return asked


def compilation_of(work: Work, asked: dict) -> dict:
    """Return the compilation configuration with the flags for one key of it.

    Raises
    ------
    Refused
        Sizes in two places.
    """
    for key in ("cudagraph_capture_sizes", "max_cudagraph_capture_size"):
        if (value := work.flag(key)) is not None:
            if asked.get(key) is not None:
                raise Refused("config", "two places for one value", f"{key} as a flag and in compilation_config")
            asked = asked | {key: value}
    return asked


def resolve_level(work: Work) -> str:
    """Set the optimisation level and the mode of performance.

    Raises
    ------
    Refused
        A level that is none: `-O.key=value` is read as one.
    """
    level = str(work.flag("optimization_level"))
    level = level if level.startswith("O") else f"O{level}"
    if level not in BY_LEVEL:
        raise Refused("config", "optimisation level", f"optimization_level {level[1:]}: expected 0, 1, 2 or 3")
    work.set("optimization.optimization_level", level, *(
        ("flag", "--optimization-level") if "optimization_level" in work.given else ("engine", "-O2")))
    work.take("optimization", "performance_mode")
    return level


def resolve_modes(work: Work, checkpoint: Checkpoint, asked: dict, level: str) -> None:
    """Set how the model is compiled, and which graphs are captured."""
    eager = work.get("model.enforce_eager")
    mode = asked.get("mode")
    mode = COMPILATION[mode] if isinstance(mode, int) else (str(mode).upper() if mode is not None else None)
    graphs = str(asked["cudagraph_mode"]).upper() if asked.get("cudagraph_mode") is not None else None
    breaks = _breaks(work, checkpoint)
    if eager:
        mode, graphs = "NONE", "NONE"
    if work.question.environment.get("TORCH_COMPILE_DISABLE") == "1":
        mode = "NONE"
    if breaks:
        mode = "NONE"
    mode = mode or ("NONE" if level == "O0" else "VLLM_COMPILE")
    why = "--compilation-config" if graphs and not eager else f"-{level}"
    graphs = graphs or BY_LEVEL[level]
    if mode != "VLLM_COMPILE" and not breaks and graphs in WITHOUT_PIECES:
        graphs, why = WITHOUT_PIECES[graphs], f"{graphs} needs compilation, which is off"
    work.set("cudagraph.mode", mode)
    work.set("cudagraph.cudagraph_mode", graphs, "flag" if why.startswith("--") else "engine",
             "--enforce-eager" if eager else why)
    work.set("cudagraph.cudagraph_num_of_warmups", asked.get("cudagraph_num_of_warmups", 0))
    work.set("cudagraph.compile_sizes", list(asked.get("compile_sizes") or []))
    work.set("cudagraph.use_inductor_graph_partition", bool(asked.get("use_inductor_graph_partition", False)))


def _breaks(work: Work, checkpoint: Checkpoint) -> bool:
    asked = work.question.environment.get("VLLM_USE_BREAKABLE_CUDAGRAPH")
    if asked is not None:
        return asked not in ("0", "false", "False", "")
    known = BREAKABLE | BREAKABLE_SINCE_033 if RULES[work.question.version].has_late_graphs else BREAKABLE
    return checkpoint.architecture in known


def resolve_sizes(work: Work, checkpoint: Checkpoint, asked: dict, drafts: int) -> None:
    """Set the graphs' sizes, and the mode as the use of the model allows it.

    Raises
    ------
    Refused
        Given sizes and a given maximum that disagree.
    """
    mode = work.get("cudagraph.cudagraph_mode")
    if work.get("model.runner_type") == "pooling" and mode in FULL:
        mode = work.set("cudagraph.cudagraph_mode", "PIECEWISE", "engine", "pooling has no full graphs")
    if work.get("model.enforce_eager"):
        mode = work.set("cudagraph.cudagraph_mode", "NONE", "flag", "--enforce-eager")
    else:
        work.set("cudagraph.cudagraph_num_of_warmups", 1)
    if mode == "NONE":
        work.set("cudagraph.max_cudagraph_capture_size", 0)
        work.set("cudagraph.cudagraph_capture_sizes", [])
        return
    most = asked.get("max_cudagraph_capture_size")
    given = asked.get("cudagraph_capture_sizes")
    if most is None and given is None and checkpoint.architecture == "GptOssForCausalLM":
        most = GPT_OSS_GRAPHS
    sizes = _given(work, given) if given is not None else _sizes(work, most, drafts)
    largest = sizes[-1] if sizes else 0
    if most is not None and most != largest and given is not None:
        raise Refused("config", "graph sizes disagree", f"max_cudagraph_capture_size {most}, largest size {largest}")
    why = ("flag", "--cudagraph-capture-sizes") if given is not None else ("engine", (
        f"up to {largest}: 1024 on compute capability 10.x and for gpt-oss, else 512; twice the sequences, the batch"))
    work.set("cudagraph.max_cudagraph_capture_size", largest, *why)
    work.set("cudagraph.cudagraph_capture_sizes", sizes, *why)


def _given(work: Work, given: list[int]) -> list[int]:
    return sorted(size for size in set(given) if size <= work.get("scheduler.max_num_batched_tokens"))


def _sizes(work: Work, most: int | None, drafts: int) -> list[int]:
    return graph_sizes(Captured(
        work.get("scheduler.max_num_batched_tokens"), work.get("scheduler.max_num_seqs"), 1 + drafts, most,
        fine=work.get("optimization.performance_mode") == "interactivity"), behaviour_of(work.question.version),
        work.question.card.major == 10)


def drop_graphs_of_deepep(work: Work) -> None:
    """Drop the graphs that DeepEP's kernels for throughput rule out."""
    ranks = work.values["parallel"]
    data = ranks["data_parallel_size"] if work.get("model.is_moe") else 1
    if drops_graphs(ranks["all2all_backend"], data, True) and work.get("cudagraph.mode") == "VLLM_COMPILE":
        work.set("cudagraph.cudagraph_mode", "NONE", "engine", "deepep_high_throughput with data parallelism")
