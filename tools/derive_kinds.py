"""Fits of hardware/efficiency/kinds.toml to tables of single operators, each accelerator left out in turn.

    python tools/derive_kinds.py [--path FOLDER] [--regions]

FOLDER is `systems` of aiconfigurator-core (default: the installed package). kind_rows.py reads its tables of operators.
A phase has a law, as simulator/latency/roofline/kind_laws.py says, where its error on accelerators left out is below
that of one share of peak. Writes the file, and prints the errors that README.md beside this file shows;
--regions prints those of prompts by the laws of the file, by new and cached tokens.
"""
import argparse
import itertools
from collections.abc import Callable

import msgspec
import numpy as np
import tomli_w
from derive_efficiency import SYSTEMS
from kind_rows import PHASES, ROWS, Machine, Rows, attention, recurrences, towers
from scipy.optimize import least_squares

from simulator.domain.facts import folder
from simulator.latency.roofline.kind_laws import BY_SHARE, ELSEWHERE, FILE, IN_USE, LEFT_OUT, kind_law
from simulator.latency.roofline.laws import ANY

# Numbers of a phase: least, most, first guess. passes: over queries and outputs of attention.
FLOORS, PASSES = (1e-3, 60.0, 10.0), (1e-2, 40.0, 2.0)
NUMBERS = {"decode": {"compute_frac": (1e-3, 1.0, 0.3), "memory_frac": (1e-2, 1.0, 0.6), "floor_us": FLOORS,
                      "passes": PASSES},
           "prefill": {"compute_frac": (1e-3, 1.0, 0.3), "floor_us": FLOORS, "passes": PASSES}}
OF_TOWERS = NUMBERS["prefill"] | {"memory_frac": NUMBERS["decode"]["memory_frac"]}
NEW = ((2, 8), (16, 16), (512, 512), (8192, 8192))                            # tokens of a chunk, and before it
CACHED = ((0, 0), (512, 2048), (16_384, 65_536), (100_000, 210_000))
TILES = (1e-2, 2048.0, 64.0)    # tile_tokens, of kinds that were measured behind a prefix


def fit(tables: list[Rows], has_decode: bool = True) -> dict[str, dict]:
    """Return the numbers of a kind by phase; of prompts, given those of decodes, or shares of peak without."""
    found: dict[str, dict] = {}
    decodes, prompts = ([rows for rows in tables if rows.phase == name] for name in ("decode", "prefill"))
    if decodes and has_decode:
        found["decode"] = _fit(decodes, NUMBERS["decode"], lambda numbers: {"decode": numbers})
    if prompts:
        bounds = dict(OF_TOWERS if prompts[0].is_tower else NUMBERS["prefill"])
        if any(rows.has_prefix for rows in prompts):
            bounds["tile_tokens"] = TILES
        if all(rows.is_hosted for rows in prompts):
            del bounds["floor_us"]
        found["prefill"] = _fit(prompts, bounds, lambda numbers: found | {"prefill": numbers})
    return found


def _fit(tables: list[Rows], bounds: dict, law_of: Callable) -> dict:
    """Return the numbers with the least error in the logarithm of time; all tables have equal weight."""
    def numbers(logs):
        return dict(zip(bounds, np.exp(logs).tolist(), strict=True))

    def residuals(logs):
        law = law_of(numbers(logs))
        return np.concatenate([np.log(rows.predicted(law) / rows.ns) * (ROWS / len(rows.ns)) ** 0.5
                               for rows in tables])

    least, most, start = (np.log(each) for each in zip(*bounds.values(), strict=True))
    found = [least_squares(residuals, np.clip(start + shift, least, most), bounds=(least, most), loss="soft_l1",
                           f_scale=0.2) for shift in (0.0, -1.5)]
    return {name: _rounded(value) for name, value in numbers(min(found, key=lambda each: each.cost).x).items()}


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
        used |= {f"{system}/{name}": digest for name, digest in machine.used().items()}
        machine.database = machine.of_sglang = None
    generations: dict[str, dict] = {}
    errors: dict[str, dict] = {}
    for kind, by_system in tables.items():
        sizes = {has_decode: _errors(by_system, has_decode) for has_decode in (True, False)}
        laws = {}
        for generation in [*dict.fromkeys(SYSTEMS[system][1] for system in by_system), ANY]:
            chosen = [system for system in by_system if generation in (SYSTEMS[system][1], ANY)]
            by = ELSEWHERE if generation == ANY else LEFT_OUT if len(chosen) > 1 else IN_USE
            laws[generation] = _chosen(by_system, chosen, sizes, by)
            generations.setdefault(generation, {})[kind] = laws[generation]
        errors[kind] = {
            phase: [_rounded(_mean(sizes["decode" in laws[ANY] if by == ELSEWHERE else True][phase], by_system, by))
                    for by in range(4)] for phase in PHASES.values() if sizes[True][phase]}
        _print(kind, by_system, sizes, laws)
    text = tomli_w.dumps({"source": "aiconfigurator-core, tables of single operators; derived by tools/derive_kinds.py",
                          "tables": dict(sorted(used.items())), "errors": errors, "generations": generations})
    (folder("hardware") / FILE).write_text(
        "# Written by tools/derive_kinds.py; simulator/latency/roofline/kind_laws.py says what each number means.\n"
        + text, encoding="utf-8")


def _chosen(by_system: dict, systems: list[str], sizes: dict, by: int) -> dict:
    """Return the law of some systems by phase, where it is better than one share of peak; the others have none."""
    has_decode = _is_better(sizes[True]["decode"], systems, by)
    law = fit([rows for system in systems for rows in by_system[system]], has_decode)
    return {name: numbers for name, numbers in law.items() if _is_better(sizes[has_decode][name], systems, by)}


def _is_better(sizes: dict, systems: list[str], by: int) -> bool:
    return _mean(sizes, systems, by) < _mean(sizes, systems, BY_SHARE)


def _mean(sizes: dict, systems, by: int) -> float:
    return float(np.mean([sizes[system][by] for system in systems if system in sizes] or [np.inf]))


def _errors(by_system: dict, has_decode: bool) -> dict[str, dict]:
    """Return the errors by phase and system.

    By one share of peak; by laws of the other systems of its generation, or else of all others; by laws of other
    generations; by laws in use.
    """
    found: dict[str, dict] = {name: {} for name in PHASES.values()}
    for system, own in by_system.items():
        others = [each for each in by_system if each != system]
        alike = [each for each in others if SYSTEMS[each][1] == SYSTEMS[system][1]]
        elsewhere = [each for each in others if SYSTEMS[each][1] != SYSTEMS[system][1]]
        laws = [fit([rows for each in chosen for rows in by_system[each]], has_decode)
                for chosen in (alike or others or [system], elsewhere or others or [system], [*alike, system])]
        for name in PHASES.values():
            if rows := [each for each in own if each.phase == name]:
                times = [[each.of_share() for each in rows], *([each.predicted(law) for each in rows] for law in laws)]
                found[name][system] = [float(np.mean([np.abs(ns / each.ns - 1).mean() for each, ns in zip(
                    rows, of, strict=True)])) for of in times]
    return found


def _print(kind: str, by_system: dict, sizes: dict, laws: dict) -> None:
    for system, own in by_system.items():
        law = laws[SYSTEMS[system][1]]
        for name in PHASES.values():
            if rows := [each for each in own if each.phase == name]:
                of = sizes["decode" in law or name == "decode"][name][system]
                print(f"| {kind} {name} | {system} | {sum(len(each.ns) for each in rows)} | "
                      + " | ".join(f"{each:.0%}" for each in of) + f" | {'yes' if name in law else 'no'} |", flush=True)


def regions(path: str | None) -> None:
    """Print the mean errors of prompts by kind, new and cached tokens: by one share, by law, and the law's bias."""
    sizes: dict[tuple, list[np.ndarray]] = {}
    for system, (_, generation) in SYSTEMS.items():
        machine = Machine(system, path)
        for kind, rows in (found for read in (attention, recurrences) for found in read(machine)):
            law = {name: msgspec.structs.asdict(each) for name, each in msgspec.structs.asdict(
                kind_law(generation, kind)).items() if each is not None}
            errors = np.array([rows.of_share() / rows.ns - 1, rows.predicted(law) / rows.ns - 1])
            for new, cached in itertools.product(NEW, CACHED):
                kept = (rows.new >= new[0]) & (rows.new <= new[1]) & (rows.cached >= cached[0]) & (
                    rows.cached <= cached[1])
                if rows.phase == "prefill" and kept.any():
                    sizes.setdefault((kind, new, cached), []).append(errors[:, kept])
    for (kind, new, cached), each in sizes.items():
        share, law = np.concatenate(each, axis=1)
        texts = (f"{least:,}-{most:,}" if least < most else f"{most:,}" for least, most in (new, cached))
        print(f"| {kind} | {' | '.join(texts)} | {len(law)} | {abs(share).mean():.0%} | {abs(law).mean():.0%} | "
              f"{law.mean():+.0%} |")


def main():
    """Read the arguments and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--path", help="folder `systems`; default: the installed aiconfigurator-core")
    parser.add_argument("--regions", action="store_true", help="print errors by new and cached tokens, fit nothing")
    arguments = parser.parse_args()
    (regions if arguments.regions else write)(arguments.path)


if __name__ == "__main__":
    main()
