"""Whole random experiments: each ends, conserves, agrees with itself, or is refused with a reason."""
import csv
import datetime as dt
import os
import tempfile
import tomllib
from pathlib import Path

import pytest

from lattice.draw import Drawn
from lattice.hunt import Hunt, Job, write_case
from lattice.known import unknown

COUNT = 300             # a run of the tests; `python -m tests.lattice` examines more
GROUPS = 10
LEAST_ACCEPTED = 0.6
AT_ONCE = 2
LIMIT_S = 60.0
# SIM_LATTICE_SEED, or a new one each day, that the name of a test tells.
SEED = int(os.environ.get("SIM_LATTICE_SEED") or dt.datetime.now(tz=dt.UTC).strftime("%Y%m%d")) * 1000


CASES = sorted(Path(__file__).with_name("cases").glob("*.toml"))       # in which a fault was found once


@pytest.fixture(scope="module")
def hunt(tmp_path_factory):
    with Hunt(tmp_path_factory.mktemp("lattice"), AT_ONCE, LIMIT_S) as hunt:
        yield hunt


@pytest.mark.parametrize("first", [
    pytest.param(SEED + group * (COUNT // GROUPS), marks=[pytest.mark.ci] * (group > 1)) for group in range(GROUPS)],
    ids="seed{}".format)
def test_experiments_hold_together_or_are_refused(hunt, first):
    accepted, found = 0, []
    for job, examined in hunt.outcomes(map(Job, range(first, first + COUNT // GROUPS))):
        accepted += examined.refused is None
        for kind, text in unknown(examined.drawn.data, examined.faults):
            path = write_case(examined.drawn, Path(tempfile.mkdtemp(prefix="lattice-")), "case")
            found.append(f"seed {job.seed}, {path}: {kind}: {text}")
    assert not found, "\n".join([*found, "smaller: python -m tests.lattice --count 1 --seed SEED"])
    assert accepted >= LEAST_ACCEPTED * (COUNT // GROUPS)


@pytest.mark.ci
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_what_was_mended_stays_so(hunt, path):
    trace = path.with_suffix(".csv")
    rows = list(csv.reader(trace.read_text(encoding="utf-8").splitlines())) if trace.exists() else [["arrived_at"]]

    examined = hunt.examine(Drawn(tomllib.loads(path.read_text(encoding="utf-8")), rows))

    assert examined.refused is None
    assert not examined.faults
