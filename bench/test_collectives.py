"""The cost of collectives of new sizes; in the loop, test_backends has collectives."""
import itertools
import time

import pytest
from backends import busbw, external, flow, table
from pairs import cpu_s

pytestmark = pytest.mark.benchmark(group="collectives", timer=time.process_time)

ROUNDS, SIZES, RUNS = 7, 20_000, 20


def asks(model, sizes):
    """Return a function that predicts all-reduces of the sizes."""
    def ask():
        for num_bytes in sizes:
            model.predict("tensor", "all_reduce", num_bytes)
    return ask


def octaves(first):
    """Return sizes from 1 KiB to 256 MiB, none twice for different `first` below 1."""
    return [1024.0 * 2 ** (18 * (i + first) / SIZES) for i in range(SIZES)]


@pytest.mark.parametrize("make", [table, flow], ids=lambda make: make.__name__)
def test_new_sizes_against_the_formula(make, pairs, report, tmp_path):
    formula, rounds = busbw(tmp_path), itertools.count()
    model = make(tmp_path)

    pair = pairs.against(lambda: cpu_s(asks(formula, octaves(0.5 / (1 + next(rounds))))),
                         lambda: asks(model, octaves(0.5 / (1 + next(rounds)))), rounds=ROUNDS)

    # The first round simulates sizes, between which `flow` interpolates in later rounds.
    report.add(f"{make.__name__}, new sizes", f"{pair.ratio:.2f} x busbw", "", f"{pair} for {SIZES:,}")


def test_new_sizes_on_a_new_network_against_the_formula(pairs, report, tmp_path):
    # 8 sizes an octave, 18 octaves: 145 simulations at the most, then all is interpolated
    formula = busbw(tmp_path)

    pair = pairs.against(lambda: cpu_s(asks(formula, octaves(0.5))), lambda: asks(flow(tmp_path), octaves(0.5)),
                         rounds=ROUNDS)

    report.add("flow, nothing simulated yet", f"{pair.ratio:.2f} x busbw", "", f"{pair} for {SIZES:,}")


@pytest.mark.benchmark(timer=time.perf_counter)     # the program is another process
def test_new_sizes_of_a_program(benchmark, report, tmp_path):
    model, sizes, took_s = external(tmp_path), itertools.count(1024), []

    def target():
        began_s = time.perf_counter()
        asks(model, itertools.islice(sizes, RUNS))()
        took_s.append((time.perf_counter() - began_s) / RUNS)

    benchmark.pedantic(target, rounds=ROUNDS)

    again_s = cpu_s(asks(model, [1024.0] * SIZES)) / SIZES
    report.add("external, new sizes", f"{1e3 * sorted(took_s)[ROUNDS // 2]:.1f} ms", "",
               f"a program that answers at once; {1e9 * again_s:.0f} ns when it is remembered, Python's call included")
