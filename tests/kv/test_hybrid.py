"""The rules of a KV cache with groups of layers, one by one. Blocks have 4 tokens unless it says otherwise."""
import pytest

from kv.texts import workload_of
from simulator.domain import records
from simulator.domain.layer_groups import LayerGroup, LayerGroups
from simulator.kv.content import Content
from simulator.kv.hybrid.cache import HybridKV
from simulator.kv.hybrid.kinds import unit_of
from simulator.scheduling.contract import KVPlan
from support.kv_faces import Face

SYSTEM = records.named_stream(0)
FULL = LayerGroup(kind="full_attention", block_size=4)
STATE = LayerGroup(kind="linear_attention", block_size=4, aligned=True)


def window(tokens, block_size=4):
    return LayerGroup(kind="sliding_attention", block_size=block_size, window=tokens)


def chunks(tokens):
    return LayerGroup(kind="chunked_attention", block_size=4, window=tokens)


@pytest.fixture
def pool():
    """Return a function that makes a cache of so many blocks: (kv, its face)."""
    def build(num_blocks, prompts, groups, *, retention=None, in_flight=8, caching=True, with_tables=True):
        layers = LayerGroups(groups=tuple(groups), retention_interval=retention)
        plan = KVPlan(num_blocks, 4, Content(workload_of(prompts)), caching, True, with_tables, layers, 1000)
        kv = HybridKV(num_blocks, unit_of(layers, caching), plan, in_flight, True)
        return kv, Face(kv, len(prompts))
    return build


def admit(face, row, num_tokens, **limits):
    """Admit a request in the slot of its own number and compute its first `num_tokens` tokens; return the hit."""
    hits = face.lookup(row, num_tokens)
    assert face.allocate(row, row, num_tokens, hits=hits, known_tokens=num_tokens, **limits)
    return hits


def go_on(face, row, before, num_tokens):
    """Compute a request on from `before` to `num_tokens` tokens."""
    face.slide(row, before)
    assert face.allocate(row, row, num_tokens, known_tokens=num_tokens)


# ---- what is kept

def test_each_group_has_a_table_of_its_own_in_one_pool(pool):
    kv, face = pool(9, [8], [FULL, window(5)])
    admit(face, 0, 8)

    assert kv.block_table(0) == [[1, 2], [3, 4]]
    assert kv.free_queue() == [5, 6, 7, 8, 9]


def test_one_group_has_one_table(pool):
    kv, face = pool(9, [8], [window(5)])
    admit(face, 0, 8)

    assert kv.block_table(0) == [1, 2]


def test_what_a_window_has_passed_is_given_back_before_blocks_are_taken(pool):
    # Token 12 sees tokens 8 to 12: blocks 0 and 1 end before. The last is freed first, and is the first to be reused.
    kv, face = pool(9, [20], [window(5)], caching=False)
    admit(face, 0, 12)
    go_on(face, 0, 12, 13)

    assert kv.block_table(0) == [0, 0, 3, 2]
    assert kv.free_queue() == [1, 4, 5, 6, 7, 8, 9]


def test_what_is_in_flight_may_still_need_what_a_window_has_passed(pool):
    # 12 tokens are computed, 4 of them are in flight: the window of token 8 begins with token 4
    kv, face = pool(9, [20], [window(5)], caching=False)
    admit(face, 0, 12)
    face.slide(0, 8)

    assert kv.block_table(0) == [0, 2, 3]


def test_it_is_given_back_even_if_there_are_too_few_blocks_then(pool):
    kv, face = pool(3, [20], [window(9)], caching=False)
    admit(face, 0, 12)
    face.slide(0, 12)                                   # token 12 sees 4 to 12: block 0 is free, two are asked for

    assert not face.allocate(0, 0, 20)
    assert kv.block_table(0) == [0, 2, 3]


def test_a_chunk_ends_at_once(pool):
    kv, face = pool(9, [20], [FULL, chunks(8)], caching=False)
    admit(face, 0, 7)
    face.slide(0, 7)
    assert kv.block_table(0) == [[1, 2], [3, 4]]
    face.slide(0, 8)                                    # token 8 begins a chunk

    assert kv.block_table(0) == [[1, 2], [0, 0]]


def test_of_states_the_newest_is_kept_and_the_one_before_until_it_is_used(pool):
    kv, face = pool(9, [20], [STATE], caching=False)
    admit(face, 0, 4)                                   # the state behind token 3
    go_on(face, 0, 4, 12)                               # behind token 11: one block, for two of tokens
    assert kv.block_table(0) == [1, 0, 2]
    face.slide(0, 12)

    assert kv.block_table(0) == [0, 0, 2]


def test_without_prefix_caching_a_sequence_has_one_state_for_life(pool):
    kv, face = pool(9, [20], [FULL, LayerGroup(kind="linear_attention", block_size=1000)], caching=False)
    admit(face, 0, 8)
    go_on(face, 0, 8, 20)

    assert kv.block_table(0) == [[1, 2, 4, 5, 6], [3]]


def test_groups_are_freed_one_after_the_other_and_each_from_its_tail(pool):
    kv, face = pool(6, [8], [FULL, window(50)], caching=False)
    admit(face, 0, 8)
    face.release(0)

    assert kv.free_queue() == [4, 3, 2, 1, 5, 6]


# ---- whether there is room

def test_a_window_counts_no_more_blocks_than_it_can_ever_hold(pool):
    # 40 tokens: 10 blocks of full layers; of the window 5 - 1 + 8 in flight: 3 blocks, and one for a ragged start
    _, face = pool(20, [40], [FULL, window(5)])
    assert face.whole_blocks(40) == 14
    assert face.allocate(0, 0, 8, full_tokens=40, watermark=6)

    _, face = pool(20, [40], [FULL, window(5)])
    assert not face.allocate(0, 0, 8, full_tokens=40, watermark=7)


def test_a_chunk_needs_no_ragged_start(pool):
    _, face = pool(20, [40], [chunks(8)])

    assert face.whole_blocks(40) == 4                   # 8 and 8 in flight


def test_a_new_state_is_one_block_however_many_tokens_it_follows(pool):
    _, face = pool(20, [40], [FULL, STATE], caching=False)
    admit(face, 0, 4)

    assert face.lacking(0, 40) == 9 + 1


# ---- what is found

def test_a_window_is_found_where_it_ends(pool):
    # Of 16 tokens the last blocks of 9 - 1 = 8 tokens are kept; what is before is null, and nobody needs it.
    kv, face = pool(20, [16, [(SYSTEM, 16), (records.own_stream(1), 4)], [(SYSTEM, 16), (records.own_stream(2), 4)]],
                    [window(9)], retention=0)
    assert admit(face, 1, 20) == 0
    assert admit(face, 2, 20) == 4

    assert kv.block_table(2) == [0, 0, 3, 4, 6]
    assert kv.num_cached_hashes == 2                    # (20 - 1) // 4 * 4 = 16: blocks 2 and 3


def test_a_hit_is_one_in_every_group(pool):
    # The first prompt is 12 tokens long, so windows are kept for a hit of 8; of the full layers all that is there.
    prompts = [[(SYSTEM, 12)], [(SYSTEM, 12), (records.own_stream(1), 8)]]
    _, face = pool(20, prompts, [FULL, window(5)], retention=0)
    admit(face, 0, 12)

    assert face.lookup(1, 20) == 2
    assert face.junction(-1) == 12                      # so far the full layers would have reached


def test_the_second_that_shares_a_prefix_keeps_its_window_for_the_third(pool):
    prompts = [[(SYSTEM, 12), (records.own_stream(row), 8)] for row in range(3)]
    _, face = pool(40, prompts, [FULL, window(5)], retention=0)

    assert [admit(face, row, 20) for row in range(3)] == [0, 0, 3]


def test_windows_are_kept_wherever_a_hit_may_end_if_one_asks_for_it(pool):
    prompts = [[(SYSTEM, 12), (records.own_stream(row), 8)] for row in range(2)]
    _, face = pool(40, prompts, [FULL, window(5)], retention=None)

    assert [admit(face, row, 20) for row in range(2)] == [0, 3]


def test_hits_are_counted_in_the_unit_of_all_blocks(pool):
    # blocks of 4 and 8 tokens: 12 common ones are a hit of 8
    prompts = [[(SYSTEM, 12), (records.own_stream(row), 8)] for row in range(2)]
    kv, face = pool(40, prompts, [FULL, window(50, block_size=8)])
    admit(face, 0, 20)

    assert kv.block_size == 8
    assert face.lookup(1, 20) == 1


def test_a_chunk_is_found_from_where_it_begins(pool):
    # 16 tokens: a hit of at most 12, behind the chunk that ends with token 7, which is taken as computed
    prompts = [[(SYSTEM, 16)], [(SYSTEM, 16)]]
    kv, face = pool(20, prompts, [FULL, chunks(8)])
    admit(face, 0, 16)

    assert admit(face, 1, 16) == 3
    assert kv.block_table(1) == [[1, 2, 3, 9], [0, 0, 7, 10]]


def test_a_state_that_is_computed_now_cannot_be_used_now(pool):
    prompts = [[(SYSTEM, 8), (records.own_stream(row), 1)] for row in range(2)]
    _, face = pool(20, prompts, [FULL, STATE], retention=0)
    face.begin_batch()
    assert face.allocate(0, 0, 8, known_tokens=8)
    hits = face.lookup(1, 9)
    assert hits == 2
    assert not face.allocate(1, 1, 9, hits=hits, known_tokens=9)
    face.begin_batch()

    assert face.allocate(1, 1, 9, hits=face.lookup(1, 9), known_tokens=9)


def test_what_a_request_left_behind_it_finds_in_all_groups(pool):
    kv, face = pool(20, [20], [FULL, window(9)], retention=None)
    admit(face, 0, 18)
    face.release(0, returns=True)
    kv_rows = workload_of([20])                         # it has run: what only itself can find is asked for
    kv_rows.requests["scheduled_ns"] = 0
    kv.share_content(Content(kv_rows))

    assert face.lookup(0, 18) == 4


def hit_after_a_preemption(pool, turns, others, with_tables):
    """Let a member be preempted and look up its text, once another request took blocks for `others` tokens."""
    prompts = [20, 40]
    kv, face = pool(31, prompts, [window(6), window(6), FULL], with_tables=with_tables)
    admit(face, 0, 20)
    go_on(face, 0, 20, 21)
    assert face.may_join(0, 21)
    face.join(0, 0, 0)
    for iteration in range(1, 1 + turns):
        face.step_begin(iteration % 4)
        face.step_before(1)
    face.leave(0, 0)
    face.settle(0, 21 + turns)
    face.release(0, returns=True)
    if others > 0:
        admit(face, 1, others)
    rows = workload_of(prompts)
    rows.requests["scheduled_ns"], rows.requests["output_tokens"] = 0, turns + 2
    kv.share_content(Content(rows))
    hits = face.lookup(0, 22 + turns)
    return hits, face.allocate(0, 0, 22 + turns, hits=hits, known_tokens=22 + turns), kv.free_blocks


def test_a_block_that_a_window_passed_is_found_until_it_is_reused(pool):
    # a hit of 6 blocks needs blocks 4 and 5 of windows; 5 tokens before token 25 are those of block 5 and token 20 + 4
    found = [hit_after_a_preemption(pool, 5, others, False)[0] for others in range(0, 36, 4)]

    assert found[0] == 6 and 0 in found
    for turns in range(1, 12):
        for others in range(0, 36, 4):
            counted, named = (hit_after_a_preemption(pool, turns, others, tables) for tables in (False, True))
            assert counted == named, (turns, others)


# ---- from elsewhere

def test_what_arrives_has_no_blocks_for_what_no_window_sees(pool):
    kv, face = pool(20, [20], [FULL, window(5)])
    face.slide(0, 16)
    assert face.allocate(0, 0, 16)

    assert kv.block_table(0) == [[1, 2, 3, 4], [0, 0, 0, 5]]       # token 16 sees 12 to 16


# ---- members

def test_a_member_takes_and_gives_back_at_regular_times(pool):
    kv, face = pool(40, [20], [FULL, window(5)], caching=False, with_tables=False)
    admit(face, 0, 20)
    assert not face.may_join(0, 20)                     # blocks of 20 - 5 + 1 = 16 tokens are still there
    go_on(face, 0, 20, 21)
    assert face.may_join(0, 21)
    assert face.regular_until(0) > 1000
    face.join(0, 0, 0)                                  # 21 tokens are computed in iteration 1
    free = []
    for iteration in range(1, 9):
        face.step_begin(iteration % 4)
        free.append(kv.free_blocks)

    # Tokens 24 and 28 take 2 blocks; those before block 4 go with token 20, block 4 with token 24, and so on.
    assert free == [32, 32, 32, 31, 31, 31, 31, 30]


def test_before_its_window_is_full_a_member_gives_nothing_back(pool):
    _, face = pool(40, [20], [FULL, window(9)], caching=False)
    admit(face, 0, 6)

    assert face.may_join(0, 6)
    assert face.regular_until(0) == 12                  # token 12 sees 4 to 12: the first that does not see block 0


def test_a_chunk_ends_a_membership(pool):
    _, face = pool(40, [20], [FULL, chunks(8)], caching=False)
    admit(face, 0, 6)
    assert face.may_join(0, 6)
    assert face.regular_until(0) == 8
    go_on(face, 0, 6, 8)

    assert not face.may_join(0, 8)
