"""Layouts of the experiment's model: those that fit, and the search of `plan`."""
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from simulator.config.experiment import Experiment
from simulator.config.load import plain
from simulator.domain.costs import mean_of
from simulator.errors import InputErrors, faults_of
from simulator.study.capacity.fit import WAYS, Asked, Fit, fits
from simulator.study.capacity.varied import value_at
from simulator.study.exploring.answering import Source, Superseded
from simulator.study.planning.question import ENGINES

GPUS = (1, 2, 4, 8)
LOOK_S = 0.05
PLAN_S = 600.0                  # a search that takes longer is ended
SHORT = {"tensor_parallel": "TP", "pipeline_parallel": "PP", "data_parallel": "DP", "expert_parallel": "EP"}
CONTROLS = {"tensor_parallel": "tp", "pipeline_parallel": "pp", "data_parallel": "dp"}      # ids; others by their key
HEADS = ("GPUs", *SHORT.values(), "weights of a GPU, GB", "KV, tokens", "longest texts at once")


def layouts_of(source: Source) -> dict[str, Any]:
    """Return the layouts of one replica as a table, with the keys that each row sets.

    Raises
    ------
    InputErrors
        The experiment has pools, no model, or a given number of KV blocks.
    """
    base = source.experiment()
    if base.pools:
        raise InputErrors([f"{source.file}: pools: no table of layouts: `simulator fit --pool NAME` prints one"])
    with faults_of(source.file):
        found = list(fits(Asked(source.file, source.layers(), base, -1), GPUS))
    now = {name: getattr(base.topology, name) for name in WAYS}
    return {"columns": HEADS, "rows": [_row(each, now) for each in found]}


def _row(found: Fit, now: dict[str, int]) -> dict[str, Any]:
    head = [str(found.gpus), *(str(found.ways[name]) for name in WAYS)]
    tail = ["-", "-", "-"] if found.refusal else [
        f"{found.weights_gb:.1f}", f"{found.kv_tokens:,}", f"{found.sequences:,.1f}"]
    return {"cells": head + tail, "refusal": found.refusal, "is_now": found.ways == now,
            "set": {CONTROLS.get(name, f"topology.{name}"): degree for name, degree in found.ways.items()}}


def plan_of(source: Source, gpus: int, stop: Callable[[], bool]) -> dict[str, Any]:
    """Return the table of `plan` for the experiment's model, lengths and bounds.

    The search runs in a process of its own.

    Parameters
    ----------
    gpus : that there are.

    Raises
    ------
    InputErrors
        The experiment does not answer the questions of `plan`, or `plan` refuses it.
    Superseded
        `stop` returned True.
    """
    experiment = source.experiment()
    with tempfile.TemporaryDirectory(prefix="explore-") as folder:
        command = [sys.executable, "-m", "simulator", "plan", *_options(source, experiment, gpus), "--json", "--out",
                   f"{folder}/plan"]
        printed, status, errors = _run(command, stop)
    try:
        content = json.loads(printed)
    except ValueError:
        raise InputErrors(errors.strip().splitlines()[-8:] or [f"plan: ended with status {status}"]) from None
    rows = [[each["deployment"], str(each["gpus"]), _number(each["rate"]), _number(each["output_tokens_per_s_per_gpu"]),
             _number(each["cost_per_million_output_tokens"]), each["status"]]
            for study in content["studies"].values() for each in study["deployments"]]
    return {"answer": content["answer"], "notes": content["notes"], "columns": [
        "layout", "GPUs", "requests/s", "tokens/s per GPU", "cost per million output tokens", ""], "rows": rows}


def _run(command: list[str], stop: Callable[[], bool]) -> tuple[str, int, str]:
    """Return output, status and messages of a process."""
    ends_s = time.monotonic() + PLAN_S
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(command, stdout=out, stderr=errors, stdin=subprocess.DEVNULL) as process:
            while process.poll() is None:
                if stop() or time.monotonic() > ends_s:
                    process.terminate()
                    process.wait()
                    raise Superseded
                time.sleep(LOOK_S)
        out.seek(0)
        errors.seek(0)
        return out.read(), process.returncode, errors.read()


def _options(source: Source, experiment: Experiment, gpus: int) -> list[str]:
    """Return the options of `plan`. Raises InputErrors: the experiment lacks some."""
    table, faults = plain(experiment), []
    lengths = [value_at(table, f"workload.{name}.mean") for name in ("prompt_tokens", "output_tokens")]
    bounds = {name: value_at(table, f"slo.{name}_ms") for name in ("ttft", "tpot")}
    if None in lengths:
        faults.append("workload: plan takes the means of prompt_tokens and output_tokens, and there are none")
    if not any(bounds.values()):
        faults.append("slo: plan takes ttft_ms or tpot_ms, and there is none")
    if experiment.pools or experiment.model is None or experiment.model.name is None or experiment.hardware is None:
        faults.append("model: plan takes one named model and accelerator, without pools")
    if experiment.engine.scheduler not in ENGINES:
        faults.append(f'engine.scheduler: plan takes {", ".join(ENGINES)}, found "{experiment.engine.scheduler}"')
    if faults:
        raise InputErrors([f"{source.file}: {each}" for each in faults])
    price = mean_of(value_at(table.get("prices", {}).get(experiment.hardware.name, {}), "per_gpu_hour"))
    found = {"--gpu": experiment.hardware.name, "--gpus": gpus, "--input": round(lengths[0]),
             "--output": max(1, round(lengths[1])), "--engine": experiment.engine.scheduler,
             "--engine-version": table["engine"].get("vllm_version"), "--prices": price,
             "--ttft-p99": bounds["ttft"], "--tpot-p99": bounds["tpot"]}
    return [experiment.model.name, *(str(part) for name, value in found.items() if value is not None
                                     for part in (name, value))]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"
