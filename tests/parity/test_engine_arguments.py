"""Command lines are resolved as the real engines resolve them, key by key, refusals with step and cause."""
import pytest

from simulator.server_line.facts.flag_tables import flag_table, versions
from support import engine_arguments
from support.goldens import GOLDENS

LINES = engine_arguments.lines()


@pytest.mark.skipif(not LINES, reason=f"no recorded command lines under {GOLDENS}")
@pytest.mark.parametrize("name", LINES)
def test_every_recorded_line_resolves_equal(name):
    found = [found for record in LINES[name] if (found := engine_arguments.difference(record)) is not None]
    assert not found, f"{len(found)} of {len(LINES[name])} lines differ\n" + "\n".join(found)


@pytest.mark.skipif(not LINES, reason=f"no recorded command lines under {GOLDENS}")
def test_the_comparison_sees_a_difference():
    record = next(record for records in LINES.values() for record in records if "resolved" in record)
    wrong = record | {"resolved": record["resolved"] | {"none": 1}}
    assert "none: ours absent, recorded 1" in engine_arguments.difference(wrong)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_every_version_has_a_table_of_flags(engine):
    for version in versions(engine):
        table = flag_table(engine, version)
        assert table.release.startswith(version) and len(table.rows) > 300
