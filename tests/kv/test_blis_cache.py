"""BLIS's KV caches against its rules in plain Python, used at random, and by hand."""
from hypothesis import given, settings
from hypothesis import strategies as st

from kv.blis_pool_model import BlisPoolModel
from kv.test_kv_machine import BEHIND_ALL, PROMPTS, known_text
from kv.texts import workload_of
from simulator.domain import records
from simulator.kv.blis_cache import BlisKV
from simulator.kv.blis_sparse import SparseBlisKV
from simulator.kv.content import Content
from support.kv_faces import Face

NUM_SLOTS = 4


def followed(log):
    """Return the hashes that are there after all changes; none comes twice, none goes that is not there."""
    there = set()
    for hash_, is_there in log.entries():
        assert (hash_ in there) != is_there
        there ^= {hash_}
    return there


@settings(max_examples=200)
@given(prompts=PROMPTS, num_blocks=st.integers(2, 20), block_size=st.integers(1, 4), data=st.data())
def test_blocks_are_found_taken_and_freed_as_the_rules_say(prompts, num_blocks, block_size, data):
    workload = workload_of(prompts)
    lengths = workload.requests["prompt_tokens"].tolist()
    kv = BlisKV(num_blocks, block_size, Content(workload))
    log, ours, model, running = kv.follow(), Face(kv, NUM_SLOTS), BlisPoolModel(num_blocks, block_size), {}
    for _ in range(data.draw(st.integers(1, 25))):
        slot = data.draw(st.integers(0, NUM_SLOTS - 1))
        if slot not in running:
            row = data.draw(st.integers(0, len(prompts) - 1))
            prompt = known_text(prompts, row, lengths[row], block_size)
            hits = model.lookup(prompt)
            assert ours.lookup(row, len(prompt)) == len(hits)
            length = min(len(hits) * block_size + data.draw(st.integers(1, 8)), len(prompt))
            fits = model.allocate(slot, prompt[:length], length, hits=hits)
            assert ours.allocate(slot, row, length, hits=len(hits), known_tokens=length) == fits
            if fits:
                running[slot] = row, length
        elif data.draw(st.booleans()):
            row, length = running[slot]
            length += data.draw(st.integers(1, 6))
            fits = model.allocate(slot, known_text(prompts, row, length, block_size), length)
            assert ours.allocate(slot, row, length, known_tokens=length) == fits
            if fits:
                running[slot] = row, length
        else:
            model.release(slot)
            ours.release(slot)
            del running[slot]
        kv.check()
        assert kv.free_queue() == model.free
        assert [kv.block_table(slot) for slot in running] == [model.tables[slot] for slot in running]
        assert kv.num_cached_hashes == len(model.found) == len(followed(log))


def test_within_an_iteration_blocks_are_cached_and_reused_in_the_order_of_the_running_list():
    # Rows 0 and 1 begin alike and are admitted together: row 0 computes one token of the block that they share, row 1
    # both, and ends. Its block is the first to be reused when row 0, first in order, fills its own, and row 2, a
    # member, takes a block: nothing is found under that hash any more.
    shared = (records.named_stream(0), 2)
    workload = workload_of([[shared, (records.own_stream(0), 1)], [shared], 2, 1, [shared, (records.own_stream(4), 1)]])
    kv = SparseBlisKV(4, 2, Content(workload))
    ours = Face(kv, NUM_SLOTS)
    for slot, tokens in enumerate((1, 2, 2, 1)):
        ours.allocate(slot, slot, tokens, known_tokens=tokens)
        workload.requests["scheduled_ns"][slot] = 0
    assert ours.lookup(4, 3) == 1
    workload.requests["status"][1] = records.COMPLETED
    ours.release(1, returns=False)
    ours.join(2, 0, order=2)

    ours.step_begin(0)
    ours.step_before(0)
    ours.allocate(0, 0, 2, known_tokens=2)
    ours.step_before(BEHIND_ALL)

    assert (kv.free_blocks, ours.lookup(4, 3)) == (0, 0)
