"""Files of a database of operator times: finding them, and reading one as columns.

Two layouts are supported: that of aiconfigurator (Apache-2.0, the PyPI package aiconfigurator-core), as installed or as
a copy of its folder `systems`,

    systems/data/<system>/<family>/<framework>/<version>/<table>_perf.parquet

and one folder of tables of one system, <table>_perf.parquet, .csv or .csv.gz. Of several versions the newest
one with usable rows is read; see database.py. Columns of one value may be left out of CSV files.
"""
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from simulator.core.csv_columns import ProfileCsv
from simulator.errors import InputErrors, KeyFault, MissingExtra, did_you_mean

INSTALL = "pip install 'simulator[operators]'"
SYSTEMS = {
    "a100-sxm-80gb": "a100_sxm", "a100-pcie-80gb": "a100_pcie", "h100-sxm-80gb": "h100_sxm",
    "h100-pcie-80gb": "h100_pcie", "h200-sxm-141gb": "h200_sxm", "b200-sxm-180gb": "b200_sxm",
    "b300-sxm-288gb": "b300_sxm", "gb200": "gb200", "gb300": "gb300", "l40s": "l40s", "l4": "l4", "a30": "a30",
    "rtx-pro-6000-server": "rtx_pro_6000_server", "intel-b60": "b60"}
SUFFIXES = ("_perf.parquet", "_perf.csv", "_perf.csv.gz")
# Tables that a framework's part of the database lacks or has unsound rows of, taken from others: the kernel of latent
# attention, of which vLLM's part times the whole block; DeepEP's and NVLink's dispatch and combine, libraries shared by
# all; single kernels of recurrences.
LENDERS = ("sglang", "trtllm")
LENT = ("context_mla", "generation_mla", "mla_bmm", "wideep_deepep_ll", "wideep_deepep_normal", "trtllm_alltoall",
        "kda", "mamba2")
# Tables lent beside the framework's own of that name, and their name then; see fused_norms.py, expert_tables.py.
RENAMED_IF_LENT = {"trtllm": {"custom_allreduce": "trtllm_allreduce"}, "sglang": {"moe": "sglang_moe"}}
SHARED = ("nccl", "oneccl")     # folders of libraries, in place of a framework
# Time columns of DeepEP's tables, in microseconds; some values are 0.
EXCHANGE_TIMES = ("dispatch_transmit_us", "dispatch_notify_us", "dispatch_avg_t_us",
                  "combine_transmit_us", "combine_notify_us", "combine_avg_t_us")
MICROSECONDS = ("moe_a2a",)     # tables with latencies in microseconds
MAY_TAKE_NOTHING = ("computescale", "glm5_topk_module")     # a time may be 0: of a difference, of no kernel
# Columns of other names in some tables, and values of other names in some columns.
RENAMED = {"avg_ms": "latency_ms", "quant_type": "moe_dtype", "intermediate_size": "inter_size", "ep_size":
           "moe_ep_size", "bmm_dtype": "gemm_dtype", "quant_dtype": "gemm_dtype"}
FP8_NAMES = {"fp8_e4m3": "fp8"}
# Key columns, as texts and as numbers; no other key columns are read.
TEXTS = frozenset({"gemm_dtype", "attn_dtype", "kv_cache_dtype", "mla_dtype", "moe_dtype", "distribution",
                   "allreduce_dtype", "nccl_dtype", "backend", "op_name", "collective", "kernel_source", "phase",
                   "gemm_type", "model", "operator", "timing", "comm_backend", "quant_type", "bmm_dtype",
                   "quant_dtype"})
NUMBERS = frozenset({"m", "n", "k", "batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim",
                     "window_size", "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size",
                     "moe_ep_size", "num_gpus", "message_size", "seq_len", "d_conv", "num_k_heads", "head_k_dim",
                     "num_v_heads", "head_v_dim", "latency", "latency_ms",
                     "elements", "node_num", "num_token", "num_topk", *EXCHANGE_TIMES, "dispatch_sms", "combine_sms",
                     "sms", "ep_size", "avg_ms", "intermediate_size", "num_slots", "d_state", "nheads", "n_groups",
                     "hc_mult", "num_sites"})


def other_card_note(path: str | None, system: str | None, accelerator: str) -> list[str]:
    """Return a note if tables are of another accelerator than the one that they price.

    path, system : as in `find_tables`. A folder of one system is recognised by its name.
    """
    own, known = SYSTEMS.get(accelerator, accelerator), set(SYSTEMS.values())
    found = Path(path).resolve().name if path is not None else ""
    found = found if found in known else system or own
    if found == own:
        return []
    return [f"tables of {found} price {accelerator}: kernels take as long as measured there, and peak rates and memory "
            f"of {accelerator} count only where no row was measured, and where rows would beat its memory"]


def find_tables(path: str | None, system: str | None, accelerator: str, framework: str | None) -> dict[str, list[Path]]:
    """Return the files of each table, the newest version first.

    Parameters
    ----------
    path : a folder in one of the layouts; None: the installed package.
    system : name of the system in the database; None: the system of `accelerator`.
    framework : framework of the timed kernels: vllm, sglang, trtllm; None: vllm.

    Raises
    ------
    InputErrors
        No package, folder, system or table.
    """
    framework, folder = framework or "vllm", Path(path) if path is not None else _installed()
    flat = _flat(folder)
    if flat:
        return flat
    data = folder / "data" if (folder / "data").is_dir() else folder
    known = sorted(each.name for each in data.iterdir() if each.is_dir()) if data.is_dir() else []
    name = system or SYSTEMS.get(accelerator, accelerator)
    if name not in known:
        raise InputErrors([f'{folder}: no operator tables of system "{name}"{did_you_mean(name, known)}'])
    found = _flat(data / name) or _nested(data / name, framework)
    if not found:
        raise InputErrors([f"{data / name}: no tables of {framework}: expected files <table>{SUFFIXES[0]}, "
                           f"{SUFFIXES[1]} or {SUFFIXES[2]}"])
    return found


def version_of(path: Path) -> str:
    """Return the version of the framework in a file's path, or the empty text."""
    return path.parent.name if re.match(r"\d", path.parent.name) else ""


def version_numbers(version: str) -> list[int]:
    """Return the numbers of a version, which order versions."""
    return [int(number) for number in re.findall(r"\d+", version)]


def read_columns(path: Path) -> dict[str, np.ndarray]:
    """Return the known columns of a file, (rows,) each: float64, or texts.

    Raises
    ------
    InputErrors
        The file cannot be read; a cell does not fit its column, with line and column.
    """
    columns = _read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)
    columns, table = _named_alike(columns), table_of(path)
    if "latency_ms" not in columns:
        if "latency" not in columns and columns.keys() & set(EXCHANGE_TIMES):
            columns["latency"] = sum(columns[name] for name in EXCHANGE_TIMES if name in columns) * 1e-3
        if "latency" not in columns:
            raise InputErrors([f"{path}:1: latency: no such column; found {', '.join(columns)[:200]}"])
        columns["latency_ms"] = columns.pop("latency") * (1e-3 if table in MICROSECONDS else 1.0)
    if len(columns["latency_ms"]) == 0:
        raise InputErrors([f"{path}: no rows"])
    is_time = columns["latency_ms"] >= 0 if table in MAY_TAKE_NOTHING else columns["latency_ms"] > 0
    wrong = np.flatnonzero(~is_time)
    if len(wrong):
        found, least = columns["latency_ms"][wrong[0]], "of 0 or more" if table in MAY_TAKE_NOTHING else "above 0"
        raise InputErrors([f"{path}: row {wrong[0] + 1}: latency: expected a time {least}, found {found:g}; "
                           f"{len(wrong)} rows like it"])
    return columns


def table_of(path: Path) -> str:
    """Return the name of the table in a file."""
    return next((path.name.removesuffix(suffix) for suffix in SUFFIXES if path.name.endswith(suffix)), path.stem)


def framework_of(path: Path) -> str:
    """Return the framework in a file's path, or the empty text."""
    return path.parents[1].name if version_of(path) else ""


def _named_alike(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return columns and formats with one name for each."""
    columns = {RENAMED.get(name, name): values for name, values in columns.items()}
    for name, values in columns.items():
        if name.endswith("_dtype"):
            for other, usual in FP8_NAMES.items():
                columns[name] = values = np.where(values == other, usual, values)
    return columns


def _installed() -> Path:
    package = find_spec("aiconfigurator_core")
    if package is None or not package.submodule_search_locations:
        raise MissingExtra([KeyFault(f"latency.path: no operator tables: name a folder, or install them: {INSTALL}")])
    return Path(package.submodule_search_locations[0]) / "systems"


def _flat(folder: Path) -> dict[str, list[Path]]:
    found = {}
    if folder.is_dir():
        for each in sorted(folder.iterdir()):
            for suffix in SUFFIXES:
                if each.name.endswith(suffix):
                    found.setdefault(each.name.removesuffix(suffix), []).append(each)
    return found


def _nested(folder: Path, framework: str) -> dict[str, list[Path]]:
    found = {}
    for whose in dict.fromkeys((framework, *SHARED, *LENDERS)):
        files = list(folder.glob(f"*/{whose}/*/*_perf.parquet"))
        for each in sorted(files, key=lambda file: (version_numbers(file.parent.name), str(file)), reverse=True):
            if whose in (framework, *SHARED) or table_of(each) in LENT:
                found.setdefault(table_of(each), []).append(each)
            elif table_of(each) in RENAMED_IF_LENT.get(whose, {}):
                found.setdefault(RENAMED_IF_LENT[whose][table_of(each)], []).append(each)
    return found


def _read_csv(path: Path) -> dict[str, np.ndarray]:
    table = ProfileCsv(path)
    columns = {}
    for name in table.header:
        if name in TEXTS:
            columns[name] = np.array(table.texts(name))
        elif name in NUMBERS:
            columns[name] = table.numbers(name)
    return columns


def _read_parquet(path: Path) -> dict[str, np.ndarray]:
    try:
        import pyarrow.parquet as parquet  # slow import, needed for Parquet files only
        from pyarrow import ArrowException
    except ImportError as error:
        raise MissingExtra([f"{path}: Parquet needs pyarrow; install it with {INSTALL}"]) from error
    try:
        table = parquet.read_table(path)
        columns = {}
        for name in table.column_names:
            values = table[name]
            if name in TEXTS | NUMBERS and values.null_count:
                row = values.is_null().to_pylist().index(True)
                raise InputErrors([f"{path}: row {row + 1}: {name}: is empty"])
            if name in TEXTS:
                columns[name] = np.array(values.to_pylist(), dtype=str)
            elif name in NUMBERS:
                columns[name] = values.to_numpy().astype(float)
        return columns
    except (ArrowException, OSError, ValueError) as error:
        if isinstance(error, InputErrors):
            raise
        raise InputErrors([f"{path}: cannot be read: {' '.join(str(error).split())[:200]}"]) from error
