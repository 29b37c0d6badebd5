"""`python -m simulator collective WORKLOAD`: time a training workload of SimAI's format, layer by layer."""
import argparse
import csv
import io
import json
import os
from pathlib import Path

import tomli
import tomli_w

from simulator.config.layers import Source
from simulator.config.reader import MISSING, Reader
from simulator.errors import InputErrors
from simulator.registry import load, parameters_of
from simulator.study.busbw_yaml import read_busbw_yaml
from simulator.study.training_time import GROUPS, LayerTime, Overlaps, Timer, TrainingTime
from simulator.study.training_workload import TrainingWorkload, read_workload

DONE = 0
SHOWN_LAYERS = 20
GIGA_BYTES = {"decimal": 1e9, "simai": float(1 << 30)}
PHASES = ("forward", "input_gradient", "weight_gradient")
COLUMNS = ("compute_us", "exposed_us", "total_us", "algbw", "busbw")
# Options that are keys of [latency.collective] by the same name.
KEYS = {"nvlink_gb_per_s": float, "nic_gb_per_s": float, "nics_per_node": int, "gpus_per_node": int, "gpu_type": str,
        "nic_type": str, "convention": str, "tensor_overlap": float, "expert_overlap": float, "data_overlap": float,
        "pipeline_overlap": float}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("workload", metavar="WORKLOAD", nargs="?", help="training workload in SimAI's text format")
    parser.add_argument("--gpus", type=int, metavar="N", help="GPUs of the job; default: the workload's")
    parser.add_argument("--busbw", metavar="FILE", help=(
        "bandwidths and links: a TOML file with [latency.collective], or SimAI's busbw.yaml"))
    parser.add_argument("--save-busbw", metavar="FILE.toml", help="write the bandwidths of --busbw as TOML")
    for name, type_ in KEYS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type_, metavar="VALUE",
                            help="as `describe collective busbw` explains it")
    parser.add_argument("--layers", type=int, default=SHOWN_LAYERS, metavar="N", help=(
        f"rows of the table that is printed, 0 for all; default {SHOWN_LAYERS}"))
    parser.add_argument("--csv", metavar="FILE", help="write the table of all layers")
    parser.add_argument("--json", metavar="FILE", help="write totals and layers")


def run(options: argparse.Namespace) -> int:
    """Time the workload, print it, write the files; return the exit status."""
    table, file = _table(options)
    if options.save_busbw:
        _write(options.save_busbw, tomli_w.dumps({"latency": {"collective": {"backend": "busbw", **table}}}))
        print(f"bandwidths in {options.save_busbw}")
    if not options.workload:
        if options.save_busbw:
            return DONE
        raise InputErrors(["expected a workload, or --busbw with --save-busbw to convert bandwidths"])
    workload = read_workload(options.workload)
    given = {name: getattr(options, name) for name in KEYS if getattr(options, name) is not None}
    # Messages between stages are hidden behind computation unless an option says otherwise, as in SimAI.
    parameters = _parameters({"pipeline_overlap": 1.0, **table}, given, file)
    took = time_workload(workload, parameters, _num_gpus(options, workload))
    print(_text(took, options.layers))
    if options.csv:
        _write(options.csv, layers_csv(took))
    if options.json:
        _write(options.json, json.dumps(as_dict(took), indent=2) + "\n")
    return DONE


def time_workload(workload: TrainingWorkload, parameters, num_gpus: int) -> TrainingTime:
    """Return the time of a workload under `busbw`.

    Parameters
    ----------
    workload : TrainingWorkload
    parameters : Parameters of the collective model `busbw`
    num_gpus : int
        Of the whole job.
    """
    model = load("collective", "busbw").for_training(
        parameters, workload.tensor, workload.expert, workload.pipeline, num_gpus)
    overlaps = Overlaps(*(getattr(parameters, f"{group}_overlap") for group in Overlaps._fields))
    timer = Timer(model.whole_ns, model.bus_factor, overlaps, GIGA_BYTES[parameters.convention],
                  parameters.convention == "simai")
    return timer.time(workload, parameters.pipeline_gb_per_s)


def _table(options: argparse.Namespace) -> tuple[dict, str]:
    """Return [latency.collective] of the file that --busbw names, and the file."""
    name = options.busbw
    if not name:
        return {}, ""
    if name.endswith((".yaml", ".yml")):
        return read_busbw_yaml(name), name
    try:
        table = tomli.loads(Path(name).read_text(encoding="utf-8-sig")).get("latency", {}).get("collective", {})
    except (OSError, UnicodeDecodeError, tomli.TOMLDecodeError) as error:
        raise InputErrors([f"{name}: {getattr(error, 'strerror', None) or error}"]) from error
    if table.get("backend", "busbw") != "busbw":
        raise InputErrors([f'{name}: latency.collective.backend: expected "busbw", found "{table["backend"]}"'])
    return {key: value for key, value in table.items() if key != "backend"}, name


def _parameters(table: dict, given: dict, file: str):
    """Check the keys of a file and, above them, those given on the command line."""
    reader = Reader(lambda path: Source("command line" if path[-1] in given else file, os.path.dirname(file)))
    parameters = reader.table(parameters_of(load("collective", "busbw")), table | given, ("latency", "collective"))
    if parameters is MISSING or reader.faults:
        raise InputErrors(reader.faults)
    return parameters


def _num_gpus(options: argparse.Namespace, workload: TrainingWorkload) -> int:
    ranks = workload.tensor * workload.pipeline
    num_gpus = options.gpus or workload.num_gpus or ranks
    if num_gpus < ranks:
        raise InputErrors([f"{options.workload}: tensor x pipeline parallelism needs {ranks} GPUs, found {num_gpus}"])
    return num_gpus


# ---- output

def as_dict(took: TrainingTime) -> dict:
    """Return totals and layers as plain data, microseconds and giga bytes a second."""
    return {
        "total_us": took.total_us, "compute_us": took.compute_us, "bubble_us": took.bubble_us,
        "pipeline_us": took.pipeline_us, "exposed_us": took.exposed_us,
        "layers": [{"name": layer.name, **{phase: dict(zip(COLUMNS, getattr(layer, phase), strict=True))
                                           for phase in PHASES}} for layer in took.layers],
    }


def layers_csv(took: TrainingTime) -> str:
    """Return the table of layers: name, then each column of each phase."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["name", *(f"{phase}_{column}" for phase in PHASES for column in COLUMNS)])
    writer.writerows(_row(layer) for layer in took.layers)
    return text.getvalue()


def _row(layer: LayerTime) -> list:
    return [layer.name, *(f"{value:.6g}" if column.endswith("bw") else f"{value:.3f}"
                          for phase in PHASES for column, value in zip(COLUMNS, getattr(layer, phase), strict=True))]


def _text(took: TrainingTime, num_layers: int) -> str:
    shown = took.layers if num_layers <= 0 else took.layers[:num_layers]
    width = max(len("layer"), *(len(layer.name) for layer in shown))
    head = f"{'layer':{width}}" + "".join(f"{title:>14}" for title in (
        "forward us", "exposed us", "in-grad us", "exposed us", "wt-grad us", "exposed us"))
    rows = [f"{layer.name:{width}}" + "".join(
        f"{value:14,.1f}" for phase in PHASES for value in getattr(layer, phase)[:2]) for layer in shown]
    rest = len(took.layers) - len(shown)
    return "\n".join([head, *rows, *[f"... {rest} more"] * (rest > 0), "", *_totals(took)])


def _totals(took: TrainingTime) -> list[str]:
    parts = {"computation": took.compute_us,
             **{f"exposed, {group.replace('_', '-')} group": took.exposed_us[group] for group in GROUPS},
             "pipeline messages": took.pipeline_us, "pipeline bubble": took.bubble_us}
    whole = took.total_us
    lines = [f"{name:26}{us:18,.1f} us {us / whole if whole else 0.0:7.1%}" for name, us in parts.items()]
    return [*lines, f"{'iteration':26}{whole:18,.1f} us"]


def _write(name: str, text: str) -> None:
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputErrors([f"{name}: cannot be written: {error.strerror}"]) from error
