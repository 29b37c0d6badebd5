"""Fits of hardware/efficiency/roofline.toml to tables of single operators; a check with one system left out.

    python tools/derive_efficiency.py [--path FOLDER] [--write | --leave-one-out]

FOLDER is `systems` of aiconfigurator-core (default: the installed package). Only its tables of operators are opened:
gemm, context_attention, generation_attention, moe and custom_allreduce of vLLM. Times shorter than reading the operands
from memory are raised to that time: repeated measurements find small data in a cache. Tables with kernels launched by
the host instead of replayed from a CUDA graph are left out. README.md beside this file shows the output.
"""
import argparse
import hashlib

import msgspec
import numpy as np
import tomli_w
from scipy.optimize import least_squares

from simulator.domain.efficiency import efficiency_of, matmul_efficiency
from simulator.domain.facts import folder, load_accelerator
from simulator.latency.operators.files import find_tables, read_columns, version_of
from simulator.latency.operators.rows import GEMM_BITS
from simulator.latency.roofline.laws import (
    ANY,
    FILE,
    DecodeLaw,
    ExpertLaw,
    PaddedLaw,
    PrefillLaw,
    ProductLaw,
    moved_between,
)

# System -> (accelerator, generation). Intel's B60 is left out: its kernels were launched by the host.
SYSTEMS = {
    "a100_sxm": ("a100-sxm-80gb", "ampere"), "h100_sxm": ("h100-sxm-80gb", "hopper"),
    "h200_sxm": ("h200-sxm-141gb", "hopper"), "l40s": ("l40s", "ada"), "b200_sxm": ("b200-sxm-180gb", "blackwell"),
    "b300_sxm": ("b300-sxm-288gb", "blackwell"), "gb200": ("gb200", "blackwell"), "gb300": ("gb300", "blackwell"),
    "rtx_pro_6000_server": ("rtx-pro-6000-server", "blackwell_rtx")}
STANDS_FOR = {"ampere": ["Ampere"], "hopper": ["Hopper"], "ada": ["Ada"], "blackwell": ["Blackwell", "Blackwell Ultra"]}
ACCELERATORS = {"blackwell_rtx": ["rtx-pro-6000-server", "rtx-5090"]}
# Operators and their distinguished formats: name in the tables -> (ours, format of the computation).
PRODUCTS = {"bfloat16": ("bfloat16", "bfloat16"), "fp8": ("fp8", "fp8"), "nvfp4": ("fp4", "fp4")}
EXPERTS = {"bfloat16": ("bfloat16", "bfloat16"), "fp8": ("fp8", "fp8"), "nvfp4": ("fp4", "fp4"),
           "w4a16_mxfp4": ("weight_only", "bfloat16")}
# vLLM 0.24's grouped fp8 product with one scale a tensor takes 2.1 ms on Hopper where 0.19's takes 0.3 (16 tokens): the
# product with a scale a block is used instead.
UNSOUND = {("fp8", "hopper"): "fp8_block"}
ROWS = 3000                     # of each table and format that laws are fitted to, spread evenly
HOST_FLOOR_NS = 15_000.0        # a product with longer times alone was launched by the host
SHARE = (1e-6, 1.0)


class Table:
    """The rows of one operator, format and system, and their law.

    Parameters
    ----------
    arguments : of the law's `ns`.
    least_ns : time to read the operands at full bandwidth.
    before_ns : the roofline's time without laws, by one share of peak.
    """

    def __init__(self, system, law, ns, arguments, least_ns, before_ns):
        self.system, self.law = system, law
        self.ns = np.maximum(ns, least_ns)
        self.arguments, self.before_ns = arguments, before_ns

    @property
    def rates(self) -> tuple[float, float]:
        """Return peak FLOPs and bytes per ns."""
        return self.arguments[:2]

    def some(self, count: int) -> "Table":
        """Return at most `count` rows, evenly spread."""
        chosen = np.unique(np.linspace(0, len(self.ns) - 1, min(count, len(self.ns))).astype(int))
        picked = [each[chosen] if np.ndim(each) else each for each in self.arguments]
        return Table(self.system, self.law, self.ns[chosen], picked, 0.0, self.before_ns[chosen])


class Sources:
    """The tables of a database, and the files that were read."""

    def __init__(self, path: str | None):
        self._path = path
        self.used: dict[str, str] = {}

    def tables(self) -> dict[tuple[str, str], dict[str, Table]]:
        """Return (operator, format) -> system -> rows."""
        found: dict[tuple[str, str], dict[str, Table]] = {}
        for system in SYSTEMS:
            for key, table in self._of(system):
                found.setdefault(key, {})[system] = table
        return found

    def columns(self, system: str, name: str) -> dict[str, np.ndarray]:
        """Return the newest version of a table."""
        path = find_tables(self._path, system, "", "vllm")[name][0]
        self.used[f"{system}/{path.name} vLLM {version_of(path)}"] = hashlib.sha256(path.read_bytes()).hexdigest()
        return read_columns(path)

    def _of(self, system):
        for reader, formats in ((_products, PRODUCTS), (_experts, EXPERTS)):
            columns = self.columns(system, "gemm" if reader is _products else "moe")
            for name, (ours, computed) in formats.items():
                table = reader(system, columns, name, computed)
                if table is not None:
                    yield ("products" if reader is _products else "experts", ours), table
        for name, reader in (("context_attention", _prefill), ("generation_attention", _decode)):
            columns = self.columns(system, name)
            for kv in ("bfloat16", "fp8"):
                table = reader(system, columns, kv)
                if table is not None:
                    yield (name.replace("context_attention", "prefill").replace("generation_attention", "decode"),
                           kv), table


class Machine:
    """Peak rates of a system, and the shares of peak that the roofline uses without laws."""

    def __init__(self, system: str):
        self.accelerator = load_accelerator(SYSTEMS[system][0])
        self.generation = SYSTEMS[system][1]
        self.bandwidth = self.accelerator.memory_bandwidth_bytes_per_s * 1e-9
        self.shares = efficiency_of(self.accelerator)

    def peak(self, dtype: str) -> float:
        """Return FLOPs per ns."""
        return self.accelerator.flops_per_s(dtype) * 1e-9

    def before(self, dtype, flops, moved, floor_us):
        """Return the time by one share of peak."""
        share = self.shares.attention_frac if dtype is None else matmul_efficiency(self.shares, dtype)
        return np.maximum(flops / (self.peak(dtype or "bfloat16") * share),
                          moved / (self.bandwidth * self.shares.bandwidth_frac)) + floor_us * 1e3


def _picked(columns, names, kept):
    return [columns[name][kept].astype(float) for name in names] + [columns["latency_ms"][kept] * 1e6]


def _format(columns, name, default="bfloat16"):
    return columns[name] if name in columns else np.full(len(columns["latency_ms"]), default)


def _products(system, columns, name, computed):
    m, n, k, ns = _picked(columns, "mnk", _format(columns, "gemm_dtype") == name)
    if not len(ns) or ns.min() > HOST_FLOOR_NS:
        return None
    machine, weight = Machine(system), GEMM_BITS[name] / 8
    moved = n * k * weight
    return Table(system, ProductLaw, ns, (machine.peak(computed), machine.bandwidth, m, n, k, weight),
                 moved / machine.bandwidth, machine.before(computed, 2 * m * n * k, moved, 3.0))


def _experts(system, columns, name, computed):
    machine, weight = Machine(system), GEMM_BITS[name] / 8
    name = UNSOUND.get((name, machine.generation), name)
    kept = (_format(columns, "moe_dtype") == name) & (_format(columns, "distribution", "balanced") == "balanced")
    tokens, hidden, inter, topk, experts, tensor, expert, ns = _picked(columns, (
        "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size"), kept)
    if not len(ns):
        return None
    rows = tokens * topk / expert
    needed = np.clip(rows, 1.0, experts / expert)           # balanced: no two rows meet while an expert is free
    weights = 3 * hidden * inter / tensor
    moved = needed * weights * weight
    peak = machine.peak(computed)
    return Table(system, ExpertLaw, ns, (peak, machine.bandwidth, rows, needed, weights, weight, moved_between(
        tokens, rows, hidden, 3 * inter / tensor)), moved / machine.bandwidth,
        machine.before(computed, 2 * rows * weights, moved, 8 * 3.0))


def _attention_rows(columns, kv, length):
    kept = _format(columns, "kv_cache_dtype") == kv
    for name in ("window_size", *(() if length == "step" else ("step",))):
        kept &= _format(columns, name, 0) == 0
    return _picked(columns, ("batch_size", length, "num_heads", "num_key_value_heads", "head_dim"), kept)


def _prefill(system, columns, kv):
    batch, length, heads, kv_heads, width, ns = _attention_rows(columns, kv, "isl")
    if not len(ns):
        return None
    machine, flops = Machine(system), 4 * heads * width
    pairs, seen = batch * length * (length + 1) / 2, batch * length / 2
    moved = batch * length * width * (4 * heads + 2 * kv_heads * (1 if kv == "fp8" else 2))
    return Table(system, PrefillLaw, ns, (machine.peak("bfloat16"), machine.bandwidth, pairs, seen, flops, moved),
                 0.0, machine.before(None, pairs * flops, moved, machine.shares.attention_us))


def _decode(system, columns, kv):
    batch, step, heads, kv_heads, width, ns = _attention_rows(columns, kv, "step")
    if not len(ns):
        return None
    machine, tokens = Machine(system), batch * (step + 1)
    flops, moved = 4 * tokens * heads * width, 2 * tokens * kv_heads * width * (1 if kv == "fp8" else 2)
    return Table(system, DecodeLaw, ns, (machine.peak("bfloat16"), machine.bandwidth, batch * kv_heads, flops, moved),
                 moved / machine.bandwidth, machine.before(None, flops, moved, machine.shares.attention_us))


# ---- fitting

START = {
    ProductLaw: {"compute_frac": 0.7, "memory_frac": 0.85, "floor_us": 3.0, "pad_rows": 30.0, "pad_columns": 30.0,
                 "pad_depth": 50.0},
    ExpertLaw: {"compute_frac": 0.5, "memory_frac": 0.85, "floor_us": 25.0, "pad_rows": 30.0,
                "activation_passes": 2.0},
    PrefillLaw: {"compute_frac": 0.6, "memory_frac": 0.6, "floor_us": 10.0, "tile_tokens": 300.0},
    DecodeLaw: {"compute_frac": 0.2, "memory_frac": 0.85, "floor_us": 10.0, "head_ns": 15.0}}


def fit(tables: list[Table]):
    """Return the law with the least error in the logarithm of time, outliers damped; all tables have equal weight."""
    kind = tables[0].law
    names = list(START[kind])
    known = {}
    if issubclass(kind, PaddedLaw):     # an integer, so that rounding leaves none of the tables below it
        known["least_flops_per_byte"] = float(int(min(peak / bandwidth for peak, bandwidth in (
            each.rates for each in tables))))
    rows = [each.some(ROWS) for each in tables]
    measured = np.log(np.concatenate([each.ns for each in rows]))
    weight = np.concatenate([np.full(len(each.ns), (ROWS / len(each.ns)) ** 0.5) for each in rows])

    def law(logs):
        return kind(**dict(zip(names, np.exp(logs).tolist(), strict=True)), **known)

    def residuals(logs):
        predicted = np.concatenate([law(logs).ns(*each.arguments) for each in rows])
        return (np.log(predicted) - measured) * weight

    lowest = [np.log(SHARE[0])] * len(names)
    most = [np.log(SHARE[1] if name.endswith("_frac") else 1e5) for name in names]
    start = np.log(list(START[kind].values()))
    return law(least_squares(residuals, start, bounds=(lowest, most), loss="soft_l1", f_scale=0.1).x)


def generation_laws(tables, systems) -> dict:
    """Return {operator: {format: law}} from the tables of some systems."""
    found: dict[str, dict] = {"products": {}, "experts": {}, "prefill": {}, "decode": {}}
    for (operator, name), by_system in tables.items():
        chosen = [by_system[system] for system in systems if system in by_system]
        if chosen:
            found[operator][name] = fit(chosen)
    return found


# ---- all-reduces

def reduces(sources: Sources, system: str) -> dict[int, tuple[np.ndarray, np.ndarray, float]]:
    """Return by number of ranks: bytes that a rank sends, ns, bytes per ns of the link."""
    columns = sources.columns(system, "custom_allreduce")
    accelerator = load_accelerator(SYSTEMS[system][0])
    link = (accelerator.scaleup_bytes_per_s or accelerator.pcie_bytes_per_s) * 1e-9
    in_graph = np.char.endswith(_format(columns, "backend", "_graph"), "_graph")
    found = {}
    for ranks in (2, 4, 8):
        kept = in_graph & (columns["num_gpus"] == ranks)
        if kept.any():
            sent = columns["message_size"][kept] * 2.0 * 2 * (1 - 1 / ranks)
            found[ranks] = (sent, columns["latency_ms"][kept] * 1e6, link)
    return found


def fit_reduce(parts) -> tuple[float, float]:
    """Return (floor in us, share of the link) of some systems with equal numbers of ranks."""
    def residuals(logs):
        return np.concatenate([np.log((sent / (link * np.exp(logs[1])) + np.exp(logs[0]) * 1e3) / ns)
                               for sent, ns, link in parts])
    found = least_squares(residuals, np.log([5.0, 0.5]), bounds=(np.log([0.1, 1e-3]), np.log([1e3, 1.0])),
                          loss="soft_l1", f_scale=0.2)
    return tuple(np.exp(found.x).tolist())


def reduce_laws(measured, systems) -> dict[str, dict]:
    """Return {link: numbers by ranks} from the all-reduces of some systems."""
    found = {}
    for link in ("scaleup", "pcie"):
        alike = [measured[system] for system in systems
                 if bool(load_accelerator(SYSTEMS[system][0]).scaleup_bytes_per_s) == (link == "scaleup")]
        by_ranks = [fit_reduce(parts) for ranks in (2, 4, 8)
                    if (parts := [each[ranks] for each in alike if ranks in each])]
        if by_ranks:
            found[link] = {"floor_us": [_rounded(each[0]) for each in by_ranks],
                           "link_frac": [_rounded(each[1]) for each in by_ranks]}
    return found


# ---- the file, the check

def _rounded(value: float) -> float:
    return 0.0 if value < 1e-3 else float(f"{value:.3g}")


def as_table(laws) -> dict:
    """Return the laws of a generation in the form of the file."""
    return {operator: {name: {key: value if key == "least_flops_per_byte" else _rounded(value)
                              for key, value in msgspec.structs.asdict(law).items()}
                       for name, law in by_format.items()} for operator, by_format in laws.items()}


def write(sources: Sources) -> None:
    """Write the laws of each generation, and of all."""
    tables, measured = sources.tables(), {system: reduces(sources, system) for system in SYSTEMS}
    found = {}
    for generation in [*dict.fromkeys(each for _, each in SYSTEMS.values()), ANY]:
        systems = [system for system, (_, each) in SYSTEMS.items() if generation in (each, ANY)]
        found[generation] = {
            "stands_for": STANDS_FOR.get(generation, []), "accelerators": ACCELERATORS.get(generation, []),
            **as_table(generation_laws(tables, systems)), "all_reduce": reduce_laws(measured, systems)}
        print(generation, flush=True)
    path = folder("hardware") / FILE
    path.parent.mkdir(exist_ok=True)
    text = tomli_w.dumps({
        "source": "aiconfigurator-core, tables of single operators of vLLM; derived by tools/derive_efficiency.py",
        "tables": sources.used, "generations": found})
    path.write_text("# Written by tools/derive_efficiency.py; simulator/latency/roofline/laws.py says what each number "
                    "means.\n" + text, encoding="utf-8")


def leave_one_out(sources: Sources) -> None:
    """Print the error of laws from all other systems on the one left out, and of one share of peak."""
    tables = sources.tables()
    print("| operator | system | rows | one share | laws of others | laws in use |\n|---|---|---|---|---|---|")
    for (operator, name), by_system in tables.items():
        for system, table in by_system.items():
            generation = SYSTEMS[system][1]
            alike = [each for each in by_system if SYSTEMS[each][1] == generation]
            others = [each for each in alike if each != system] or [each for each in by_system if each != system]
            if not others:
                continue
            left_out = fit([by_system[each] for each in others]).ns(*table.arguments)
            in_use = fit([by_system[each] for each in alike]).ns(*table.arguments)
            errors = [f"{100 * np.abs(ns / table.ns - 1).mean():.1f}%" for ns in (table.before_ns, left_out, in_use)]
            print(f"| {operator} {name} | {system} | {len(table.ns)} | " + " | ".join(errors) + " |", flush=True)
    _leave_reduces_out({system: reduces(sources, system) for system in SYSTEMS})


def _leave_reduces_out(measured) -> None:
    is_scaleup = {system: bool(load_accelerator(SYSTEMS[system][0]).scaleup_bytes_per_s) for system in SYSTEMS}
    for system, by_ranks in measured.items():
        errors, count = [], 0
        for ranks, (sent, ns, link) in by_ranks.items():
            same = [each for each in measured if each != system and is_scaleup[each] == is_scaleup[system]]
            near = [each for each in same if SYSTEMS[each][1] == SYSTEMS[system][1]] or same
            own = [each for each in measured if SYSTEMS[each][1] == SYSTEMS[system][1]]
            found = [(5.0, 0.6)] + [fit_reduce([measured[each][ranks] for each in group if ranks in measured[each]])
                                    for group in (near, own)]
            errors.append([np.abs((sent / (link * share) + floor * 1e3) / ns - 1) for floor, share in found])
            count += len(ns)
        means = [100 * np.concatenate(each).mean() for each in zip(*errors)]
        print(f"| all_reduce | {system} | {count} | " + " | ".join(f"{each:.1f}%" for each in means) + " |")


def main():
    """Read the arguments; write the file or print the check."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--path", help="folder `systems`; default: the installed aiconfigurator-core")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help=f"write hardware/{FILE}")
    what.add_argument("--leave-one-out", action="store_true", help="print the check")
    chosen = parser.parse_args()
    (write if chosen.write else leave_one_out)(Sources(chosen.path))


if __name__ == "__main__":
    main()
