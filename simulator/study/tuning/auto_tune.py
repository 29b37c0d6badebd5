"""vLLM's auto_tune, its search and its result.txt, with simulated servers.

Source: vllm-project/vllm at 01277f9c, benchmarks/auto_tune/auto_tune.sh. For each pair of max_num_seqs and
max_num_batched_tokens 1,000 requests arrive at once; if the 99th percentile of their end-to-end latency is above the
limit, 100 requests arrive at the throughput that was reached, rounded down, plus one a second, then at one less, until
the limit holds. The pair with the highest throughput is the best. Numbers are compared as `vllm bench serve` prints
them, with two decimals. Its faults are kept: whole rates only, a percentile of 100 requests, a decision by other
requests than the measured ones.
"""
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from simulator import api
from simulator.assembly.site import Site
from simulator.config.experiment import Experiment
from simulator.config.layers import read_layers
from simulator.config.load import resolve
from simulator.errors import InputErrors, faults_of
from simulator.study.sweep.sources import hash_of_sources
from simulator.study.sweep.study_file import NOTHING, laid_over

RESULT = "result.txt"
AT_ONCE, AT_A_RATE = 1000, 100          # requests of a benchmark, by its rate
PERCENT = range(98, 89, -1)             # of the memory, tried from above until the server starts
NO_PROFILE = "none"                     # in place of the folder of a profile: no profile is made here


class Variables(NamedTuple):
    """Variables that auto_tune.sh reads, with its defaults; their names in lower case.

    model, tp : None: the experiment's.
    """

    model: str | None = None
    tp: int | None = None
    input_len: int = 4000
    output_len: int = 16
    max_model_len: int = 4096
    min_cache_hit_pct: int = 0
    max_latency_allowed_ms: float = 1e11
    num_seqs_list: tuple[int, ...] = (128, 256)
    num_batched_tokens_list: tuple[int, ...] = (512, 1024, 2048, 4096)


class Benchmark(NamedTuple):
    """Numbers that `vllm bench serve` prints, with two decimals.

    throughput, goodput : requests a second. e2el : ms, the 99th percentile.
    """

    throughput: float
    e2el: float
    goodput: float


def auto_tune(file: str | os.PathLike, overrides: Iterable[str], environment: Mapping[str, str],
              tell: Callable[[str], None]) -> tuple[str, list[str], bool]:
    """Search as auto_tune.sh does.

    Returns the experiment's name, the lines of result.txt, and whether any pair keeps the limit.

    Parameters
    ----------
    file : an experiment, for all that auto_tune.sh does not set: accelerators, latency, other options of the engine.
    environment : variables of auto_tune.sh.
    tell : takes a line for each benchmark.

    Raises
    ------
    InputErrors
        A variable or the experiment is invalid; no share of memory from 0.98 to 0.90 lets the server start.
    """
    variables, overrides = read_variables(environment), list(overrides)
    fixed = _fixed(variables)
    largest = _pair(variables.num_seqs_list[-1], variables.num_batched_tokens_list[-1])
    name, utilization = _utilization(file, overrides, fixed | largest)
    fixed["engine.gpu_memory_utilization"] = utilization
    tell(f"using gpu_memory_utilization={utilization}")
    lines, best = [f"hash:{hash_of_sources()}"], (0, 0, 0)
    for seqs in variables.num_seqs_list:
        for tokens in variables.num_batched_tokens_list:
            found = _of_pair(variables, partial(_run, file, overrides, fixed | _pair(seqs, tokens)), tell)
            lines.append(_line(seqs, tokens, found, variables))
            if found is not None and found[1].throughput > best[2]:
                best = (seqs, tokens, found[1].throughput)
    throughput = f"{best[2]:.2f}" if best[2] else "0"
    lines.append(f"best_max_num_seqs: {best[0]}, best_num_batched_tokens: {best[1]}, best_throughput: {throughput}, "
                 f"profile saved in: {NO_PROFILE}")
    return name, lines, best[2] > 0


def read_variables(environment: Mapping[str, str]) -> Variables:
    """Return the variables in the environment.

    Raises
    ------
    InputErrors
        All faults of the environment.
    """
    found: dict[str, Any] = {}
    faults = []
    for name in Variables._fields:
        text = environment.get(name.upper(), "").strip()
        if not text:
            continue
        try:
            found[name] = _READERS.get(name, _whole)(text)
        except ValueError as error:
            faults.append(f"{name.upper()}: {error}; found {text!r}")
    given = Variables(**found)
    total = given.input_len + given.output_len
    if total > given.max_model_len and not any("_LEN:" in fault for fault in faults):
        faults.append(f"INPUT_LEN({given.input_len}) + OUTPUT_LEN({given.output_len}) = {total}, which is > "
                      f"MAX_MODEL_LEN = {given.max_model_len}")
    if given.min_cache_hit_pct > 100:
        faults.append(f"MIN_CACHE_HIT_PCT: expected at most 100, found {given.min_cache_hit_pct}")
    if faults:
        raise InputErrors(faults)
    return given


def _of_pair(variables: Variables, bench: Callable[[dict], Benchmark | None],
             tell: Callable[[str], None]) -> tuple[str, Benchmark] | None:
    """Return the rate at which a pair keeps the limit, and its benchmark; None: no rate keeps it."""
    limit = variables.max_latency_allowed_ms
    measured = bench({"workload.num_requests": AT_ONCE, "workload.arrival.rate_per_s": float("inf")})
    if measured is None:                        # the server does not start at any rate
        return None
    tell(_measured_text("inf", measured))
    if measured.e2el <= limit:
        return "inf", measured
    for rate in range(int(measured.throughput) + 1, 0, -1):
        measured = bench({"workload.num_requests": AT_A_RATE, "workload.request_rate": float(rate)})
        tell(_measured_text(str(rate), measured))
        if measured is not None and measured.e2el <= limit:
            return str(rate), measured
    return None


def _measured_text(rate: str, measured: Benchmark | None) -> str:
    if measured is None:
        return f"request_rate: {rate}, nothing is served"
    return (f"request_rate: {rate}, e2el: {measured.e2el:.2f}, throughput: {measured.throughput:.2f}, goodput: "
            f"{measured.goodput:.2f}")


def _fixed(variables: Variables) -> dict[str, Any]:
    """Return the keys of all benchmarks: the server's options, and the requests of `--dataset-name random`."""
    prefix = variables.input_len * variables.min_cache_hit_pct // 100
    fixed: dict[str, Any] = {
        "engine.max_model_len": variables.max_model_len, "engine.enable_prefix_caching": True,
        "workload": {"type": "synthetic", "preset": "vllm_random", "input_len": variables.input_len - prefix,
                     "output_len": variables.output_len, "prefix_len": prefix},
        "slo.e2el_ms": variables.max_latency_allowed_ms}
    if variables.model is not None:
        fixed["model.name"] = variables.model
    if variables.tp is not None:
        fixed["topology.tensor_parallel"] = variables.tp
    return fixed


def _pair(seqs: int, tokens: int) -> dict[str, Any]:
    return {"engine.max_num_seqs": seqs, "engine.max_num_batched_tokens": tokens}


def _utilization(file: str | os.PathLike, overrides: list[str], fixed: dict[str, Any]) -> tuple[str, float]:
    """Return the experiment's name, and the largest share of memory with which the server starts."""
    for percent in PERCENT:
        experiment = _experiment(file, overrides, fixed | {
            "engine.gpu_memory_utilization": percent / 100, "workload.num_requests": AT_ONCE})
        refused = _refusal(experiment)
        if refused is None:
            return experiment.name, percent / 100
    raise InputErrors([*refused.faults, f"{file}: no gpu_memory_utilization from 0.98 to 0.90 lets the server start"])


def _run(file: str | os.PathLike, overrides: list[str], fixed: dict[str, Any],
         more: dict[str, Any]) -> Benchmark | None:
    """Return the numbers of a benchmark; None: the server does not start, or no request is served."""
    experiment = _experiment(file, overrides, fixed | more)
    if _refusal(experiment) is not None:
        return None
    summary = api.run(experiment).summary
    e2el = summary["e2el_ms"]["p99"]
    if e2el is None:
        return None
    return Benchmark(*(round(value, 2) for value in (summary["request_throughput"], e2el, summary["request_goodput"])))


def _refusal(experiment: Experiment) -> InputErrors | None:
    """Return why the server does not start; None: it starts."""
    try:
        with faults_of(experiment.name):
            for pool in experiment.all_pools():
                Site(pool).check()
    except InputErrors as errors:
        return errors
    return None


def _experiment(file: str | os.PathLike, overrides: list[str], more: dict[str, Any]) -> Experiment:
    layers = read_layers(file, overrides, "--set")
    layers.data.pop("workload", None)           # replaced by the benchmark's workload
    layers.name_after(file)
    return replace(resolve(laid_over(layers, more, "auto_tune")), output=NOTHING)


def _line(seqs: int, tokens: int, found: tuple[str, Benchmark] | None, variables: Variables) -> str:
    pair = f"max_num_seqs: {seqs}, max_num_batched_tokens: {tokens}"
    if found is None:
        return f"{pair} does not meet latency requirement {variables.max_latency_allowed_ms:.15g}"
    return f"{pair}, {_measured_text(*found)}"


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise ValueError("expected a whole number")
    return int(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("expected a number of milliseconds") from None


def _list(text: str) -> tuple[int, ...]:
    if not all(each.isdecimal() and int(each) for each in text.split()):
        raise ValueError('expected whole numbers above 0 with blanks between them, "128 256"')
    return tuple(map(int, text.split()))


_READERS = {"model": str, "max_latency_allowed_ms": _number, "num_seqs_list": _list, "num_batched_tokens_list": _list}
