"""Fits of hardware/efficiency/kinds.toml to tables of single operators, each accelerator left out in turn.

    python tools/derive_kinds.py [--path FOLDER]

FOLDER is `systems` of aiconfigurator-core (default: the installed package). Only tables of operators are opened: whole
blocks of latent, compressed and block-sparse attention (the time beyond their products), kernels of recurrences, and
attention of encoders. A time is compared with what `roofline` prices for it: passes over the context, and kernels that
only move memory. Writes the file, and prints the errors that README.md beside this file shows.
"""
import argparse
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import tomli_w
from derive_efficiency import SYSTEMS
from scipy.optimize import least_squares

from simulator.domain.efficiency import KERNEL_LATENCY_US, efficiency_of
from simulator.domain.facts import folder, load_accelerator
from simulator.domain.layers.gated_delta_net import GatedDeltaNet
from simulator.domain.layers.kda import KimiDeltaAttention
from simulator.latency.operators.blocks import CONTEXT, GENERATION, PLAIN, products_ns
from simulator.latency.operators.database import Database
from simulator.latency.operators.encoder_attention import encoder_curves
from simulator.latency.operators.latent_attention import BLOCKS, LatentTables
from simulator.latency.operators.model import Operators
from simulator.latency.operators.recurrences import KERNELS
from simulator.latency.operators.sparse_attention import KNOWN, SparseTables
from simulator.latency.roofline.curves import BETWEEN_FRAC
from simulator.latency.roofline.kind_laws import BY_SHARE, ELSEWHERE, FILE, IN_USE, LEFT_OUT, TOWER, kind_of
from simulator.latency.roofline.laws import ANY

ROWS = 1500                     # of each system, kind and phase, spread evenly
PHASES = {CONTEXT: "prefill", GENERATION: "decode"}
FLOAT32 = 4
# A rest that is a smaller part of its block is the difference of nearly equal times, and left out.
LEAST_SHARE = 0.25
# Where even the shortest time of a table is longer than this, the host launched its kernels: rows of less than four
# times the shortest are left out, and the floor stays below the limit.
HOST_NS, MOST_FLOOR_NS = 60e3, 60e3
# Laws that are not used: a prompt of one token behind a long prefix, which engines serve as a decode, would take up to
# hundreds of times the law of decodes, since the floors of prompts hold launches of the host.
NOT_USED = {"latent": ("prefill", "decode"), "sparse_latent": ("prefill", "decode"), "msa": ("prefill", "decode"),
            "kda": ("prefill", "decode"), "gated_delta_net": ("prefill",)}
# Numbers of a phase: least, most, first guess. passes: over queries and outputs of attention.
NUMBERS = {"compute_frac": (1e-3, 1.0, 0.3), "memory_frac": (1e-2, 1.0, 0.6),
           "floor_us": (1e-3, MOST_FLOOR_NS * 1e-3, 10.0), "passes": (1e-2, 40.0, 2.0)}


class Rows(NamedTuple):
    """Measured times of a kind on one system: FLOPs and bytes of each pass, (passes, rows); others by row.

    queries_ns : of one pass over queries and outputs at full bandwidth.
    """

    flops: np.ndarray
    moved: np.ndarray
    queries_ns: np.ndarray
    known_ns: np.ndarray
    ns: np.ndarray
    machine: "Machine"
    phase: str

    def predicted(self, law: dict) -> np.ndarray:
        """Return the times by the numbers of a phase."""
        return self._at(**law)

    def by_share(self) -> np.ndarray:
        """Return the times by the shares of peak of plain attention."""
        shares = self.machine.shares
        return self._at(shares.attention_frac, shares.bandwidth_frac, shares.attention_us, 0.0)

    def _at(self, compute_frac: float, memory_frac: float, floor_us: float, passes: float) -> np.ndarray:
        of_passes = np.maximum(self.flops / (self.machine.peak * compute_frac),
                               self.moved / (self.machine.bandwidth * memory_frac))
        return of_passes.sum(axis=0) + passes * self.queries_ns + self.known_ns + floor_us * 1e3

    def some(self) -> "Rows":
        """Return at most ROWS rows that were not launched by the host."""
        least = self.ns.min()
        kept = np.flatnonzero(self.ns >= (4 * least if least > HOST_NS else 0.0))
        chosen = kept[np.unique(np.linspace(0, len(kept) - 1, min(ROWS, len(kept))).astype(int))]
        return self._replace(flops=self.flops[:, chosen], moved=self.moved[:, chosen],
                             queries_ns=self.queries_ns[chosen], known_ns=self.known_ns[chosen], ns=self.ns[chosen])


class Machine:
    """Peak rates of a system per ns, its shares of peak, and its tables."""

    def __init__(self, system: str, path: str | None):
        accelerator = load_accelerator(SYSTEMS[system][0])
        self.peak = accelerator.flops_per_s("bfloat16") * 1e-9
        self.bandwidth = accelerator.memory_bandwidth_bytes_per_s * 1e-9
        self.shares = efficiency_of(accelerator)
        self.database = Database(Operators.Parameters(system=system, path=path), accelerator)

    def between_ns(self, part, hidden: int, rows: np.ndarray) -> np.ndarray:
        """Return the time of a mixer's kernels that only move memory, as the roofline prices it."""
        moved = part.moved_elements(hidden) * 2 * rows
        return moved / (self.bandwidth * BETWEEN_FRAC) + part.between_kernels * KERNEL_LATENCY_US * 1e3


def attention(machine: Machine) -> Iterator[tuple[str, Rows]]:
    """Yield kind and rows of whole blocks."""
    kinds = [(block, SparseTables) for _, block in KNOWN]
    kinds += [(block, partial(LatentTables, is_graph=True)) for block in BLOCKS]
    for block, tables_of in kinds:
        part = block.of_heads(1)
        kv = "fp8" if part.price_key == "csa_hca" else "bfloat16"
        for phase in PHASES:
            found = [_block_rows(machine, block, phase, batch, int(heads[0]), curve, 1 if kv == "fp8" else 2)
                     for batch, curves in tables_of(machine.database, part, kv).curves(phase).items()
                     for heads, curve in curves.items() if heads[0] >= 8]
            if found and sum(len(each[-1]) for each in found):
                yield kind_of(part), _joined(found, machine, phase)


def _block_rows(machine, block, phase, batch, heads, curve, element_bytes) -> tuple:
    part, lengths = block.of_heads(heads), curve.sizes
    rows = batch * (lengths if phase == CONTEXT else np.ones(len(lengths)))
    flops, moved = [], []
    for each in part.passes(element_bytes):
        seen = np.minimum(lengths, each.window) if each.window else lengths
        if phase == CONTEXT:
            flops.append(batch * (seen * (seen + 1) / 2 + (lengths - seen) * seen) * each.pair_flops)
            moved.append(batch * lengths * each.kv_bytes)
        else:
            flops.append(batch * seen * each.decode_flops)
            moved.append(batch * seen * each.kv_bytes)
    database = machine.database
    small_ns = sum(database.small_ns(2 * each.elements, rows, each.kernels) for each in part.small_operators)
    products = products_ns(database, block, heads, "fp8_block" if part.price_key == "csa_hca" else PLAIN, rows)
    kept = curve.ns >= LEAST_SHARE * (curve.ns + products)
    queries = part.num_heads * (part.head_dim + part.value_dim) * 2 * rows / machine.bandwidth
    found = (np.array(flops), np.array(moved), queries, machine.between_ns(part, block.hidden, rows),
             curve.ns + small_ns)
    return tuple(each[..., kept] for each in found)


def recurrences(machine: Machine) -> Iterator[tuple[str, Rows]]:
    """Yield kind and rows of the kernels of recurrences, convolutions excluded."""
    parts = {"gated_delta_net": [GatedDeltaNet(num_key_heads=keys, num_value_heads=values, key_head_dim=128,
                                               value_head_dim=128, conv_kernel=4)
                                 for keys, values in ((2, 8), (4, 16), (8, 32), (16, 32), (16, 64))],
             "kda": [KimiDeltaAttention(num_heads=heads, head_dim=128, conv_kernel=4) for heads in (12, 24, 48, 96)]}
    for kind, each in parts.items():
        for phase in PHASES:
            found = []
            for part in each:
                for batch in (1, 4, 16, 64, 256) if phase == CONTEXT else (1,):
                    lookups = KERNELS[kind].lookups(machine.database, phase, batch, part)
                    curve = lookups[-1].curves.get(lookups[-1].site) if lookups else None
                    if curve is not None:
                        found.append(_state_rows(machine, part, phase, batch, curve))
            if found:
                yield kind, _joined(found, machine, phase)


def _state_rows(machine, part, phase, batch, curve) -> tuple:
    none = np.zeros(len(curve.sizes))
    tokens, sequences = (batch * curve.sizes, none + batch) if phase == CONTEXT else (none, curve.sizes)
    state = 2 * FLOAT32 * part.recurrence_elements * sequences
    return (np.array([tokens * part.state_flops_per_token, none]), np.array([none, state]), none,
            none + KERNEL_LATENCY_US * 1e3, np.maximum(curve.ns, state / machine.bandwidth))


def towers(machine: Machine) -> Iterator[tuple[str, Rows]]:
    """Yield the rows of bidirectional attention, of 256 tokens and more."""
    found = []
    for batch, curves in encoder_curves(machine.database).items():
        for (heads, width), curve in curves.items():
            kept = curve.sizes >= 256
            if kept.any() and heads >= 8:
                size = batch * heads * width * curve.sizes[kept]
                found.append((np.array([4 * size * curve.sizes[kept]]), np.array([8 * size]), np.zeros(len(size)),
                              np.zeros(len(size)), curve.ns[kept]))
    if found:
        yield TOWER, _joined(found, machine, CONTEXT)


def _joined(found: list[tuple], machine, phase: str) -> Rows:
    return Rows(*(np.concatenate(each, axis=-1) for each in zip(*found, strict=True)), machine, PHASES[phase]).some()


def fit(tables: list[Rows]) -> dict[str, dict]:
    """Return the numbers of a kind by phase; bandwidth is that of decodes, if there are any."""
    found = {}
    for name in ("decode", "prefill"):
        if rows := [each for each in tables if each.phase == name]:
            found[name] = _fit(rows, found["decode"]["memory_frac"] if found else None)
    return found


def _fit(tables: list[Rows], memory_frac: float | None) -> dict:
    """Return the numbers with the least error in the logarithm of time; all tables have equal weight."""
    bounds = NUMBERS | ({"memory_frac": (memory_frac * 0.999, memory_frac * 1.001, memory_frac)} if memory_frac else {})

    def law(logs):
        return dict(zip(bounds, np.exp(logs).tolist(), strict=True))

    def residuals(logs):
        return np.concatenate([np.log(rows.predicted(law(logs)) / rows.ns) * (ROWS / len(rows.ns)) ** 0.5
                               for rows in tables])

    least, most, start = (np.log(each) for each in zip(*bounds.values(), strict=True))
    found = [least_squares(residuals, np.clip(start + shift, least, most), bounds=(least, most), loss="soft_l1",
                           f_scale=0.2) for shift in (0.0, -1.5)]
    best = {name: _rounded(value) for name, value in law(min(found, key=lambda each: each.cost).x).items()}
    return best | ({"memory_frac": memory_frac} if memory_frac else {})


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def write(path: str | None) -> None:
    """Read all systems; write the file, and print the errors."""
    tables: dict[str, dict[str, list[Rows]]] = {}           # kind -> system -> tables
    used = {}
    for system in SYSTEMS:
        machine = Machine(system, path)
        for read in (attention, recurrences, towers):
            for kind, rows in read(machine):
                tables.setdefault(kind, {}).setdefault(system, []).append(rows)
        used |= {f"{system}/{name} {each['framework']} {each['version']}": each["sha256"]
                 for name, each in machine.database.used.items() if "framework" in each}
        machine.database = None
    generations: dict[str, dict] = {}
    errors: dict[str, dict] = {}
    for kind, by_system in tables.items():
        sizes = _errors(kind, by_system)
        for generation in [*dict.fromkeys(SYSTEMS[system][1] for system in by_system), ANY]:
            chosen = [system for system in by_system if generation in (SYSTEMS[system][1], ANY)]
            by = ELSEWHERE if generation == ANY else LEFT_OUT if len(chosen) > 1 else IN_USE
            law = fit([rows for system in chosen for rows in by_system[system]])
            law = {name: numbers for name, numbers in law.items()
                   if name not in NOT_USED.get(kind, ())
                   and _mean(sizes[name], chosen, by) < _mean(sizes[name], chosen, BY_SHARE)}
            if law:
                generations.setdefault(generation, {})[kind] = law
        errors[kind] = {name: [_rounded(_mean(each, list(each), by)) for by in range(4)]
                        for name, each in sizes.items() if each}
    text = tomli_w.dumps({"source": "aiconfigurator-core, tables of single operators; derived by tools/derive_kinds.py",
                          "tables": dict(sorted(used.items())), "errors": errors, "generations": generations})
    (folder("hardware") / FILE).write_text(
        "# Written by tools/derive_kinds.py; simulator/latency/roofline/kind_laws.py says what each number means.\n"
        + text, encoding="utf-8")





def _mean(sizes: dict, systems: list[str], by: int) -> float:
    return float(np.mean([sizes[system][by] for system in systems if system in sizes] or [np.inf]))


def _errors(kind: str, by_system: dict) -> dict[str, dict]:
    """Print a line for each system and phase; return the errors by phase and system.

    By one share of peak; by laws of the other systems of its generation, or else of all others; by laws of other
    generations; by laws in use.
    """
    found: dict[str, dict] = {name: {} for name in PHASES.values()}
    for system, own in by_system.items():
        others = [each for each in by_system if each != system]
        alike = [each for each in others if SYSTEMS[each][1] == SYSTEMS[system][1]]
        elsewhere = [each for each in others if SYSTEMS[each][1] != SYSTEMS[system][1]]
        laws = [fit([rows for each in chosen for rows in by_system[each]])
                for chosen in (alike or others or [system], elsewhere or others or [system], [*alike, system])]
        for name in PHASES.values():
            rows = [each for each in own if each.phase == name]
            if rows:
                times = [[each.by_share() for each in rows],
                         *([each.predicted(law[name] if name in law else laws[-1][name]) for each in rows]
                           for law in laws)]
                found[name][system] = [float(np.mean([np.abs(ns / each.ns - 1).mean() for each, ns in zip(
                    rows, of, strict=True)])) for of in times]
                print(f"| {kind} {name} | {system} | {sum(len(each.ns) for each in rows)} | "
                      + " | ".join(f"{each:.0%}" for each in found[name][system]) + " |", flush=True)
    return found


def main():
    """Read the arguments and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--path", help="folder `systems`; default: the installed aiconfigurator-core")
    write(parser.parse_args().path)


if __name__ == "__main__":
    main()
