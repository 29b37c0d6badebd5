"""`bench latency` and `bench throughput`: vLLM's offline benchmarks of a simulated engine."""
import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import simulator
from simulator.config.experiment import Experiment
from simulator.domain import records
from simulator.errors import InputErrors, faults_of
from simulator.study.bench.datasets import add_dataset, dataset
from simulator.study.bench.server import (
    Benched,
    add_engine,
    add_experiment,
    engine_keys,
    model_keys,
    model_name,
    said_of,
    server,
)
from simulator.study.telling.said import Said

PERCENTILES = (10, 25, 50, 75, 90, 99)
BATCH_GAP_S = 1.0                   # between two batches, at least: the engine is idle


def add_latency(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `bench latency` that are modelled."""
    _add_common(parser)
    for name, default in (("--input-len", 32), ("--output-len", 128), ("--batch-size", 8), ("--num-iters-warmup", 10),
                          ("--num-iters", 30), ("--n", 1)):
        parser.add_argument(name, type=int, default=default, metavar="N", help=f"default: {default}")


def add_throughput(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `bench throughput` that are modelled."""
    _add_common(parser)
    add_dataset(parser, "throughput")
    parser.add_argument("--n", type=int, default=1, metavar="N", help="default: 1")
    parser.add_argument("--backend", default="vllm", choices=("vllm",))


def latency(options: argparse.Namespace) -> Benched:
    """Run batches one after the other; write the JSON if requested.

    Raises
    ------
    InputErrors
        All faults of flags and experiment; requests that the engine does not complete.
    """
    faults = _faults_of_n(options)
    for name, least in (("input_len", 1), ("output_len", 1), ("batch_size", 1), ("num_iters", 1),
                        ("num_iters_warmup", 0)):
        if getattr(options, name) < least:
            faults.append(f"--{name.replace('_', '-')}: expected a number >= {least}, found {getattr(options, name)}")
    if faults:
        raise InputErrors([f"bench latency: {fault}" for fault in faults])
    batches, gap_s = options.num_iters_warmup + options.num_iters, BATCH_GAP_S
    while True:
        experiment, found, said = _batches(options, batches, gap_s)
        took_ns = found.reshape(batches, options.batch_size).max(axis=1)
        if batches == 1 or took_ns[:-1].max() < gap_s * 1e9:      # else one batch arrived before the last had ended
            break
        gap_s = float(np.ceil(2e-9 * took_ns[0])) + 2 * gap_s
    took_ns = took_ns[options.num_iters_warmup:]
    percentiles = (np.percentile(took_ns, PERCENTILES) / 1e9).tolist()
    content = {"avg_latency": float(took_ns.mean() / 1e9), "std_latency": float(took_ns.std() / 1e9),
               "latencies": (took_ns / 1e9).tolist(),
               "percentiles": dict(zip(map(str, PERCENTILES), percentiles, strict=True))}
    _save(options, experiment, content | said.content())
    lines = [f"Avg latency: {content['avg_latency']} seconds", f"Std latency: {content['std_latency']} seconds"]
    lines += [f"{name}% percentile latency: {value} seconds" for name, value in content["percentiles"].items()]
    alike = "every batch takes the same, as nothing in the engine is drawn: --num-iters 1 tells as much"
    notes = [alike] if len(took_ns) > 1 and np.ptp(took_ns) == 0 else []
    return Benched("\n".join(lines), notes, said, experiment)


def throughput(options: argparse.Namespace) -> Benched:
    """Serve requests that all arrive at once; otherwise as `latency`."""
    faults = _faults_of_n(options)
    asked = dataset(options, faults)
    if faults:
        raise InputErrors([f"bench throughput: {fault}" for fault in faults])
    experiment = server(options, asked | {"request_rate": float("inf")}, engine_keys(options) | model_keys(options),
                        token_times=False)
    requests, said = _served(options, experiment)
    elapsed_s = int(requests["completed_ns"].max()) / 1e9
    prompts, outputs = (int(requests[name].sum(dtype=np.int64)) for name in ("prompt_tokens", "output_tokens"))
    content = {"elapsed_time": elapsed_s, "num_requests": len(requests), "total_num_tokens": prompts + outputs,
               "requests_per_second": len(requests) / elapsed_s, "tokens_per_second": (prompts + outputs) / elapsed_s}
    _save(options, experiment, content | said.content())
    text = (f"Throughput: {content['requests_per_second']:.2f} requests/s, {content['tokens_per_second']:.2f} total "
            f"tokens/s, {outputs / elapsed_s:.2f} output tokens/s\nTotal num prompt tokens:  {prompts}\n"
            f"Total num output tokens:  {outputs}")
    return Benched(text, [], said, experiment)


def _add_common(parser: argparse.ArgumentParser) -> None:
    add_experiment(parser)
    add_engine(parser)
    parser.add_argument("--model", metavar="NAME", help=(
        "over [model] name, where the experiment has a model, and a name in the JSON"))
    parser.add_argument("--tokenizer", metavar="NAME", help=argparse.SUPPRESS)
    parser.add_argument("--output-json", metavar="FILE", help="write the JSON")


def _faults_of_n(options: argparse.Namespace) -> list[str]:
    why = "several answers to a prompt are not modelled"
    return [] if options.n == 1 else [f"--n: expected 1, found {options.n}: {why}"]


def _batches(options: argparse.Namespace, count: int, gap_s: float) -> tuple[Experiment, np.ndarray, Said]:
    """Return the experiment, the latency of each request in ns, and the remarks of the run.

    Batches arrive `apart_s` apart, with the same prompts.

    Prefix caching is off unless a flag says otherwise, as in the tool.
    """
    keys = {"engine.enable_prefix_caching": False} | engine_keys(options) | model_keys(options)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "batches.csv")
        rows = [f"{batch * gap_s!r},{options.input_len},{options.output_len},p{i}:{options.input_len}"
                for batch in range(count) for i in range(options.batch_size)]
        trace.write_text("arrived_at,num_prefill_tokens,num_decode_tokens,prompt\n" + "\n".join(rows) + "\n")
        experiment = server(options, {"type": "trace", "path": str(trace)}, keys, token_times=False)
        requests, said = _served(options, experiment)
    if (short := int((requests["output_tokens"] < options.output_len).sum())):
        raise InputErrors([f"bench latency: {short} of {len(requests)} outputs end before --output-len = "
                           f"{options.output_len}: engine.max_model_len is below prompt and output together"])
    return experiment, requests["completed_ns"] - requests["arrival_ns"], said


def _served(options: argparse.Namespace, experiment: Experiment) -> tuple[np.ndarray, Said]:
    """Return the requests of a run, which all completed, and its remarks."""
    with faults_of(options.file or options.experiment):
        result = simulator.run(experiment)
    requests = result.requests
    if others := int((requests["status"] != records.COMPLETED).sum()):
        raise InputErrors([f"{experiment.name}: {others} of {len(requests)} requests did not complete, and an offline "
                           f"engine serves all{_advice(result.summary)}", *result.summary["diagnosis"]])
    return requests, said_of(experiment, result.summary)


def _advice(summary: dict[str, Any]) -> str:
    """Return advice on keys to leave out so that all requests complete; empty: no key limits them."""
    counts, rejected = summary["requests"], summary["by_cause"].get("rejected", {})
    keys = ["[cluster.admission]"] * any(cause in rejected for cause in ("admission", "queue_full", "shed", "expired"))
    keys += ["deadlines"] * bool(counts["timed_out"])
    keys += ["horizon_s"] * any(note.startswith("horizon_s cut") for note in summary["diagnosis"])
    return f"; without {' and '.join(keys)} it may" * bool(keys)


def _save(options: argparse.Namespace, experiment: Experiment, content: dict[str, Any]) -> None:
    content |= {"model_id": model_name(options, experiment), "simulated": True,
                "simulator_version": simulator.__version__}
    if options.output_json:
        Path(options.output_json).write_text(json.dumps(content, indent=4, allow_nan=False), encoding="utf-8")
