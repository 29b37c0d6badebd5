"""Every scheduler goes with every router, failures, pools and the rest, or says by name why it does not."""
from pathlib import Path

import pytest

import simulator
from support import lattice

PAGE = Path(simulator.__file__).parent / "scheduling" / "README.md"


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("lattice") / "trace.csv"
    lattice.write_trace(path)
    return path


@pytest.mark.parametrize("scheduler", lattice.SCHEDULERS)
@pytest.mark.parametrize("part", ["routers", "others"])
def test_it_runs_to_the_end_or_is_refused_by_name(scheduler, part, trace):
    assert lattice.outcome(scheduler, {}, trace) is None        # alone, it serves this
    for feature, settings in lattice.features_of(scheduler).items():
        if feature.startswith("router ") == (part == "routers"):
            faults = lattice.outcome(scheduler, settings, trace)
            if faults is not None:
                assert all(f'"{scheduler}"' in fault and lattice.TOLD_AS[feature] in fault for fault in faults), faults


@pytest.mark.slow
def test_the_page_has_the_table_of_what_runs(tmp_path):
    assert "\n".join(lattice.table(lattice.outcomes(tmp_path / "trace.csv"))) in PAGE.read_text(encoding="utf-8")
