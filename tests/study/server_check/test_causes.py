"""Planted causes: a small sample of bench/server_check.py."""
import json

import pytest

from simulator.study.server_check import causes
from simulator.study.server_check import check as check_module
from simulator.study.server_check.changes import NOTHING
from simulator.study.server_check.check import check
from simulator.study.server_check.reading import read_series
from support.planted import PLANTS, SCENES, Case, range_answer, truth

NAMES = ("eager", "kv_format", "max_num_seqs", "client")


@pytest.fixture
def sample(monkeypatch):
    """Return a part of the catalogue; runs of fewer seeds."""
    monkeypatch.setattr(check_module, "SEEDS", 5)
    monkeypatch.setattr(check_module, "CAUSE_SEEDS", 5)
    monkeypatch.setattr(check_module, "REFINED", 4)
    monkeypatch.setattr(causes, "PLACES", (16, 64))
    return [cause for cause in causes.CAUSES if cause.name in NAMES]


@pytest.mark.parametrize("cause", ["eager", "kv_format"])
def test_a_planted_cause_is_the_first(tmp_path, sample, cause):
    case = Case("chat", cause, PLANTS[cause][0], 1234)
    (tmp_path / "prom.json").write_text(json.dumps(range_answer(truth(case))))

    answer = check(SCENES["chat"], read_series([tmp_path / "prom.json"]), price_error=0.05, causes=sample)

    assert not answer.is_right
    assert answer.ranked[0].cause.name == cause


def test_a_server_that_is_as_its_experiment_says_is_right(sample):
    answer = check(SCENES["chat"], truth(Case("chat", "", NOTHING, 77)), price_error=0.05, causes=sample)

    assert answer.is_right
    assert sum(not row.is_inside for row in answer.rows) <= 2
