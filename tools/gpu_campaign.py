"""Measurements on one GPU, in at most eight minutes, of data that no published table has; one JSON file.

    python tools/gpu_campaign.py                       # hardware/measured/<card>.json
    python tools/gpu_campaign.py --device cpu --tiny --out try.json       # each part once, on the processor

Parts: `rates` of the card; `single_calls` and `launches` of the host; `attention` of new tokens behind cached ones;
`unequal_decodes`; `beside_a_chunk`; `copies` by size; `profiles`, the operator tables of a small dense model and a
small mixture. Needs PyTorch, and Triton for its own attention kernel. A part that fails, or runs out of time, keeps its
rows and the reason; the file is written after each part. No clock or other setting of the card is changed.
"""
import argparse
import os
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]         # neither the package nor the parts need be installed

from campaign import attention, launches, profiles, transfers  # noqa: E402
from campaign.record import Record  # noqa: E402

from simulator.profiling import machine, timing  # noqa: E402
from simulator.profiling.graph_timer import GraphTimer  # noqa: E402

BUDGET_S = 480.0
MEASURED = ROOT / "hardware" / "measured"
PACKAGES = ("torch", "triton", "numpy")
EFFORT = timing.Effort(repeats=9, min_repeats=3, point_s=0.15)
TINY_EFFORT = timing.Effort(repeats=3, min_repeats=3, point_s=0.01, max_calls=2)
TINY_BYTES, TINY_PRODUCT = 1 << 16, 64


def main(words: list[str] | None = None) -> int:
    """Run the parts; return the exit status: 0, or 1 if no part measured anything."""
    options = _options(words)
    if options.device == "cpu":
        os.environ.setdefault("TRITON_INTERPRET", "1")      # before Triton is imported
    import torch

    device = options.device
    facts = _machine(torch, device)
    file = Path(options.out) if options.out else MEASURED / f"{slug(facts['name'])}.json"
    record = Record(file, facts, options.budget_s)
    for name, seconds, run in _parts(torch, device, options.tiny, file):
        if name in options.parts:
            with record.part(name, seconds) as part:
                run(part)
            entry = record.content["parts"][name]
            print(f"{name:16} {len(entry['rows']):4} rows {len(entry['left_out']):4} left out {entry['took_s']:7.1f} s"
                  f"  {entry.get('why', '')}"[:80], flush=True)
    record.content["machine"]["after"] = machine.nvidia_smi() if device == "cuda" else None
    record.write()
    print(f"written: {file}")
    return 0 if any(each["rows"] for each in record.content["parts"].values()) else 1


def slug(name: str) -> str:
    """Return a card's name as the name of a file."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _options(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu_campaign.py", description=__doc__.splitlines()[0])
    parser.add_argument("--out", metavar="FILE", help="default: hardware/measured/<card>.json")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="default cuda")
    parser.add_argument("--budget-s", type=float, default=BUDGET_S, metavar="S", help=f"default {BUDGET_S:g}")
    parser.add_argument("--parts", type=lambda text: tuple(text.split(",")), default=tuple(SHARES), metavar="NAME,...",
                        help=f"of {', '.join(SHARES)}; default: all")
    parser.add_argument("--tiny", action="store_true", help="a few small points of each part: to try the script")
    options = parser.parse_args(words)
    if unknown := [name for name in options.parts if name not in SHARES]:
        parser.error(f"--parts: expected of {', '.join(SHARES)}, found {', '.join(unknown)}")
    return options


# The seconds of each part, in running order: short parts with data that no table has come first.
SHARES = {"rates": 15.0, "single_calls": 10.0, "launches": 60.0, "attention": 120.0, "unequal_decodes": 45.0,
          "beside_a_chunk": 45.0, "copies": 30.0, "profiles": 220.0}


def _parts(torch, device: str, is_tiny: bool, file: Path) -> list[tuple[str, float, Callable]]:
    effort = TINY_EFFORT if is_tiny else EFFORT
    settle = torch.cuda.synchronize if device == "cuda" else lambda: None
    of_host = timing.HostTimer(effort, settle=settle)
    timer = GraphTimer(torch, effort) if device == "cuda" else of_host
    sizes, kernels = attention.TINY if is_tiny else attention.Sizes(), attention.Kernels(torch, device)

    def on_device(make) -> dict:
        return timer.measure(make)._asdict()

    def on_host(make) -> dict:
        return of_host.measure(make)._asdict()

    shapes, tokens = (launches.TINY, (1, 4)) if is_tiny else (launches.SHAPES, launches.TOKENS)
    runs = {
        "rates": lambda part: transfers.rates(part, torch, device, on_device,
                                              *(TINY_PRODUCT, TINY_BYTES) if is_tiny else ()),
        "single_calls": lambda part: launches.single_calls(part, torch, device, on_host),
        "launches": lambda part: launches.launches(part, torch, device, shapes, tokens, 2 if is_tiny else
                                                   launches.LAYERS),
        "attention": lambda part: attention.behind_cached(part, kernels, on_device, sizes),
        "unequal_decodes": lambda part: attention.unequal_decodes(part, kernels, on_device, sizes),
        "beside_a_chunk": lambda part: attention.beside_a_chunk(part, kernels, on_device, sizes),
        "copies": lambda part: transfers.copies(part, torch, device, on_host,
                                                (4096, TINY_BYTES) if is_tiny else transfers.COPY_BYTES),
        "profiles": lambda part: profiles.profiles(
            part, ROOT, file.with_name(file.stem + "-profiles"), device, *(_tiny_models(file),) if is_tiny else ())}
    return [(name, seconds, runs[name]) for name, seconds in SHARES.items()]


def _tiny_models(file: Path) -> tuple[str, ...]:
    """Return model files of a few hundred thousand weights."""
    text = ('num_layers = 1\nhidden_size = 64\nvocab_size = 512\nmax_position_embeddings = 64\ndtype = "bfloat16"\n'
            '[attention]\nkind = "multi_head"\nnum_heads = 4\nnum_kv_heads = 2\nhead_dim = 16\n{}'
            '[published]\nparameters = 1\nkind = "rounded"\nincludes = ["vision"]\n')
    dense = "[mlp]\nintermediate_size = 128\n"
    experts = "[moe]\nnum_experts = 4\nexperts_per_token = 2\nintermediate_size = 32\n"
    found = []
    for name, layer in (("tiny-dense", dense), ("tiny-mixture", experts)):
        path = file.with_name(f"{name}.toml")
        path.write_text(text.format(layer), encoding="utf-8")
        found.append(str(path.resolve()))
    return tuple(found)


def _machine(torch, device: str) -> dict:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return machine.describe(torch, device) | {
        "versions": versions, "python": sys.version.split()[0],
        "before": machine.nvidia_smi() if device == "cuda" else None,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds")}


if __name__ == "__main__":
    sys.exit(main())
