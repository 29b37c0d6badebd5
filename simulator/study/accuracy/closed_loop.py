"""Form `closed_loop`: a CSV file, a row for each run of a server under a fixed number of clients.

Columns: id; hardware and model, names in hardware/ and models/; dtype, kv_cache_dtype (empty: as the checkpoint has
it); tensor_parallel, data_parallel, expert_parallel; input_tokens, output_tokens (nominal), concurrency; means over the
requests of a run, ttft_ms, tpot_ms, e2e_ms; makespan_s, throughput_tokens_per_s. At least one of the last five. Columns
of `deployed` describe the engine. Others are ignored.

Replay of a run: clients that send their next request when the last one ended, requests_per_client for each,
lengths uniform between shortest_share of nominal and nominal, as InferenceX draws them.
"""
import math
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from simulator.errors import InputErrors
from simulator.study.accuracy import deployed
from simulator.study.accuracy.case import Case
from simulator.study.accuracy.csv_rows import read_rows, selected

LEVEL = "request"
ROLES = ("points",)
PEER_KEY = "column_prefix"
METRICS = {"ttft_ms": "ttft", "tpot_ms": "tpot", "e2e_ms": "e2e", "makespan_s": "makespan",
           "throughput_tokens_per_s": "throughput"}
TEXTS = ("id", "hardware", "model")
COUNTS = ("tensor_parallel", "input_tokens", "output_tokens", "concurrency")
WAYS = ("data_parallel", "expert_parallel")     # 1 where there is no such column
NEEDED = (*TEXTS, *COUNTS)
Role = Literal["prefill", "decode"]


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the servers of some rows, which the file does not have."""

    where: Annotated[dict[str, list[str]], Meta(description="column -> its values in these rows")]
    engine: Annotated[dict[str, Any], Meta(description="keys of [engine]")] = {}
    model: Annotated[dict[str, Any], Meta(description="keys of [model]")] = {}
    pools: Annotated[dict[Role, dict[str, dict[str, Any]]], Meta(description=(
        "prefill, decode -> tables of this pool -> keys"))] = {}
    backends: Annotated[dict[str, dict[Role, dict[str, Any]]], Meta(description=(
        "backend -> prefill, decode -> keys of this pool's [latency]"))] = {}
    rate_per_s: Annotated[Annotated[float, Meta(gt=0)] | None, Meta(description=(
        "most requests that the clients send in a second, so that they begin one after the other; absent: at once"))
    ] = None


class Parameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Replay of a run, and the selection of rows."""

    select: Annotated[dict[str, str], Meta(description="column -> its value in the rows to read")] = {}
    requests_per_client: Annotated[int, Meta(ge=1, le=10_000)] = 10
    shortest_share: Annotated[float, Meta(gt=0, le=1, description="least length, as a share of the nominal one")] = 0.8
    context_margin_tokens: Annotated[int, Meta(ge=0, le=1_000_000, description=(
        "max_model_len beyond the nominal lengths, in tokens"))] = 200
    least_max_num_seqs: Annotated[int, Meta(ge=1, le=1_000_000, description=(
        "least number of running requests that the engine allows; else the number of clients"))] = 256
    most_requests: Annotated[Annotated[int, Meta(ge=1, le=10_000_000)] | None, Meta(description=(
        "most requests of a run, but at least two for each client: the first one of each, which wait for each other, "
        "weigh more in the mean than they did; absent: no limit"))] = None
    stand_in: Annotated[bool, Meta(description=(
        "vLLM's scheduler and NIXL replay the runs of any framework"))] = False
    options: Annotated[list[Options], Meta(description="options of the servers of some rows")] = []


def read(data_set) -> list[Case]:
    """Return a case for each row.

    Raises
    ------
    InputErrors
        Every fault of the file, with line and column; no row is selected.
    """
    path, parameters = data_set.path("points"), data_set.parameters
    rows, faults = read_rows(path, (*NEEDED, *parameters.select, *(
        name for each in parameters.options for name in each.where)))
    columns = set(rows[0]) if rows else set()
    prefixes = {peer.name: peer.column_prefix for peer in data_set.says.peers}
    if not columns & METRICS.keys():
        faults.append(f"{path}:1: no column of {', '.join(METRICS)}")
    faults += [f"{path}:1: no column of {name}'s: none begins with {prefix}{' or '.join(METRICS)}"
               for name, prefix in prefixes.items() if not any(prefix + metric in columns for metric in METRICS)]
    if faults:
        raise InputErrors(faults)
    chosen = selected(rows, parameters.select)
    cases = [_case(row, parameters, prefixes, lambda fault, line=line: faults.append(f"{path}:{line}: {fault}"))
             for line, row in chosen]
    if not cases:
        faults.append(f"{path}: no row has {parameters.select}")
    if faults:
        raise InputErrors(faults)
    return cases


def _case(row: dict, parameters: Parameters, prefixes: dict[str, str], fault) -> Case | None:
    needed = COUNTS[1:] if deployed.is_split(row) else COUNTS
    counts = {name: _count(row, name, fault) for name in (*needed, *(way for way in WAYS if row.get(way)))}
    texts = {name: row[name] for name in TEXTS}
    for name in (name for name, text in texts.items() if not text):
        fault(f"{name}: is empty")
    measured = _means(row, "", fault)
    if not measured:
        fault(f"none of {', '.join(METRICS)} was measured")
    if None in counts.values() or not measured:
        return None
    published = {name: {metric: {"mean": value} for metric, value in _means(row, prefix, fault).items()}
                 for name, prefix in prefixes.items()}
    backends = deployed.backends_of(row, deployed.framework_of(row, fault))
    options = [each for each in parameters.options if all(row[name] in values for name, values in each.where.items())]
    pool_backends = _merged({}, *(each.backends for each in options if deployed.is_split(row)))
    return Case(texts["id"], _tables(row, counts, parameters, options, fault), measured, published, backends=backends,
                pool_backends=pool_backends)


def _tables(row: dict, counts: dict[str, int], parameters: Parameters, options: list[Options], fault) -> dict:
    """Return the tables of the experiment that replays a row."""
    clients, prompt, output = counts["concurrency"], counts["input_tokens"], counts["output_tokens"]
    formats = {key: row.get(key) for key in ("dtype", "kv_cache_dtype")}
    framework = deployed.framework_of(row, fault)
    requests = parameters.requests_per_client * clients
    if parameters.most_requests is not None:
        requests = min(requests, max(parameters.most_requests, 2 * clients))
    tables = {
        "model": _merged({"name": row["model"]}, {key: value for key, value in formats.items() if value},
                         *(each.model for each in options)),
        "hardware": {"name": row["hardware"]},
        "engine": _merged({"max_model_len": prompt + output + parameters.context_margin_tokens}, deployed.engine_of(
            row, framework, max(parameters.least_max_num_seqs, clients), parameters.stand_in),
            *(each.engine for each in options)),
        "workload": {"type": "synthetic", "num_requests": requests,
                     "prompt_tokens": _lengths(prompt, parameters), "output_tokens": _lengths(output, parameters),
                     "load": {"mode": "concurrency", "concurrency": clients, **_ramp(clients, options)}}}
    if deployed.is_split(row):
        split = deployed.pools_of(row, framework, parameters.stand_in, fault)
        return tables | split | {"pools": [_merged(pool, *(each.pools.get(pool["role"], {}) for each in options))
                                           for pool in split["pools"]]}
    return tables | {"topology": {"tensor_parallel": counts["tensor_parallel"],
                                  **{way: counts[way] for way in WAYS if counts.get(way, 1) > 1}}}


def _merged(table: dict, *others: dict) -> dict:
    """Return a table with those of others laid over it, in order, key by key."""
    for other in others:
        table = table | {key: _merged(table.get(key, {}), value) if isinstance(value, dict) else value
                         for key, value in other.items()}
    return table


def _ramp(clients: int, options: list[Options]) -> dict[str, float]:
    """Return the time in which the clients begin, at the rate of the last options that have one."""
    rates = [each.rate_per_s for each in options if each.rate_per_s is not None]
    return {"ramp_up_s": clients / rates[-1]} if rates else {}


def _lengths(nominal: int, parameters: Parameters) -> dict:
    return {"distribution": "uniform", "min": max(int(parameters.shortest_share * nominal), 1), "max": nominal}


def _count(row: dict, name: str, fault) -> int | None:
    text = row[name] or ""
    if not (text.isascii() and text.isdecimal() and int(text) >= 1):
        fault(f"{name}: expected a whole number of at least 1, found {text!r}")
        return None
    return int(text)


def _means(row: dict, prefix: str, fault) -> dict[str, float]:
    """Return the values of the columns with a prefix, by metric; empty cells are left out."""
    found = {}
    for column, metric in METRICS.items():
        if text := row.get(prefix + column):
            try:
                value = float(text)
            except ValueError:
                value = math.nan
            if 0.0 < value < math.inf:
                found[metric] = value
            else:
                fault(f"{prefix}{column}: expected a number above 0, found {text!r}")
    return found
