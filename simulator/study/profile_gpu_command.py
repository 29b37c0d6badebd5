"""`python -m simulator profile-gpu MODEL`: measure the operators of a model on this machine, for `operators`."""
import argparse
import json
import sys
from collections import Counter
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import msgspec

from simulator import registry
from simulator.domain.deployment import Deployment
from simulator.domain.dtypes import KvCacheDtype
from simulator.domain.facts import load_model
from simulator.domain.hardware_spec import AcceleratorSpec, DenseFlops
from simulator.domain.parallelism import Parallelism
from simulator.errors import InputErrors, MissingExtra, did_you_mean
from simulator.profiling import machine, plan, timing
from simulator.profiling.collectives import Collectives
from simulator.profiling.graph_timer import GraphTimer
from simulator.profiling.journal import Journal
from simulator.profiling.session import Bench, measure_plan
from simulator.profiling.torch_kernels import TorchKernels, host_call
from simulator.profiling.vllm_kernels import VllmKernels, find_vllm

DONE = 0
PROVENANCE = "provenance.json"
SCHEMA = 1
DTYPES = ("bfloat16", "float16", "fp8")
TABLES = tuple(plan.KEYS)
KERNELS = ("auto", "torch", "vllm")
# Only its memory layout is used; no rate enters a table.
ANY_ACCELERATOR = AcceleratorSpec(name="here", memory_bytes=1, memory_bandwidth_bytes_per_s=1e12,
                                  scaleup_bytes_per_s=1e9, dense_flops_per_s=DenseFlops(bfloat16=1e12))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("model", metavar="MODEL", help="name in models/, or a file of that form")
    parser.add_argument("--tensor-parallel", type=int, default=1, metavar="N", help="ranks, one is measured; default 1")
    parser.add_argument("--expert-parallel", type=int, default=1, metavar="N", help="default 1")
    parser.add_argument("--out", metavar="DIR", help="folder of the tables; default: profile-MODEL-tpN")
    parser.add_argument("--resume", action="store_true", help="go on with the profile in that folder")
    parser.add_argument("--dtypes", metavar="NAME,...", help=(
        f"weights of products, of {', '.join(DTYPES)}; default: as published"))
    parser.add_argument("--kv-cache-dtype", choices=KvCacheDtype.__args__, metavar="DTYPE", default="auto", help=(
        f"{', '.join(KvCacheDtype.__args__)}; default auto"))
    parser.add_argument("--tables", metavar="NAME,...", help=f"of {', '.join(TABLES)}; default: all")
    parser.add_argument("--kernels", choices=KERNELS, default="auto", help=(
        "source of the kernels; default auto: vLLM's where it is installed, PyTorch's for what it lacks"))
    parser.add_argument("--ranks", metavar="N,...", help=(
        "collectives also of these numbers of ranks, a GPU each; default: the model's"))
    parser.add_argument("--quick", action="store_true", help="fewer sizes and repeats: a third of the points")
    parser.add_argument("--grid", action="store_true", help="also products, heads and widths of other models")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="default cuda")


def run(options: argparse.Namespace) -> int:
    """Measure, print the unmeasured points; return the exit status.

    Raises
    ------
    MissingExtra
        PyTorch is not installed.
    InputErrors
        No such model, table, device or kernels; the folder holds another profile.
    """
    model, deployments = _deployments(options)
    tables = _chosen("--tables", options.tables, TABLES) or TABLES
    ranks = _ranks(options.ranks)
    torch, vllm = _torch(options.device), _vllm(options.kernels)
    asked = [registry.load("latency", "operators").asked(each) for each in deployments]
    sizes = plan.QUICK if options.quick else plan.FULL
    points = plan.make_plan(model, asked, tables, sizes, options.grid, "vllm" if vllm else "torch", ranks)
    folder = Path(options.out or f"profile-{model.name}-tp{options.tensor_parallel}")
    provenance = _opened(folder, options, model, machine.describe(torch, options.device, vllm))
    kernels = TorchKernels(torch, options.device, points)
    kernels = VllmKernels(torch, options.device, vllm, kernels) if vllm else kernels
    with Journal(folder) as journal:
        _session(folder, provenance, points, journal, torch, options, kernels)
        _report(folder, journal, points)
        for operator, why in kernels.lacking.items():
            print(f"measured by PyTorch: {operator}: {why}")
    return DONE


def _session(folder: Path, provenance: dict, points: plan.Plan, journal: Journal, torch, options, kernels) -> None:
    """Measure the points that the journal lacks, and write the session's conditions, however it ends."""
    gauges = machine.Gauges() if options.device == "cuda" else machine.Gauges(read=lambda: None)
    effort = timing.QUICK if options.quick else timing.FULL
    session = {"began": _now(), "command": sys.orig_argv}
    provenance["sessions"].append(session)
    with Collectives(torch, options.device, effort) as collectives:
        try:
            _write(folder, provenance)
            _measure(points, journal, _bench(torch, options.device, effort, kernels, collectives), gauges)
        except KeyboardInterrupt:
            print(f"interrupted; --resume goes on: {folder}", file=sys.stderr)
            raise
        finally:
            session |= {"ended": _now(), "samples": gauges.samples, "throttled_samples": gauges.num_throttled}
            session |= {"not_of_vllm": kernels.lacking} if kernels.lacking else {}
            provenance |= {"not_measured": dict(Counter(journal.missed.values())), "left_out": points.left_out,
                           "kernel_sources": sorted({row["kernel_source"] for row in journal.rows.values()})}
            provenance |= {"host_us": host_us(journal)}
            _write(folder, provenance)
    if gauges.num_throttled:
        print(f"warning: clocks were below {machine.THROTTLED:.0%} of the highest in {gauges.num_throttled} of "
              f"{len(gauges.samples)} samples")


def _deployments(options) -> tuple:
    model = load_model(options.model)
    spread = Parallelism(tensor_parallel=options.tensor_parallel, expert_parallel=options.expert_parallel)
    ways = {"--tensor-parallel": options.tensor_parallel, "--expert-parallel": options.expert_parallel}
    faults = [f"{name}: expected an integer >= 1, found {count}" for name, count in ways.items() if count < 1]
    faults = faults or spread.faults(model)
    if faults:
        raise InputErrors(faults)
    dtypes = _chosen("--dtypes", options.dtypes, DTYPES) or (None,)
    return model, [Deployment(model=model, accelerator=ANY_ACCELERATOR, parallelism=spread, weight_dtype=dtype,
                              kv_cache_dtype=options.kv_cache_dtype) for dtype in dtypes]


def _chosen(option: str, text: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(text.split(",")) if text is not None else ()
    faults = [f'{option}: expected of {", ".join(known)}, found "{name}"{did_you_mean(name, known)}'
              for name in names if name not in known]
    if faults:
        raise InputErrors(faults)
    return names


def _torch(device: str):
    try:
        torch = import_module("torch")
    except ImportError:
        raise MissingExtra(["profile-gpu needs PyTorch: install it with pip install 'simulator[gpu]'"]) from None
    if device == "cuda" and not torch.cuda.is_available():
        raise InputErrors([f"--device: cuda: PyTorch {torch.__version__} sees no CUDA device; --device cpu measures "
                           "the processor"])
    return torch


def _ranks(text: str | None) -> tuple[int, ...]:
    words = text.split(",") if text is not None else ()
    faults = [f"--ranks: expected integers >= 2, found {word!r}" for word in words
              if not (word.strip().isdecimal() and int(word) >= 2)]
    if faults:
        raise InputErrors(faults)
    return tuple(map(int, words))


def _vllm(kernels: str) -> str:
    """Return the version of vLLM for its kernels; empty: PyTorch's kernels are measured."""
    if kernels == "torch":
        return ""
    version, reason = find_vllm()
    if not version and kernels == "vllm":
        raise InputErrors([f"--kernels: vllm: {reason}; --kernels torch measures PyTorch's"])
    return version


def _bench(torch, device: str, effort: timing.Effort, kernels, collectives: Collectives) -> Bench:
    settle = torch.cuda.synchronize if device == "cuda" else lambda: None
    of_host = timing.HostTimer(effort, settle=settle)

    def host(operation: str, num_kernels: int):
        call = host_call(torch, device, operation, num_kernels)
        return call and of_host.measure(lambda: (call, 0))

    timer = GraphTimer(torch, effort) if device == "cuda" else of_host
    return Bench(torch, kernels, timer, host, lambda: machine.free_bytes(torch, device), collectives)


def _measure(points: plan.Plan, journal: Journal, bench: Bench, gauges: machine.Gauges) -> None:
    from tqdm import tqdm  # no other command needs it this early

    with tqdm(total=len(points.points), unit=" points", file=sys.stderr, disable=None) as bar:
        def advance(point):
            bar.set_description(point.table, refresh=False)
            bar.update()
        measure_plan(points, journal, bench, gauges.sm_mhz, advance)


def _opened(folder: Path, options, model, here: dict) -> dict:
    """Return the provenance of a new profile, or of the one to resume."""
    subject = {"model": msgspec.to_builtins(model), "tensor_parallel": options.tensor_parallel,
               "expert_parallel": options.expert_parallel, "dtypes": options.dtypes,
               "kv_cache_dtype": options.kv_cache_dtype, "tables": options.tables, "quick": options.quick,
               "grid": options.grid, "kernels": options.kernels, "ranks": options.ranks}
    subject, here = json.loads(json.dumps([subject, here]))     # as it will be read: lists in place of tuples
    file = folder / PROVENANCE
    if not file.is_file():
        if folder.is_dir() and any(folder.iterdir()):
            raise InputErrors([f"--out: {folder} holds other files; name a new folder"])
        return {"schema": SCHEMA, "subject": subject, "machine": here, "sessions": []}
    if not options.resume:
        raise InputErrors([f"--out: {folder} holds a profile; --resume goes on with it, or name another folder"])
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        parts = [("", found["subject"], subject), ("machine: ", found["machine"], here)]
        faults = [f"{file}: {what}{name}: this profile has {json.dumps(old.get(name))[:80]}, --resume finds "
                  f"{json.dumps(new.get(name))[:80]}"
                  for what, old, new in parts for name in {**old, **new} if old.get(name) != new.get(name)]
        found["sessions"] = list(found["sessions"])
    except (ValueError, KeyError, AttributeError, TypeError):
        raise InputErrors([f"{file}: is no provenance of a profile; name another folder"]) from None
    if faults:
        raise InputErrors(faults)
    return found


def _write(folder: Path, provenance: dict) -> None:
    """Write the provenance, whole or not at all."""
    beside = folder / f"{PROVENANCE}.new"
    beside.write_text(json.dumps(provenance, indent=1) + "\n", encoding="utf-8")
    beside.replace(folder / PROVENANCE)


def host_us(journal: Journal) -> dict[str, float]:
    """Return the host's times, in microseconds.

    launch : per kernel. graph_replay : of a graph of one kernel. graph_kernel : each further kernel of a graph.
    """
    found_us = {point.cells: float(row["latency_ms"]) * 1e3 for point, row in journal.rows.items()
                if point.table == "host"}
    one, (_, most) = found_us.get(("graph_replay", 1)), plan.HOST[-1]
    many = found_us.get(("graph_replay", most))
    terms = {"launch": found_us.get(("launch", 1)), "graph_replay": one,
             "graph_kernel": (many - one) / (most - 1) if one is not None and many is not None else None}
    return {name: round(value, 4) for name, value in terms.items() if value is not None}


def _report(folder: Path, journal: Journal, points: plan.Plan) -> None:
    print(f"{len(journal.rows)} points in {folder}")
    for reason, count in Counter(journal.missed.values()).items():
        first = next(point for point, why in journal.missed.items() if why == reason)
        print(f"not measured: {count} points, {first} the first: {reason}")
    for what, why in points.left_out.items():
        print(f"left out: {what}: {why}")
    if host := host_us(journal):
        print("host: " + ", ".join(f"{name} {value:g} us" for name, value in host.items()))
    print(f'\n[latency]\nbackend = "operators"\npath = {json.dumps(str(folder))}')


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
