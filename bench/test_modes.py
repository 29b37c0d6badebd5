"""The modes of a replica in real deployments: against the plain event loop and the lower bound; instructions.

The bound always has plain iterations, but modes have other numbers of iterations: with stages more, with speculation
fewer.
"""
import shutil
import time

import pytest
from cases import Prepared
from instructions import count_loop
from modes import MODES, plain
from pairs import repeated_cpu_s

pytestmark = pytest.mark.benchmark(group="modes", timer=time.process_time)


@pytest.mark.parametrize("name", MODES, scope="class")      # mode by mode: a line of the table for each
class TestMode:
    def test_against_the_plain_loop(self, name, pairs, report):
        case, target = MODES[name]
        usual, special = Prepared(plain(case)), Prepared(case)

        pair = pairs.against(lambda: repeated_cpu_s(usual), special.ready, rounds=5)

        special.means_ms()                                  # all completed
        iterations = special.total("iterations") / usual.total("iterations")
        report.add(name, f"{pair.ratio:.2f} x plain", target,
                   f"{pair}; {iterations:.2f} x the iterations, {pair.ratio / iterations:.2f} x for one")

    def test_against_the_lower_bound(self, name, pairs, limit, report, tmp_path):
        prepared = Prepared(MODES[name].case)

        pair, _ = pairs.against_limit(limit, prepared, tmp_path / "trace.csv", rounds=5)

        prepared.means_ms()
        report.add(name, f"{pair.ratio:.1f} x limit", "", str(pair))

    @pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind")
    def test_instructions(self, name, benchmark, report, tmp_path):
        iterations, count = benchmark.pedantic(count_loop, args=(name, tmp_path), rounds=1)

        report.add(name, f"{count / iterations:,.0f} instructions an iteration", "", f"{iterations:,} iterations")
