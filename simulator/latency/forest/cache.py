"""Keep trained tables in HDF5 files, each under a key of everything it depends on."""
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
from simulator.latency.forest.training import train
from simulator.latency.source_digest import digest_of
from simulator.latency.table_cache import DAMAGE, cache_folder, damaged, new_hdf5

FORMAT = 1                      # of the files and of what is in them: raise it when training changes
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
    """Return the tables of a deployment and the file that keeps them.

    They are trained where there is no such file, or a damaged one.

    Parameters
    ----------
    parameters : ForestParameters
    with_network : bool
        Learn all-reduce and send-recv too, where the deployment has them.
    progress : called with the name of each sub-model before it is trained; None: a long training is logged.
    notes : is told of a damaged file, which is made again.

    Raises
    ------
    InputErrors
        Wrong, missing or unreadable profiles; scikit-learn is missing; the cache cannot be written.
    """
    subject = subject_of(parameters, deployment)
    files = files_needed(parameters, subject, with_network)
    key = {
        "format": FORMAT,
        "subject": asdict(subject),
        "files": dict(zip(files, collect_faults(*[partial(digest_of, path, parameters.cache_directory, file_bytes)
                                                  for path in files.values()]))),
        "settings": {name: getattr(parameters, name) for name in (*TRAINS, *GRIDS[parameters.estimator])},
        "versions": {name: _version(name) for name in ("numpy", "scikit-learn")}}
    text = json.dumps(key, sort_keys=True)
    path = cache_folder(parameters.cache_directory) / f"forest-{hashlib.sha256(text.encode()).hexdigest()[:32]}.h5"
    tables = read_tables(path, text)
    if tables is None:
        if notes is not None and path.is_file():
            notes.append(damaged(path))
        samples = read_samples(files, subject)
        candidates = math.prod(len(getattr(parameters, name)) for name in GRIDS[parameters.estimator])
        if progress is None and candidates > 1:
            logging.getLogger(__name__).warning(
                "training %d sub-models from %d candidates each, which may take long; `simulator train` does so ahead "
                "of time and shows progress", len(samples), candidates)
        tables = train(samples, parameters, progress or (lambda name: None))
        write_tables(path, tables, text)
    return tables, path


def read_tables(path: Path, key: str) -> ForestTables | None:
    """Return the tables in a file; None: no file, a damaged one, or another key."""
    import h5py  # half of the start-up time, where another backend needs none of it

    try:
        with h5py.File(path, "r") as file:
            found = {}
            file.visititems(lambda name, item: found.update({name: item[()]} if isinstance(item, h5py.Dataset) else {}))
            granularity, digest = int(file.attrs["kv_granularity"]), file.attrs["sha256"]
            if file.attrs["key"] != key or digest != _digest(found, granularity):
                return None
    except DAMAGE:
        return None
    parts = {part: {name.partition("/")[2]: table for name, table in found.items() if name.startswith(f"{part}/")}
             for part in ("tokens", "host", "covered")}
    return ForestTables(decode=found["decode"], prefill=found["prefill"], kv_granularity=granularity, **parts)


def write_tables(path: Path, tables: ForestTables, key: str) -> None:
    """Write a file, whole or not at all; the same tables give the same bytes."""
    arrays = tables.arrays()
    with new_hdf5(path) as file:
        file.attrs.update(key=key, kv_granularity=tables.kv_granularity, sha256=_digest(arrays, tables.kv_granularity))
        for name, array in arrays.items():
            file.create_dataset(name, data=array, track_times=False)


def _digest(arrays: dict[str, np.ndarray], kv_granularity: int) -> str:
    digest = hashlib.sha256(str(kv_granularity).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.shape} {array.dtype.str}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
