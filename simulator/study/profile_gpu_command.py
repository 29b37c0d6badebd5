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
from simulator.profiling.graph_timer import GraphTimer
from simulator.profiling.journal import Journal
from simulator.profiling.session import Bench, measure_plan
from simulator.profiling.torch_kernels import TorchKernels, host_call

DONE = 0
PROVENANCE = "provenance.json"
SCHEMA = 1
DTYPES = ("bfloat16", "float16", "fp8")
TABLES = tuple(plan.KEYS)
# Only what is asked for is taken of it; no rate enters a table.
ANY_ACCELERATOR = AcceleratorSpec(name="here", memory_bytes=1, memory_bandwidth_bytes_per_s=1e12,
                                  scaleup_bytes_per_s=1e9, dense_flops_per_s=DenseFlops(bfloat16=1e12))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("model", metavar="MODEL", help="name in models/, or a file of that form")
    parser.add_argument("--tensor-parallel", type=int, default=1, metavar="N", help="whose rank is measured; default 1")
    parser.add_argument("--expert-parallel", type=int, default=1, metavar="N", help="default 1")
    parser.add_argument("--out", metavar="DIR", help="folder of the tables; default: profile-MODEL-tpN")
    parser.add_argument("--resume", action="store_true", help="go on with the profile in that folder")
    parser.add_argument("--dtypes", metavar="NAME,...", help=(
        f"weights of products, of {', '.join(DTYPES)}; default: as published"))
    parser.add_argument("--kv-cache-dtype", choices=KvCacheDtype.__args__, default="auto", help="default auto")
    parser.add_argument("--tables", metavar="NAME,...", help=f"of {', '.join(TABLES)}; default: all")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and repeats: a third of the points")
    parser.add_argument("--grid", action="store_true", help="also products, heads and widths of other models")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="default cuda")


def run(options: argparse.Namespace) -> int:
    """Measure, say what was not; return the exit status.

    Raises
    ------
    MissingExtra
        No PyTorch.
    InputErrors
        No such model, table or device; the folder holds another profile.
    """
    model, deployments = _deployments(options)
    tables = _chosen("--tables", options.tables, TABLES) or TABLES
    torch = _torch(options.device)
    asked = [registry.load("latency", "operators").asked(each) for each in deployments]
    sizes = plan.QUICK if options.quick else plan.FULL
    points = plan.make_plan(model, asked, tables, sizes, options.grid)
    folder = Path(options.out or f"profile-{model.name}-tp{options.tensor_parallel}")
    provenance = _opened(folder, options, model, machine.describe(torch, options.device))
    gauges = machine.Gauges() if options.device == "cuda" else machine.Gauges(read=lambda: None)
    session = {"began": _now(), "command": sys.orig_argv}
    provenance["sessions"].append(session)
    with Journal(folder) as journal:
        try:
            _write(folder, provenance)
            _measure(points, journal, _bench(torch, options, points), gauges)
        except KeyboardInterrupt:
            print(f"interrupted; --resume goes on: {folder}", file=sys.stderr)
            raise
        finally:
            session |= {"ended": _now(), "samples": gauges.samples, "throttled_samples": gauges.num_throttled}
            provenance |= {"not_measured": dict(Counter(journal.missed.values())), "left_out": points.left_out,
                           "kernel_sources": sorted({row["kernel_source"] for row in journal.rows.values()})}
            _write(folder, provenance)
        _report(folder, journal, points, gauges)
    return DONE


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


def _bench(torch, options, points: plan.Plan) -> Bench:
    effort = timing.QUICK if options.quick else timing.FULL
    settle = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    of_host = timing.HostTimer(effort, settle=settle)

    def host(operation: str, num_kernels: int):
        call = host_call(torch, options.device, operation, num_kernels)
        return call and of_host.measure(lambda: (call, 0))

    timer = GraphTimer(torch, effort) if options.device == "cuda" else of_host
    return Bench(torch, TorchKernels(torch, options.device, points), timer, host,
                 lambda: machine.free_bytes(torch, options.device))


def _measure(points: plan.Plan, journal: Journal, bench: Bench, gauges: machine.Gauges) -> None:
    from tqdm import tqdm  # no other command needs it this early

    with tqdm(total=len(points.points), unit=" points", file=sys.stderr, disable=None) as bar:
        def advance(point):
            bar.set_description(point.table, refresh=False)
            bar.update()
        measure_plan(points, journal, bench, gauges.sm_mhz, advance)


def _opened(folder: Path, options, model, here: dict) -> dict:
    """Return the provenance of a new profile, or of the one that goes on."""
    subject = {"model": msgspec.to_builtins(model), "tensor_parallel": options.tensor_parallel,
               "expert_parallel": options.expert_parallel, "dtypes": options.dtypes,
               "kv_cache_dtype": options.kv_cache_dtype, "tables": options.tables, "quick": options.quick,
               "grid": options.grid}
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


def _report(folder: Path, journal: Journal, points: plan.Plan, gauges: machine.Gauges) -> None:
    print(f"{len(journal.rows)} points in {folder}")
    for reason, count in Counter(journal.missed.values()).items():
        first = next(point for point, why in journal.missed.items() if why == reason)
        print(f"not measured: {count} points, {first} the first: {reason}")
    for what, why in points.left_out.items():
        print(f"left out: {what}: {why}")
    if gauges.num_throttled:
        print(f"warning: clocks were below {machine.THROTTLED:.0%} of the highest in {gauges.num_throttled} of "
              f"{len(gauges.samples)} samples")
    print(f'\n[latency]\nbackend = "operators"\npath = {json.dumps(str(folder))}')


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
