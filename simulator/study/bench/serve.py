"""`bench serve`: vLLM's serving benchmark against a simulated server."""
import argparse
import json
import math
import os
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import simulator
from simulator.errors import InputErrors, faults_of
from simulator.results.directory import check_folder
from simulator.study.bench.client import GOODPUT, METRICS, Seen, counts, duration_s, peaks, samples, seen, statistics_ms
from simulator.study.bench.datasets import add_dataset, dataset
from simulator.study.bench.server import Benched, add_experiment, model_name, said_of, server

DEFAULT_METRICS = "ttft,tpot,itl"
DETAILS = ("input_lens", "output_lens", "start_times", "ttfts", "itls", "generated_texts", "errors")
WIDTH = 50                      # of the table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that are modelled."""
    add_experiment(parser)
    add_dataset(parser, "serve")
    load = parser.add_argument_group("load")
    load.add_argument("--request-rate", type=float, default=math.inf, metavar="RPS", help="default: inf, all at once")
    load.add_argument("--burstiness", type=float, default=1.0, metavar="SHAPE", help="of gamma gaps; default: 1.0")
    load.add_argument("--max-concurrency", type=int, metavar="N", help="requests at once")
    load.add_argument("--num-warmups", type=int, default=0, metavar="N", help="copies of the first request before")
    load.add_argument("--ramp-up-strategy", choices=("linear", "exponential"))
    load.add_argument("--ramp-up-start-rps", type=int, metavar="RPS")
    load.add_argument("--ramp-up-end-rps", type=int, metavar="RPS")
    group = parser.add_argument_group("results")
    group.add_argument("--goodput", nargs="+", default=[], metavar="NAME:MS", help=f"bounds of {', '.join(GOODPUT)}")
    group.add_argument("--percentile-metrics", default=DEFAULT_METRICS, metavar="NAME,...",
                       help=f"of {', '.join(METRICS)}; default: {DEFAULT_METRICS}")
    group.add_argument("--metric-percentiles", default="99", metavar="P,...", help="default: 99")
    group.add_argument("--save-result", action="store_true", help="write the JSON")
    group.add_argument("--save-detailed", action="store_true", help="with lists of each request")
    group.add_argument("--append-result", action="store_true", help="append a line to the file")
    group.add_argument("--result-dir", metavar="DIR", help="default: the current folder")
    group.add_argument("--result-filename", metavar="FILE", help=(
        "default: LABEL-RATEqps[-concurrencyN]-MODEL-DATE.json"))
    group.add_argument("--metadata", nargs="*", default=[], metavar="KEY=VALUE", help="more keys of the JSON")
    group.add_argument("--label", metavar="TEXT", help="default: that of --backend")
    group.add_argument("--backend", default="openai", metavar="NAME", help="a name in the JSON; default: openai")
    group.add_argument("--model", metavar="NAME", help="a name in the JSON; default: the experiment's")
    group.add_argument("--tokenizer", metavar="NAME", help="a name in the JSON; default: as --model")
    group.add_argument("--date", metavar="YYYYMMDD-HHMMSS", help="in the JSON; default: now")


def bench(options: argparse.Namespace) -> Benched:
    """Run the benchmark; write the JSON if requested.

    Raises
    ------
    InputErrors
        All faults of flags and experiment.
    """
    faults, notes = [], []
    asked = dataset(options, faults) | _load(options, faults, notes)
    goodput, names = _goodput(options.goodput, faults), _metrics(options.percentile_metrics, faults)
    percentiles, metadata = _percentiles(options.metric_percentiles, faults), _metadata(options.metadata, faults)
    if faults:
        raise InputErrors([f"bench serve: {fault}" for fault in faults])
    if options.save_result or options.append_result:
        check_folder(options.result_dir or ".")
    experiment = server(options, asked, {}, token_times=True)
    with faults_of(options.file or options.experiment):
        result = simulator.run(experiment)
    found, date = seen(result), options.date or f"{datetime.now():%Y%m%d-%H%M%S}"
    has_rate = options.ramp_up_strategy is None and not math.isinf(options.request_rate)
    body = _content(options, found, goodput, result.summary)
    values = samples(found, options.max_concurrency is not None, has_rate)
    statistics = {name: statistics_ms(values[name], percentiles) for name in METRICS if name in {*values} & {*names}}
    head = {"date": date, "endpoint_type": options.backend, "backend": options.backend, "label": options.label,
            "model_id": model_name(options, experiment),
            "tokenizer_id": options.tokenizer or model_name(options, experiment), "num_prompts": options.num_prompts,
            **metadata, **_traffic(options)}
    content = head | body | {f"{part}_{name}_ms": value for name, parts in statistics.items()
                             for part, value in parts.items()}
    said = said_of(experiment, result.summary)
    content |= {"simulated": True, "simulator_version": simulator.__version__} | said.content()
    text = _table(options, content, statistics)
    if options.save_result or options.append_result:
        notes.append(f"result in {_save(options, content)}")
    return Benched(text, notes, said, experiment)


def _load(options: argparse.Namespace, faults: list[str], notes: list[str]) -> dict[str, Any]:
    """Return the keys of the preset for arrivals."""
    ends = (options.ramp_up_start_rps, options.ramp_up_end_rps)
    if options.max_concurrency is not None and options.max_concurrency < 1:
        faults.append(f"--max-concurrency: expected a number >= 1, found {options.max_concurrency}")
    if options.num_warmups < 0:
        faults.append(f"--num-warmups: expected a number >= 0, found {options.num_warmups}")
    if not options.request_rate > 0:
        faults.append(f"--request-rate: expected a number > 0, or inf, found {options.request_rate:g}")
    if not options.burstiness > 0:
        faults.append(f"--burstiness: expected a number > 0, found {options.burstiness:g}")
    keys = {"num_warmups": options.num_warmups} if options.num_warmups else {}
    keys |= {} if options.max_concurrency is None else {"max_concurrency": options.max_concurrency}
    if options.ramp_up_strategy is not None:
        _check_ramp(options, faults)
        return keys | {"ramp_up_strategy": options.ramp_up_strategy, "burstiness": options.burstiness,
                       **{f"ramp_up_{end}_rps": float(rps) for end, rps in zip(("start", "end"), ends, strict=True)
                          if rps is not None}}
    if ends != (None, None):
        faults.append("--ramp-up-start-rps, --ramp-up-end-rps: go with --ramp-up-strategy")
    if math.isinf(options.request_rate):
        if options.burstiness != 1.0:
            notes.append("--burstiness: without effect where --request-rate is inf: there are no gaps")
        return keys | {"request_rate": math.inf}
    return keys | {"request_rate": options.request_rate, "burstiness": options.burstiness}


def _check_ramp(options: argparse.Namespace, faults: list[str]) -> None:
    start, end = options.ramp_up_start_rps, options.ramp_up_end_rps
    if not math.isinf(options.request_rate):
        faults.append(f"--request-rate: {options.request_rate:g} does not go with --ramp-up-strategy, which says it")
    if start is None or end is None:
        faults.append("--ramp-up-strategy: takes --ramp-up-start-rps and --ramp-up-end-rps")
    elif not 0 < start <= end:
        faults.append(f"--ramp-up-start-rps: expected above 0 and up to --ramp-up-end-rps = {end}, found {start}")


def _goodput(pairs: list[str], faults: list[str]) -> dict[str, float]:
    bounds = {}
    for pair in pairs:
        name, _, value = pair.partition(":")
        bound = _number(value)
        if name not in GOODPUT or bound is None or bound < 0:
            faults.append(f"--goodput: expected NAME:MS, of {', '.join(GOODPUT)} and a number >= 0, found {pair}")
        else:
            bounds[name] = bound
    return bounds


def _metrics(text: str, faults: list[str]) -> list[str]:
    names = text.split(",")
    faults += [f"--percentile-metrics: expected some of {', '.join(METRICS)}, found {name}" for name in names
               if name not in METRICS]
    return names


def _percentiles(text: str, faults: list[str]) -> list[float]:
    values = {part: _number(part) for part in text.split(",")}
    faults += [f"--metric-percentiles: expected numbers from 0 to 100, found {part}" for part, value in values.items()
               if value is None or not 0 <= value <= 100]
    return [value for value in values.values() if value is not None]


def _metadata(pairs: list[str], faults: list[str]) -> dict[str, str]:
    faults += [f"--metadata: expected KEY=VALUE, found {pair}" for pair in pairs if "=" not in pair]
    return {key.strip(): value.strip() for key, _, value in (pair.partition("=") for pair in pairs)}


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\s*\d+(\.\d*)?([eE][-+]?\d+)?\s*", text) else None


def _traffic(options: argparse.Namespace) -> dict[str, Any]:
    rate = "inf" if math.isinf(options.request_rate) else options.request_rate
    ramp = {} if options.ramp_up_strategy is None else {name: getattr(options, name) for name in (
        "ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps")}
    return {"request_rate": rate, "burstiness": options.burstiness, "max_concurrency": options.max_concurrency, **ramp}


def _content(options: argparse.Namespace, found: Seen, goodput: dict[str, float], summary: dict) -> dict[str, Any]:
    """Return the results by vLLM's keys; lists of each request if requested, latencies and queue times always."""
    duration, size = duration_s(found), len(found.success)
    texts = {"generated_texts": [""] * size,
             "errors": ["" if success else "not completed" for success in found.success]}
    lists = {name: getattr(found, name) for name in ("input_lens", "output_lens", "ttfts", "itls", "latencies",
                                                     "start_times", "queue_times")} | texts
    kept = {name: values for name, values in lists.items() if options.save_detailed or name not in DETAILS}
    drafts = summary.get("speculation") or {}
    speculation = {} if not drafts.get("num_draft_tokens") else {
        "spec_decode_acceptance_rate": 100 * drafts["acceptance_rate"],
        "spec_decode_acceptance_length": drafts["mean_acceptance_length"],
        "spec_decode_num_drafts": drafts["num_drafts"], "spec_decode_draft_tokens": drafts["num_draft_tokens"],
        "spec_decode_accepted_tokens": drafts["num_accepted_tokens"],
        "spec_decode_per_position_acceptance_rates": drafts["per_position_acceptance_rates"]}
    return {"duration": duration, **counts(found, duration, goodput), **kept, **peaks(found), "rtfx": 0.0,
            **speculation}


def _table(options: argparse.Namespace, content: dict[str, Any], statistics: dict[str, dict[str, float]]) -> str:
    """Return the lines that vLLM's client prints."""
    rows = [("Successful requests:", content["completed"]), ("Failed requests:", content["failed"])]
    rows += [("Maximum request concurrency:", options.max_concurrency)] if options.max_concurrency else []
    rows += [] if math.isinf(options.request_rate) else [("Request rate configured (RPS):", options.request_rate)]
    rows += [("Benchmark duration (s):", content["duration"]), ("Total input tokens:", content["total_input_tokens"]),
             ("Total generated tokens:", content["total_output_tokens"]),
             ("Request throughput (req/s):", content["request_throughput"])]
    rows += [] if content["request_goodput"] is None else [("Request goodput (req/s):", content["request_goodput"])]
    rows += [("Output token throughput (tok/s):", content["output_throughput"]),
             ("Peak output token throughput (tok/s):", content["max_output_tokens_per_s"]),
             ("Peak concurrent requests:", float(content["max_concurrent_requests"])),
             ("Total token throughput (tok/s):", content["total_token_throughput"])]
    lines = [f"{' Serving Benchmark Result ':=^{WIDTH}}", *(_row(*row) for row in rows)]
    for name, parts in statistics.items():
        label, heading = METRICS[name]
        lines.append(f"{heading:-^{WIDTH}}")
        lines += [_row(f"{part.capitalize()} {label} (ms):", value) for part, value in parts.items() if part != "std"]
    return "\n".join([*lines, "=" * WIDTH])


def _row(label: str, value: float) -> str:
    return f"{label:<40} {value:<10.2f}" if isinstance(value, float) else f"{label:<40} {value:<10}"


def _save(options: argparse.Namespace, content: dict[str, Any]) -> Path:
    """Write the JSON, or append it as a line; return its path."""
    slots = "" if options.max_concurrency is None else f"-concurrency{options.max_concurrency}"
    load = f"{options.request_rate}qps" if options.ramp_up_strategy is None else (
        f"ramp-up-{options.ramp_up_strategy}-{options.ramp_up_start_rps}qps-{options.ramp_up_end_rps}qps")
    model = content["model_id"].split("/")[-1]
    name = options.result_filename or f"{options.label or options.backend}-{load}{slots}-{model}-{content['date']}.json"
    path = Path(options.result_dir or "", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, allow_nan=False)
    if options.append_result:
        with path.open("a", encoding="utf-8") as file:
            file.write(f"\n{text}" if file.tell() else text)
        return path
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
    return path
