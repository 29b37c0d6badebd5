import numpy as np
import pytest

from simulator.signals.view import View


def test_replicas_are_empty_and_open_at_first():
    view = View(3)
    assert view.account_array["is_routable"].all()
    assert view.account_array["replica"].tolist() == [0, 1, 2]
    assert not view.state_array.view(np.int8).any()


def test_all_replicas_count_as_changed_at_first():
    assert View(3).num_changed == 3


def test_a_change_is_noted_once():
    view = View(3)
    view.touch(1)
    view.touch()
    assert view.num_changed == 3


def test_a_view_of_nothing_is_refused():
    with pytest.raises(ValueError, match="num_replicas must be >= 1, found 0"):
        View(0)
