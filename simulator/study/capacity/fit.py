"""Layouts of a model on its accelerators that fit, by the memory plan: nothing is simulated."""
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from simulator.assembly.site import Site
from simulator.config.experiment import Experiment
from simulator.config.layers import Layers
from simulator.config.load import resolve
from simulator.config.models import model_of
from simulator.errors import InputErrors, KeyFault
from simulator.study.sweep.study_file import laid_over
from simulator.study.telling.screen import lines_of
from simulator.study.telling.screen import table_of as fitted

GB = 1e9
WAYS = ("tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel")


class Fit(NamedTuple):
    """One layout of one replica.

    ways : by name of `WAYS`. refusal : why it is invalid; None: it fits, and the other fields are known.
    weights_gb, workspace_gb : of one GPU; activations, memory outside PyTorch, recurrent state.
    kv_tokens : KV capacity of the replica, all ranks together. sequences : of max_model_len that fit at once, on all
    ranks.
    rule : by which the engine gives memory to KV, with its share. lines : the arithmetic of the memory plan.
    report : the engine's own lines on its KV cache, of one rank. site : its facts.
    """

    gpus: int
    ways: dict[str, int]
    refusal: str | None
    max_model_len: int = 0
    weights_gb: float = 0.0
    workspace_gb: float = 0.0
    kv_tokens: int = 0
    sequences: float = 0.0
    rule: str = ""
    lines: tuple[str, ...] = ()
    report: tuple[str, ...] = ()
    site: Site | None = None


class Asked(NamedTuple):
    """An experiment with the pool to lay out.

    pool : number of the pool; -1: the experiment has none.
    """

    file: str
    layers: Layers
    base: Experiment
    pool: int

    @property
    def prefix(self) -> str:
        """Prefix of the keys of the pool's topology."""
        in_file = isinstance(self.layers.data.get("pools"), list)
        return f"pools.{self.pool}.topology." if self.pool >= 0 and in_file else "topology."

    def of(self, experiment: Experiment):
        """Return the pool."""
        return experiment.all_pools()[max(self.pool, 0)]


def layouts(gpus: int, has_experts: bool) -> Iterator[dict[str, int]]:
    """Yield the layouts of one replica on a number of GPUs, tensor parallelism first.

    Attention is repeated (data parallelism) only where there are experts to share; experts are sliced as the rest is,
    or spread over all ranks of a stage.
    """
    for tensor in _divisors(gpus):
        for pipeline in _divisors(gpus // tensor):
            data = gpus // tensor // pipeline
            if data > 1 and not has_experts:
                continue
            for experts in dict.fromkeys((1, tensor * data) if has_experts else (1,)):
                yield dict(zip(WAYS, (tensor, pipeline, data, experts), strict=True))


def fits(asked: Asked, gpus: Sequence[int]) -> Iterator[Fit]:
    """Yield the result of each layout.

    Raises
    ------
    InputErrors
        The experiment names no model and hardware, or gives its KV blocks.
    """
    pool = asked.of(asked.base)
    if pool.model is None or pool.hardware is None:
        raise InputErrors([KeyFault("model: expected [model] and [hardware]: what does not say its size cannot be laid "
                                    "out")])
    if pool.engine.num_gpu_blocks is not None:
        raise InputErrors([KeyFault("engine.num_gpu_blocks: expected none: how many there would be is what is asked")])
    has_experts = model_of(pool.model).moe is not None
    for count in gpus:
        for ways in layouts(count, has_experts):
            yield _fit(asked, count, ways)


def _fit(asked: Asked, gpus: int, ways: dict[str, int]) -> Fit:
    try:
        experiment = resolve(laid_over(asked.layers, {asked.prefix + name: degree for name, degree in ways.items()}))
        site = Site(asked.of(experiment)).check()
    except InputErrors as errors:
        return Fit(gpus, ways, "; ".join(_bare(fault, asked) for fault in dict.fromkeys(errors.faults)))
    plan, ranks = site.memory, ways["data_parallel"]
    size = plan.kv_size
    return Fit(gpus, ways, None, plan.max_model_len, plan.loaded_bytes / GB, plan.workspace_bytes / GB,
               size.tokens * ranks, size.concurrency * ranks, plan.share.rule, tuple(site.explain()),
               tuple(site.kv_lines), site)


def _bare(fault: str, asked: Asked) -> str:
    """Return a fault without the names of file and key, which are in the table."""
    for start in (f"{asked.file}: ", "study: ", "overrides: ", "engine.num_gpu_blocks: ", "topology: "):
        fault = fault.removeprefix(start)
    return fault


def _divisors(number: int) -> list[int]:
    return [each for each in range(number, 0, -1) if number % each == 0]


def content_of(found: Sequence[Fit], name: str) -> dict[str, Any]:
    """Return the content that `fit --json` prints."""
    return {"name": name, "layouts": [
        {"gpus": each.gpus, **each.ways, "fits": each.refusal is None, "refusal": each.refusal,
         **({} if each.refusal is not None else {
             "max_model_len": each.max_model_len, "weights_gb": each.weights_gb, "workspace_gb": each.workspace_gb,
             "kv_tokens": each.kv_tokens, "sequences": each.sequences, "rule": each.rule,
             "engine_log": list(each.report)})} for each in found]}


def table_of(found: Sequence[Fit], title: str) -> str:
    """Return the layouts as a table, above reasons of misfits and engines' reports."""
    length = next((each.max_model_len for each in found if each.refusal is None), None)
    names = ["GPUs", "TP", "PP", "DP", "EP", "weights", "workspace", "KV tokens",
             "sequences" + (f" of {length:,}" if length else "")]
    rows, refusals = [names], {}
    for each in found:
        head = [str(each.gpus), *map(str, each.ways.values())]
        if each.refusal is None:
            rows.append([*head, f"{each.weights_gb:.1f} GB", f"{each.workspace_gb:.1f} GB", f"{each.kv_tokens:,}",
                         f"{each.sequences:.2f}"])
        else:
            number = refusals.setdefault(each.refusal, len(refusals) + 1)
            rows.append([*head, "-", "-", "-", f"no ({number})"])
    rules = list(dict.fromkeys(each.rule for each in found if each.rule))
    top = [title, "of one GPU weights and workspace, of the replica the rest", *rules, ""]
    below = [*[""][:len(refusals)], *(f"({number}) {text}" for text, number in refusals.items())]
    reports = [lines_of(f"{ways_of(each)}: {line}") for each in found for line in each.report]
    return "\n".join([lines_of("\n".join(top)), fitted(rows, 5), *map(lines_of, below),
                      *(["", "the engine's own lines, of one rank:"] if reports else []), *reports])


def ways_of(found: Fit) -> str:
    """Return the degrees of a layout in words."""
    named = zip(("TP", "PP", "DP", "EP"), found.ways.values(), strict=True)
    return " ".join(f"{name} {degree}" for name, degree in named if degree > 1) or "one GPU"
