"""Cache of trained tables in HDF5 files, each under a key of all its inputs."""
import hashlib
import json
import logging
import math
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from simulator.core.csv_columns import file_bytes
from simulator.domain.deployment import Deployment
from simulator.errors import collect_faults
from simulator.latency.forest.profiles import files_needed, read_samples, subject_of
from simulator.latency.forest.tables import ForestTables
from simulator.latency.forest.training import left_out, train
from simulator.latency.source_digest import digest_of
from simulator.latency.table_cache import DAMAGE, cache_folder, damaged, new_hdf5

FORMAT = 2                      # of the files and their content: increase it when training changes
TRAINS = (                      # keys of ForestParameters on which tables depend
    "training_seed", "k_fold_cv_splits", "kv_granularity_tokens", "max_tokens", "max_batch_size", "max_kv_tokens",
    "max_chunk_tokens", "estimator")
GRIDS = {
    "random_forest": ("num_estimators", "max_depth", "min_samples_split"),
    "linear_regression": ("polynomial_degree", "polynomial_include_bias", "polynomial_interaction_only",
                          "fit_intercept")}


def tables_of(parameters, deployment: Deployment, with_network: bool = True,
              progress: Callable[[str], None] | None = None,
              notes: list[str] | None = None) -> tuple[ForestTables, Path]:
    """Return the tables of a deployment and their cache file.

    They are trained if there is no such file, or a damaged one.

    Parameters
    ----------
    parameters : ForestParameters
    with_network : bool
        Also train all-reduce and send-recv, if the deployment has them.
    progress : called with the name of each sub-model before it is trained; None: a long training is logged.
    notes : receives a note if a damaged file is rewritten.

    Raises
    ------
    InputErrors
        Wrong, missing or unreadable profiles; scikit-learn is missing; the cache cannot be written.
    """
    files, text = _key_of(parameters, deployment, with_network)
    path = _place_of(text, parameters)
    tables = read_tables(path, text)
    if tables is None:
        if notes is not None and path.is_file():
            notes.append(damaged(path))
        samples = read_samples(files, subject_of(parameters, deployment))
        candidates = math.prod(len(getattr(parameters, name)) for name in GRIDS[parameters.estimator])
        if progress is None and candidates > 1:
            logging.getLogger(__name__).warning(
                "training %d sub-models from %d candidates each, which may take long; `simulator train` does so ahead "
                "of time and shows progress", len(samples), candidates)
        tables = train(samples, parameters, progress or (lambda name: None))
        write_tables(path, tables, text)
    return tables, path


def errors_of(parameters, deployment: Deployment, with_network: bool = True) -> dict[str, np.ndarray]:
    """Return the errors of each sub-model, in the form of `training.left_out`.

    They are cached like tables: folds are trained once.

    Raises
    ------
    InputErrors
        As in `tables_of`.
    """
    files, text = _key_of(parameters, deployment, with_network)
    text = f"errors {text}"
    path = _place_of(text, parameters)
    kept = _read(path, text)
    if kept is not None:
        return kept[0]
    tables, _ = tables_of(parameters, deployment, with_network)
    found = left_out(read_samples(files, subject_of(parameters, deployment)), parameters, tables.chosen)
    _write(path, found, {"key": text})
    return found


def _key_of(parameters, deployment: Deployment, with_network: bool) -> tuple[dict[str, str], str]:
    """Return the required profiles, and all inputs of the tables as a text."""
    subject = subject_of(parameters, deployment)
    files = files_needed(parameters, subject, with_network)
    key = {
        "format": FORMAT,
        "subject": asdict(subject),
        "files": dict(zip(files, collect_faults(*[partial(digest_of, path, parameters.cache_directory, file_bytes)
                                                  for path in files.values()]))),
        "settings": {name: getattr(parameters, name) for name in (*TRAINS, *GRIDS[parameters.estimator])},
        "versions": {name: _version(name) for name in ("numpy", "scikit-learn")}}
    return files, json.dumps(key, sort_keys=True)


def _place_of(key: str, parameters) -> Path:
    return cache_folder(parameters.cache_directory) / f"forest-{hashlib.sha256(key.encode()).hexdigest()[:32]}.h5"


def read_tables(path: Path, key: str) -> ForestTables | None:
    """Return the tables in a file; None: it is absent, damaged, or has another key."""
    kept = _read(path, key)
    if kept is None:
        return None
    found, facts = kept
    parts = {part: {name.partition("/")[2]: table for name, table in found.items() if name.startswith(f"{part}/")}
             for part in ("tokens", "host", "covered")}
    return ForestTables(decode=found["decode"], prefill=found["prefill"], kv_granularity=int(facts["kv_granularity"]),
                        chosen=json.loads(facts["chosen"]), **parts)


def write_tables(path: Path, tables: ForestTables, key: str) -> None:
    """Write a file, whole or not at all; equal tables give equal bytes."""
    _write(path, tables.arrays(), {"key": key, "kv_granularity": tables.kv_granularity,
                                   "chosen": json.dumps(tables.chosen, sort_keys=True)})


def _read(path: Path, key: str) -> tuple[dict[str, np.ndarray], dict] | None:
    """Return the arrays and facts in a file; None: it is absent, damaged, or has another key."""
    import h5py  # half of the start-up time of backends that do not need it

    try:
        with h5py.File(path, "r") as file:
            found, facts = {}, dict(file.attrs)
            file.visititems(lambda name, item: found.update({name: item[()]} if isinstance(item, h5py.Dataset) else {}))
        digest = facts.pop("sha256")
    except DAMAGE:
        return None
    return (found, facts) if facts["key"] == key and digest == _digest(found, facts) else None


def _write(path: Path, arrays: dict[str, np.ndarray], facts: dict) -> None:
    with new_hdf5(path) as file:
        file.attrs.update(facts | {"sha256": _digest(arrays, facts)})
        for name, array in arrays.items():
            file.create_dataset(name, data=array, track_times=False)


def _digest(arrays: dict[str, np.ndarray], facts: dict) -> str:
    digest = hashlib.sha256(json.dumps({name: str(value) for name, value in facts.items()}, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.shape} {array.dtype.str}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
