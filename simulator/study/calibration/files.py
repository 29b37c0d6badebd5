"""The files of a calibration: calibration.json, pairs.csv, calibrated.toml."""
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from msgspec import to_builtins

from simulator.config.layers import Layers, Source, add_overrides, read_toml
from simulator.config.load import plain, resolve
from simulator.errors import InputErrors
from simulator.results.directory import check_folder
from simulator.study.calibration.question import Question
from simulator.study.calibration.residual import FILE as RESIDUAL
from simulator.study.calibration.solver import Answer
from simulator.study.measured.write import csv_text
from simulator.study.sweep.identity import hash_of, id_of
from simulator.study.sweep.study_file import laid_over
from simulator.study.sweep.writing import write

JSON, PAIRS, CALIBRATED = "calibration.json", "pairs.csv", "calibrated.toml"
SCHEMA = 1
MS_PER_S = 1e3
COLUMNS = ("data_set", "held_out", "request_id", "measured_ttft_s", "simulated_ttft_s", "measured_tpot_s",
           "simulated_tpot_s", "measured_e2el_s", "simulated_e2el_s")
PAIRED = {"ttft": "ttft", "tpot": "tpot", "e2el": "e2e"}
NOT_OF_EXPERIMENT = ("extends", "study", "name")


def hash_of_question(question: Question) -> str:
    """Return the hash of a question.

    It covers keys, experiments, data, and the sources of this package.
    """
    settings = {name: getattr(question.settings, name) for name in ("fraction", "client_rtt_ms", "evaluations")}
    if question.settings.residual is not None:
        settings["residual"] = to_builtins(question.settings.residual)
    return hash_of({
        "settings": settings, "level": question.level, "seed": question.seed,
        "fit": {key: [each.min, each.max, each.prior, each.prior_sd] for key, each in question.fit.items()},
        "sets": [[each.is_held, id_of(each.experiment_of({})), *(
            _digest(one.path) for one in (each.requests, each.steps) if one is not None)] for each in question.sets]})


def check_free(folder: Path, question: str, is_fitted: bool, overwrite: bool) -> None:
    """Make sure that the files can be written.

    An answer to the same question may be replaced.

    Raises
    ------
    InputErrors
        Another answer exists, and may not be replaced; or the folder cannot be.
    """
    path = check_folder(folder) / JSON
    if overwrite or not path.exists():
        return
    try:
        before = json.loads(path.read_bytes())
        is_same = before["question"] == question and bool(before["coefficients"] or before["residual"]) == is_fitted
    except (OSError, ValueError, LookupError, TypeError):
        is_same = False
    if not is_same:
        raise InputErrors([f"{path}: the answer to another question is there; --overwrite replaces it, --out chooses "
                           "another directory"])


def write_all(answer: Answer, folder: Path, question: str, overrides: Iterable[str]) -> list[str]:
    """Write the files, each whole or not at all; return their names."""
    write(folder / PAIRS, csv_text(COLUMNS, list(_pairs(answer))))
    names = [JSON, PAIRS]
    if answer.residual is not None:
        names.append(RESIDUAL)
    if answer.coefficients or answer.residual is not None:
        for name, table in calibrated_tables(answer, folder, tuple(overrides)).items():
            head = f"# {answer.question.name}: what {Path(answer.question.file).name} fitted\n"
            write(folder / name, head + tomli_w.dumps(table))
            names.append(name)
    write(folder / JSON, json.dumps({"schema": SCHEMA, "question": question} | content_of(answer), indent=1,
                                         allow_nan=False, ensure_ascii=False) + "\n")
    return names


def content_of(answer: Answer) -> dict[str, Any]:
    """Return the content of calibration.json."""
    question = answer.question
    return {
        "name": question.name, "level": question.level,
        "data_sets": [{"name": each.name, "held_out": each.is_held,
                       "requests": None if each.requests is None else len(each.requests.ids),
                       "steps": None if each.steps is None else each.steps.num_steps} for each in question.sets],
        "coefficients": {key: {
            "value": each.value, "low": each.interval.low, "high": each.interval.high,
            "identified": each.interval.reason is None, "reason": each.interval.reason, "level": each.level}
            for key, each in answer.coefficients.items()},
        "residual": answer.residual and {"file": RESIDUAL, "scale": answer.residual.table.scale,
                                         **answer.residual.table.fit},
        "objective": answer.objective, "training": answer.training, "held_out": answer.held_out,
        "transfers": answer.transfers, "notes": list(answer.notes)}


def calibrated_tables(answer: Answer, folder: Path, overrides: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Return the experiments with the fitted keys: name of the file -> its tables.

    One for each experiment that describes a server; experiments of the fit are first.
    """
    question, found = answer.question, {}
    sets = sorted(question.sets, key=lambda each: each.is_held)
    experiments = dict.fromkeys(each.experiment for each in sets)
    for number, experiment in enumerate(experiments, 1):
        chosen = next(each for each in sets if each.experiment == experiment)
        values = {key: each.value for key, each in answer.coefficients.items()}
        base, sections = _base_and_sections(question, experiment, overrides)
        has_workload = "workload" in chosen.own.data
        resolved = plain(resolve(laid_over(chosen.own, values)) if has_workload else chosen.experiment_of(values))
        table: dict[str, Any] = {} if base is None else {"extends": os.path.relpath(base, folder)}
        table["name"] = f"{resolved['name']}-calibrated"
        table |= {name: resolved[name] for name in sections if name in resolved}
        for key, value in values.items():
            _set(table, key, value, resolved)
        if answer.residual is not None:
            _set(table, "latency.residual", RESIDUAL, resolved)
        found[CALIBRATED if number == 1 else f"calibrated-{number}.toml"] = table
    return found


def _base_and_sections(question: Question, experiment: str, overrides: tuple[str, ...]):
    """Return the file to extend, None: none, and the tables that differ: overridden ones, or the study file's."""
    given = Layers(Source("--set", ""))
    add_overrides(given, overrides, "--set")
    sections = [name for name in given.data if name not in NOT_OF_EXPERIMENT]
    if experiment:
        return experiment, sections
    own = read_toml(question.file)
    sections += [name for name in own if name not in NOT_OF_EXPERIMENT]
    base = own.get("extends")
    return base and os.path.join(os.path.dirname(os.path.abspath(question.file)), os.path.expanduser(base)), sections


def _set(table: dict[str, Any], key: str, value: float | str, resolved: Mapping[str, Any]) -> None:
    *path, last = key.split(".")
    if path[0] == "pools" and "pools" not in table:
        table["pools"] = resolved["pools"]
    place: Any = table
    for part in path:
        place = place[int(part)] if isinstance(place, list) else place.setdefault(part, {})
    place[last] = value


def _pairs(answer: Answer) -> Iterable[dict[str, Any]]:
    """Yield the rows of pairs.csv."""
    for each, replayed in zip(answer.question.sets, answer.replayed, strict=True):
        if replayed is None:
            continue
        for row, request_id in enumerate(each.requests.ids):
            cells = {"data_set": each.name, "held_out": str(bool(each.requests.is_held[row])).lower(),
                     "request_id": request_id}
            for name, metric in PAIRED.items():
                for side, times in (("measured", each.requests.times), ("simulated", replayed.times)):
                    value = times[metric][row]
                    cells[f"{side}_{name}_s"] = float(value) / MS_PER_S if np.isfinite(value) else None
            yield cells


def _digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
