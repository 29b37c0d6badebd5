"""BLIS's chain of tiers against its rules in plain Python, used at random."""
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kv.chain_model import BELOW, COMING, HELD, IS_PUT_OFF, NO_WAIT, ChainModel
from kv.station_model import BLOCK_BYTES
from kv.test_station import LEVELS
from simulator.domain import records
from simulator.kv.tiers.host_chain import HostChain
from support.kv_faces import ChainFace

KEYS = range(1, 9)
RANKS = [2, 0, 3, 1]        # of the ids of four requests


def demands():
    """Return the records of the requests."""
    table = np.zeros(len(RANKS), records.DEMAND)
    table["tie_rank"] = RANKS
    return table


def act(what, ours, model, data):
    """Do something at both."""
    if what == "keep":
        for key in data.draw(st.lists(st.sampled_from(KEYS), max_size=5)):
            ours.keep(key)
            model.keep(key)
    elif what == "reload":
        for key in [key for key in KEYS if model.place_of(key) == HELD][:2]:
            ours.reload(key)
            model.reload(key)
    elif what == "serve":
        for row in [row for row in range(len(RANKS)) if model.wait_of(row) not in (NO_WAIT, IS_PUT_OFF)][:2]:
            ours.was_served(row)
            del model.episodes[row]
    else:
        gather(ours, model, data)


def gather(ours, model, data):
    """Let somebody ask for a run, and wait for it or not."""
    firsts = [key for key in KEYS if model.place_of(key) in (COMING, BELOW)]
    if not firsts:
        return
    first = data.draw(st.sampled_from(firsts))
    keys = [first, *(key for key in data.draw(st.permutations(KEYS)) if key != first)]
    assert ours.gather(keys) == model.gather(keys)
    row = data.draw(st.integers(0, len(RANKS) - 1))
    if model.wait_of(row) == NO_WAIT:
        ours.put_off(row)
        model.put_off(row)
    elif model.level >= 0:
        ours.fetch()
        model.fetch()


@settings(max_examples=300)
@given(capacity=st.integers(1, 6), levels=st.lists(LEVELS, min_size=1, max_size=3), data=st.data())
def test_blocks_come_go_and_are_waited_for_as_the_rules_say(capacity, levels, data):
    chain = HostChain(capacity, levels, demands(), True, BLOCK_BYTES, BLOCK_BYTES)
    ours, model, now = ChainFace(chain), ChainModel(capacity, levels, RANKS), 0
    for _ in range(data.draw(st.integers(5, 30))):
        now += data.draw(st.sampled_from([1, 2, 5, 20]))
        ours.begins(1000 * now)
        model.begins(now)
        ours.look_again()
        model.look_again()
        act(data.draw(st.sampled_from(["keep", "keep", "reload", "serve", "gather", "gather"])), ours, model, data)
        chain.check()
        assert [ours.place_of(key) for key in KEYS] == [model.place_of(key) for key in KEYS]
        assert [ours.wait_of(row) for row in range(len(RANKS))] == [model.wait_of(row) for row in range(len(RANKS))]
        assert (chain.kept, chain.refused, chain.evicted) == (model.kept, model.refused, model.evicted)
        assert [row["refusals"] for row in chain.rows()[1:]] == model.refusals
        if IS_PUT_OFF in [model.wait_of(row) for row in range(len(RANKS))]:
            assert 1000 * (now + 1) <= ours.next_end_ns() < 10**13
