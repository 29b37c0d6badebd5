"""The modes of a replica that real deployments run: each against the plain event loop, and against the lower bound.

`instructions.py --modes` has the instructions. The bound always is that of plain iterations, which are not the same in
each mode: with stages there are more of them, with speculation fewer.
"""
import time

import pytest
from cases import Prepared
from modes import MODES, plain
from pairs import repeated_cpu_s

pytestmark = pytest.mark.benchmark(group="modes", timer=time.process_time)


@pytest.mark.parametrize("name", MODES)
def test_mode_against_the_plain_loop(name, pairs, report):
    case, target = MODES[name]
    usual, special = Prepared(plain(case)), Prepared(case)

    pair = pairs.against(lambda: repeated_cpu_s(usual), special.ready, rounds=5)

    special.means_ms()                                  # all completed
    iterations = special.total("iterations") / usual.total("iterations")
    report.add(name, f"{pair.ratio:.2f} x plain", target,
               f"{pair}; {iterations:.2f} x the iterations, {pair.ratio / iterations:.2f} x for one")


@pytest.mark.parametrize("name", MODES)
def test_mode_against_the_lower_bound(name, pairs, limit, report, tmp_path):
    prepared = Prepared(MODES[name].case)

    pair, _ = pairs.against_limit(limit, prepared, tmp_path / "trace.csv", rounds=5)

    prepared.means_ms()
    report.add(name, f"{pair.ratio:.1f} x limit", "", str(pair))
