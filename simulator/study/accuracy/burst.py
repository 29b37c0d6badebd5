"""Form `burst`: a CSV file, a row for each run of `vllm bench serve` with random prompts, all sent at once.

Columns in the words of that benchmark: Successful requests, Total input tokens, Total generated tokens, Benchmark
duration (s), Output token throughput (tok/s), Mean TTFT (ms), Mean TPOT (ms); Maximum request concurrency, if the
clients were a closed loop; `serve`, the command line of the server, and `sub`, the heading of the load, as in the pages
of gpustack's performance lab.

Replay of a run: as many requests at once, prompts of the mean length and `template_tokens`, of which all share the
first `shared_tokens`, outputs of their mean length.
"""
import math
import shlex
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from simulator.errors import InputErrors, did_you_mean
from simulator.server_line.facts.checkpoints import checkpoint_of
from simulator.study.accuracy.case import Case
from simulator.study.accuracy.csv_rows import read_rows, selected
from simulator.study.accuracy.deployed import PAGES, SCHEDULERS

LEVEL = "request"
ROLES = ("points",)
PEER_KEY = None
METRICS = {"Mean TTFT (ms)": "ttft", "Mean TPOT (ms)": "tpot", "Benchmark duration (s)": "makespan",
           "Output token throughput (tok/s)": "throughput"}
REQUESTS, PROMPTS, OUTPUTS = "Successful requests", "Total input tokens", "Total generated tokens"
CLIENTS = "Maximum request concurrency"
NEEDED = ("serve", "sub", REQUESTS, PROMPTS, OUTPUTS, *METRICS)
STARTS = {"vllm": ("vllm", "serve"), "sglang": ("python3", "-m", "sglang.launch_server"), "trtllm": ("trtllm-serve",)}
# Option of a server -> key of the experiment; "" where it does not change the time of a request.
KEYS = {
    "vllm": {"-tp": "topology.tensor_parallel", "-pp": "topology.pipeline_parallel", "--max-model-len":
             "engine.max_model_len", "--max-num-batched-tokens": "engine.max_num_batched_tokens",
             "--async-scheduling": "engine.async_scheduling"},
    "sglang": {"--tp": "topology.tensor_parallel", "--tp-size": "topology.tensor_parallel", "--host": "", "--port": "",
               "--tool-call-parser": "", "--reasoning-parser": "", "--model": "model", "--model-path": "model"},
    "trtllm": {"--tp_size": "topology.tensor_parallel", "--ep_size": "topology.expert_parallel",
               "--max_seq_len": "engine.max_model_len", "--max_num_tokens": "engine.max_num_tokens",
               "--enable_chunked_prefill": "engine.enable_chunked_context"}}


class Parameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selection of rows, and the facts that they lack."""

    framework: Annotated[Literal["vllm", "sglang", "trtllm"], Meta(description="server of the rows to read")]
    select: Annotated[dict[str, str], Meta(description="column -> its value in the rows to read")] = {}
    load: Annotated[str, Meta(description="first letters of the heading of the loads to read")] = "random"
    hardware: Annotated[str, Meta(min_length=1, description="name in hardware/")]
    template_tokens: Annotated[int, Meta(ge=0, le=10_000, description=(
        "tokens of the chat template, which the benchmark does not count"))] = 0
    shared_tokens: Annotated[int, Meta(ge=0, le=10_000, description=(
        "of template_tokens, those before the prompt, alike in all requests: a prefix cache has them after the first"
    ))] = 0


def read(data_set) -> list[Case]:
    """Return a case for each row.

    Raises
    ------
    InputErrors
        Every fault of the file, with its line; no row is selected.
    """
    path, parameters = data_set.path("points"), data_set.parameters
    rows, faults = read_rows(path, (*NEEDED, *parameters.select))
    if parameters.shared_tokens > parameters.template_tokens:
        faults.append(f"{data_set.place}: reader.shared_tokens: expected at most template_tokens, "
                      f"{parameters.template_tokens}, found {parameters.shared_tokens}")
    if faults:
        raise InputErrors(faults)
    chosen = [(line, row) for line, row in selected(rows, parameters.select)
              if row["sub"].startswith(parameters.load) and _framework(row["serve"]) == parameters.framework]
    cases = [_case(row, parameters, lambda fault, line=line: faults.append(f"{path}:{line}: {fault}"))
             for line, row in chosen]
    if not cases:
        faults.append(f"{path}: no row has {parameters.select}, {parameters.load}, {parameters.framework}")
    if faults:
        raise InputErrors(faults)
    return cases


def _framework(serve: str) -> str | None:
    words = tuple(shlex.split(serve))
    return next((name for name, start in STARTS.items() if words[:len(start)] == start), None)


def _case(row: Mapping[str, str], parameters: Parameters, fault: Callable[[str], None]) -> Case | None:
    count, prompts, outputs = (_number(row, name, fault) for name in (REQUESTS, PROMPTS, OUTPUTS))
    measured = {metric: _number(row, column, fault) for column, metric in METRICS.items()}
    tables = _tables(row["serve"], parameters, fault)
    if None in (count, prompts, outputs, *measured.values()) or tables is None:
        return None
    clients = _number(row, CLIENTS, fault) if row.get(CLIENTS) else None
    sent = {"load": {"mode": "concurrency", "concurrency": round(clients)}} if clients else {
        "arrival": {"rate_per_s": math.inf}}
    tables["workload"] = {
        "type": "synthetic", "num_requests": round(count), **sent,
        "prompt_tokens": _constant(prompts / count + parameters.template_tokens - parameters.shared_tokens),
        "output_tokens": _constant(outputs / count), **_shared(parameters.shared_tokens)}
    return Case(f"{row['serve']}, {row['sub']}", tables, measured)


def _tables(serve: str, parameters: Parameters, fault: Callable[[str], None]) -> dict[str, Any] | None:
    """Return model, hardware, engine and topology of a command line; None: a fault."""
    framework = parameters.framework
    words, known = shlex.split(serve)[len(STARTS[framework]):], KEYS[framework]
    name = words.pop(0) if words and not words[0].startswith("-") else ""
    tables: dict[str, dict[str, Any]] = {
        "hardware": {"name": parameters.hardware}, "topology": {}, "engine": {"scheduler": SCHEDULERS[framework]}}
    if framework in PAGES:
        tables["engine"]["block_size"] = PAGES[framework]
    while words:
        option, _, value = words.pop(0).partition("=")
        if option not in known:
            fault(f"serve: {option}: not replayed{did_you_mean(option, known)}; select other rows")
            return None
        value = value or (words.pop(0) if words and not words[0].startswith("-") else "true")
        if known[option] == "model":
            name = value
        elif known[option]:
            table, key = known[option].split(".")
            tables[table][key] = True if value == "true" else int(value)
    try:
        found = checkpoint_of(name)
    except InputErrors as errors:
        fault(f"serve: {'; '.join(errors.faults)}")
        return None
    if found.model is None:
        fault(f"serve: {name}: its shape has no file in models/")
        return None
    if tables["topology"].get("expert_parallel") == tables["topology"].get("tensor_parallel", 1) == 1:
        del tables["topology"]["expert_parallel"]
    return tables | {"model": {"name": found.model, **({"dtype": found.stored} if found.stored else {})}}


def _shared(tokens: int) -> dict[str, Any]:
    return {"system_prompts": {"num_tokens": tokens}} if tokens else {}


def _constant(tokens: float) -> dict[str, Any]:
    return {"distribution": "constant", "tokens": max(round(tokens), 1)}


def _number(row: Mapping[str, str], name: str, fault: Callable[[str], None]) -> float | None:
    try:
        value = float(row[name])
    except ValueError:
        value = math.nan
    if 0.0 < value < math.inf:
        return value
    fault(f"{name}: expected a number above 0, found {row[name]!r}")
    return None
