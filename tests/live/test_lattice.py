"""Whole random experiments, served to drawn clients: a run of the record repeats each, or serve refuses it."""
import datetime as dt
import json
import os
import tempfile
from pathlib import Path

import pytest

import simulator
from lattice.draw import Drawn, draw
from lattice.examine import Folder
from simulator.assembly import assemble
from simulator.errors import InputErrors
from simulator.live import refusals
from simulator.live.fleet import LiveFleet
from simulator.live.session import differing_rows, write_session
from support.every_key import read
from support.live_sessions import Session

COUNT, GROUPS = 80, 4
LEAST_SERVED = 0.5
# SIM_LATTICE_SEED, or a new one each day, that the name of a test tells.
SEED = int(os.environ.get("SIM_LATTICE_SEED") or dt.datetime.now(tz=dt.UTC).strftime("%Y%m%d")) * 1000
NAMES = {"tenant": ["", "t0", "t1", "t2"], "session": ["x", "y", "z", ""], "slo_class": ["gold", "bronze", "unknown"],
         "adapter": ["a0", "a1", ""], "grammar": ["", "json-1", "regex-2"]}


class Short(Session):
    """Clients with prompts of at most half of a context."""

    def prompt(self):
        return super().prompt()[:max(self.fleet.max_model_len // 2, 1)]


def _prepared(drawn, folder):
    folder.keep(drawn)
    experiment = read(drawn.data)
    refusals.check(experiment)
    return experiment, assemble.prepare(experiment)


def _is_refused(drawn, folder):
    try:
        _prepared(drawn, folder)
    except InputErrors:
        return True
    return False


def _differing(drawn, folder, seed):
    """Return the rows in which a run of the record differs; None: the experiment is not served."""
    try:
        experiment, prepared = _prepared(drawn, folder)
        fleet = LiveFleet(prepared, 40)
        refusals.check_blocks(fleet)
    except InputErrors:
        return None
    Short(fleet, seed, count=30, labels=NAMES, has_admin=seed % 2 == 0).play()
    if fleet.is_stopped:
        return None
    served, record = fleet.served(), Path(f"session{seed}")
    result = simulator.run(write_session(fleet.actions.recorded(experiment), served, record, fleet.actions.taken))
    return differing_rows(served, result.requests)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path)


@pytest.mark.parametrize("first", range(SEED, SEED + COUNT, COUNT // GROUPS), ids="seed{}".format)
def test_a_run_repeats_each_session_of_a_drawn_experiment(folder, first):
    num_served, found = 0, []
    for seed in range(first, first + COUNT // GROUPS):
        drawn: Drawn = draw(seed, lambda each: _is_refused(each, folder))
        rows = _differing(drawn, folder, seed)
        num_served += rows is not None
        if rows:
            case = Path(tempfile.mkdtemp(prefix="lattice-"), "case.json")
            case.write_text(json.dumps(drawn._asdict()))
            found.append(f"seed {seed}, {case}: rows {rows[:5]}")
    assert not found, "\n".join(found)
    assert num_served >= LEAST_SERVED * (COUNT // GROUPS)
