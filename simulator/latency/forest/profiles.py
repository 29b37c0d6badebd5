"""Training data of Vidur's forests: its profiling CSVs, filtered to one model and parallelism.

Files, columns, filters, features and targets are those of microsoft/vidur @ 7d47513,
vidur/execution_time_predictor/sklearn_execution_time_predictor.py. Times are milliseconds of one layer, except
send_recv, which is one message, and host times, which are once per iteration.
"""
import csv
import io
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np

from simulator.core.csv_columns import ProfileCsv, file_bytes
from simulator.domain.deployment import Deployment
from simulator.errors import InputErrors, KeyFault, collect_faults

ROUNDED_OPERATORS = (           # of mlp.csv; their features are token counts rounded up to a multiple of 8
    "attn_pre_proj", "attn_post_proj", "attn_rope", "input_layernorm", "mlp_up_proj", "mlp_down_proj", "mlp_act",
    "post_attention_layernorm", "add")
MAY_BE_ABSENT = ("input_layernorm", "post_attention_layernorm", "add")      # early profiles lack them: 0 ms
HOST_TIMES = {                  # sub-model -> columns that may hold it: Vidur has renamed them over time
    "schedule": ("schedule_median",), "sampler_e2e": ("sampler_e2e_median",),
    "prepare_inputs_e2e": ("prepare_inputs_e2e_median",),
    "process_model_outputs": ("process_model_outputs_median",),
    "ray_comm_time": ("ray_comm_time_mean", "ray_comm_time_median")}
NETWORK_FILES = ("all_reduce_file", "send_recv_file")
FILES = ("compute_file", "attention_file", "all_reduce_file", "send_recv_file", "cpu_overhead_file")
BYTES_PER_ELEMENT = 2           # network profiles count bytes; activations are 16 bit
SOURCE = "source"               # column of synthetic profiles: source of the times; Vidur's have none


@dataclass(frozen=True)
class Samples:
    """Measurements of one sub-model: features (n, k) and times (n,), float64."""

    features: np.ndarray
    times_ms: np.ndarray


@dataclass(frozen=True)
class Subject:
    """Values that rows of a profile must have; names as in its columns."""

    n_head: int
    n_kv_head: int
    n_embd: int
    n_expanded_embd: int
    use_gated_mlp: bool
    vocab_size: int
    tensor_parallel: int
    pipeline_parallel: int
    has_post_attention_norm: bool
    block_size: int
    cpu_overhead_model: str


def subject_of(parameters, deployment: Deployment) -> Subject:
    """Return the values that rows of this deployment's profiles must have.

    Raises
    ------
    InputErrors
        Profiles of this form do not describe such a model.
    """
    model, ways = deployment.model, deployment.parallelism
    faults = [message for is_fault, message in (
        (model.moe is not None or model.mlp is None, f"{model.name} has experts"),
        (model.attention.profile_key != "multi_head" or set(model.layer_types) != {"full_attention"},
         f"{model.name} has attention other than multi-head attention to all tokens"
         + "".join(f", {mixer.title}" for mixer, _ in model.mixers if mixer.profile_key != "multi_head")),
        (ways.data_parallel > 1 or ways.expert_parallel > 1, "data or expert parallelism within a replica"),
    ) if is_fault]
    if faults:
        raise InputErrors([KeyFault(f'latency.backend: "forest" has no profiles for this: {fault}')
                           for fault in faults])
    return Subject(
        n_head=model.attention.num_heads, n_kv_head=model.attention.num_kv_heads, n_embd=model.hidden_size,
        n_expanded_embd=model.mlp.intermediate_size, use_gated_mlp=model.mlp.gated, vocab_size=model.vocab_size,
        tensor_parallel=ways.tensor_parallel, pipeline_parallel=ways.pipeline_parallel,
        has_post_attention_norm=model.norms_per_layer > 1, block_size=parameters.profile_block_size,
        cpu_overhead_model=parameters.cpu_overhead_model or model.hf_id)


def refuse_idle_files(parameters, with_network: bool) -> None:
    """Refuse profiles of collectives that a collective model times.

    Raises
    ------
    InputErrors
        There are such profiles.
    """
    idle = [key for key in NETWORK_FILES if not with_network and getattr(parameters, key) is not None]
    if idle:
        raise InputErrors([KeyFault(f"latency.{key}: expected none with [latency.collective], which times these "
                                    "collectives; leave one of them out") for key in idle])


def files_needed(parameters, subject: Subject, with_network: bool) -> dict[str, str]:
    """Return key -> path of the required profiles.

    with_network : whether collectives are also learnt.

    Raises
    ------
    InputErrors
        The key of a required profile is missing.
    """
    is_needed = {
        "compute_file": True, "attention_file": True,
        "all_reduce_file": with_network and subject.tensor_parallel > 1,
        "send_recv_file": with_network and subject.pipeline_parallel > 1,
        "cpu_overhead_file": parameters.cpu_overhead_file is not None}
    given = {key: getattr(parameters, key) for key in FILES if is_needed[key]}
    missing = [KeyFault(f"latency.{key}: missing; the forest backend needs this profile")
               for key, path in given.items() if path is None]
    if missing:
        raise InputErrors(missing)
    return given


def read_samples(files: dict[str, str], subject: Subject) -> dict[str, Samples]:
    """Return the samples of each sub-model.

    Raises
    ------
    InputErrors
        All faults of the files: name, line, column, found and expected value.
    """
    readers = {"compute_file": _compute, "attention_file": _attention, "all_reduce_file": _all_reduce,
               "send_recv_file": _send_recv, "cpu_overhead_file": _host}
    parts = collect_faults(*[lambda key=key: readers[key](ProfileCsv(files[key]), subject) for key in files])
    return {name: samples for part in parts for name, samples in part.items()}


def sources_of(paths: Iterable[str]) -> list[str]:
    """Return the sources in the first rows of profiles, each once."""
    sources = []
    for path in paths:
        reader = csv.DictReader(io.StringIO(file_bytes(path).decode("utf-8-sig", "replace"), newline=""))
        sources.append(next(reader, {}).get(SOURCE))
    return [source for source in dict.fromkeys(sources) if source]


def _compute(file: ProfileCsv, subject: Subject) -> dict[str, Samples]:
    values = {key: value for key, value in asdict(subject).items()
              if key in ("n_head", "n_kv_head", "n_embd", "n_expanded_embd", "use_gated_mlp")}
    file = file.where(**values, num_tensor_parallel_workers=subject.tensor_parallel)
    file = file.where(vocab_size=_padded(subject.vocab_size, file))
    tokens = file.numbers("num_tokens")
    skipped = () if subject.has_post_attention_norm else ("post_attention_layernorm",)
    return dict(zip(
        [name for name in ROUNDED_OPERATORS if name not in skipped],
        collect_faults(*[lambda name=name: Samples(tokens[:, None], _times(file, name, name in MAY_BE_ABSENT))
                         for name in ROUNDED_OPERATORS if name not in skipped])))


def _padded(vocab_size: int, file: ProfileCsv) -> float:
    """Return the profile's vocabulary for the model: profiles round it up (Llama-2: 32,000 to 32,768)."""
    found = file.numbers("vocab_size")
    return float(min((size for size in found if size >= vocab_size), default=vocab_size))


def _attention(file: ProfileCsv, subject: Subject) -> dict[str, Samples]:
    file = file.where(
        n_embd=subject.n_embd, n_q_head=subject.n_head, n_kv_head=subject.n_kv_head, block_size=subject.block_size,
        num_tensor_parallel_workers=subject.tensor_parallel)
    chunk = file.numbers("prefill_chunk_size")
    tokens = np.maximum(chunk, file.numbers("batch_size"))
    prefill, decode = file.rows(chunk != 0), file.rows(chunk == 0)
    for rows, what in ((prefill, "!= 0"), (decode, "= 0")):
        if not len(rows):
            raise InputErrors([f"{file.path}: prefill_chunk_size: no row of this model holds one {what}"])
    return dict(zip(("attn_kv_cache_save", "attn_prefill", "attn_decode"), collect_faults(
        lambda: Samples(tokens[:, None], _times(file, "attn_kv_cache_save", may_be_absent=True)),
        lambda: _features(prefill, _times(prefill, "attn_prefill"), kv_cache_size=1, prefill_chunk_size=2),
        lambda: _features(decode, _times(decode, "attn_decode"), batch_size=1, kv_cache_size=1))))


def _features(file: ProfileCsv, times_ms: np.ndarray, **powers: int) -> Samples:
    return Samples(np.column_stack([file.numbers(column) ** power for column, power in powers.items()]), times_ms)


def _all_reduce(file: ProfileCsv, subject: Subject) -> dict[str, Samples]:
    file = file.where(num_workers=subject.tensor_parallel, devices_per_node=subject.tensor_parallel)
    return {"all_reduce": _message(file, "all_reduce", subject)}


def _send_recv(file: ProfileCsv, subject: Subject) -> dict[str, Samples]:
    world = subject.tensor_parallel * subject.pipeline_parallel
    leaves_node = world > file.numbers("max_devices_per_node").min()
    return {"send_recv": _message(file.where(devices_per_node=1 if leaves_node else 2), "send_recv", subject)}


def _message(file: ProfileCsv, name: str, subject: Subject) -> Samples:
    tokens = file.numbers("size") / subject.n_embd / BYTES_PER_ELEMENT
    return Samples(tokens[:, None], _times(file, name))


def _host(file: ProfileCsv, subject: Subject) -> dict[str, Samples]:
    file = file.where(model_name=subject.cpu_overhead_model, tensor_parallel_degree=subject.tensor_parallel)
    batch = file.numbers("batch_size")[:, None]
    spelt = {name.lower(): name for name in file.header}
    columns = {name: next((spelt[each] for each in choices if each in spelt), choices[0])
               for name, choices in HOST_TIMES.items()}
    return {name: Samples(batch, file.numbers(column)) for name, column in columns.items()}


def _times(file: ProfileCsv, name: str, may_be_absent: bool = False) -> np.ndarray:
    column = f"time_stats.{name}.median"
    if not may_be_absent:
        return file.numbers(column)
    return np.nan_to_num(file.numbers(column, may_be_empty=True)) if file.has(column) else np.zeros(len(file))
