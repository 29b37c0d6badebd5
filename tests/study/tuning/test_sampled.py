"""A sampler asks for candidates, the same ones each time."""
import sys

import pytest

from simulator.study.tuning.search import chosen_search

OPTUNA = ('kind = "tune"', 'kind = "tune"\nsearch = "optuna"\nmax_trials = 6')
ONE = ('output_throughput_per_gpu = "max"\n', "")


def test_without_optuna_the_extra_is_named(study, tune, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert tune(study(OPTUNA))[0] == 2
    assert "pip install 'simulator[tune]'" in capsys.readouterr().err


@pytest.mark.parametrize("pairs", [(OPTUNA,), (OPTUNA, ONE)], ids=["nsga", "tpe"])
def test_it_is_seeded_and_says_that_it_is_not_complete(study, tune, tmp_path, pairs):
    pytest.importorskip("optuna", reason="Optuna is in the tune extra")
    status, told = tune(study(*pairs))
    tune(study(*pairs), "--jobs", "2", out="again")

    assert status == 0 and told["search"] == "optuna" and not told["complete"]
    assert told["counts"]["feasible"] == 6
    assert (tmp_path / "again" / "ranking.csv").read_bytes() == (tmp_path / "out" / "ranking.csv").read_bytes()


def test_it_ends_when_nothing_is_left(study, tune):
    pytest.importorskip("optuna", reason="Optuna is in the tune extra")
    status, told = tune(study((OPTUNA[0], 'kind = "tune"\nsearch = "optuna"')))
    _, everything = tune(study(), out="all")

    assert status == 0 and told["complete"]
    assert told["counts"] == everything["counts"] and told["best"] == everything["best"]


def test_so_many_candidates_are_searched_so(asked):
    few = asked(('kind = "tune"', 'kind = "tune"\nmax_trials = 3000'))
    assert [chosen_search(few, count) for count in (2000, 2001, 3001)] == ["exhaustive", "halving", "optuna"]
