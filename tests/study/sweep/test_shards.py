"""Shares of a study: disjoint, complete, even; Slurm's arrays say which is whose."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import InputErrors
from simulator.study.sweep.shards import Shard, restarts, shard_of


@given(st.sets(st.text("0123456789abcdef", min_size=16, max_size=16)), st.integers(1, 12))
def test_shares_are_disjoint_complete_and_even(ids, count):
    shares = [Shard(index, count).of(ids) for index in range(count)]

    assert sorted(each for share in shares for each in share) == sorted(ids)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_share_does_not_depend_on_the_order_of_the_plan():
    assert Shard(1, 2).of(["d", "b", "a", "c"]) == Shard(1, 2).of(["a", "b", "c", "d"]) == ["b", "d"]


def test_a_share_is_written_as_two_numbers():
    assert shard_of("2/3", {}) == Shard(2, 3) and str(Shard(2, 3)) == "2/3"


@pytest.mark.parametrize("text", ["3/3", "0/0", "-1/3", "1", "1/", "a/b", "1/2/3", "", "Slurm"])
def test_what_is_no_share_is_refused(text):
    with pytest.raises(InputErrors, match=f'--shard: expected I/N with I from 0 to N - 1.*found "{text}"'):
        shard_of(text, {})


def array(task, first, step, count):
    return {"SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_MIN": str(first), "SLURM_ARRAY_TASK_STEP": str(step),
            "SLURM_ARRAY_TASK_COUNT": str(count)}


@pytest.mark.parametrize(("environ", "expected"), [
    (array(0, 0, 1, 32), Shard(0, 32)), (array(31, 0, 1, 32), Shard(31, 32)), (array(5, 5, 1, 4), Shard(0, 4)),
    (array(9, 1, 4, 3), Shard(2, 3))])
def test_tasks_of_an_array_are_shares(environ, expected):
    assert shard_of("slurm", environ) == expected


def test_an_array_with_gaps_is_refused():
    # --array=0,2,7: the task 7 would be share 7 of 3
    with pytest.raises(InputErrors, match=r"SLURM_ARRAY_TASK_ID=7.*a list with gaps; use --array=FIRST-LAST"):
        shard_of("slurm", array(7, 0, 1, 3))


def test_outside_an_array_slurm_is_no_answer():
    with pytest.raises(InputErrors, match=r"SLURM_ARRAY_TASK_ID, SLURM_ARRAY_TASK_MIN.*is this a task of `sbatch"):
        shard_of("slurm", {})


def test_restarts_are_counted_by_slurm():
    assert restarts({"SLURM_RESTART_COUNT": "2"}) == 2 and restarts({}) == 0
