"""The rules of the paged KV cache, one by one. Blocks have 4 tokens."""
import pytest

from kv.texts import workload_of
from simulator.domain import records
from simulator.kv.blis_cache import BlisKV
from simulator.kv.content import Content
from simulator.kv.paged import PagedKV
from support.kv_faces import Face

SYSTEM = records.named_stream(0)
DOCUMENT = records.named_stream(1)


@pytest.fixture
def pool():
    def build(num_blocks, prompts, **options):
        kv = PagedKV(num_blocks, 4, Content(workload_of(prompts)), **options)
        kv.log_evictions()
        return kv, Face(kv, len(prompts))
    return build


def admit(face, row, num_tokens):
    """Admit a request in the slot of its own number and compute its first `num_tokens` tokens."""
    hits = face.lookup(row, num_tokens)
    assert face.allocate(row, row, num_tokens, hits=hits, known_tokens=num_tokens)
    return hits


def test_blocks_are_first_given_out_in_order_and_never_the_null_block(pool):
    kv, face = pool(5, [8, 12])
    admit(face, 0, 8)
    admit(face, 1, 12)

    assert (kv.block_table(0), kv.block_table(1), kv.free_queue()) == ([1, 2], [3, 4, 5], [])
    kv.check()


def test_blocks_have_records_from_when_they_are_needed(pool):
    kv, face = pool(1000, [20, 60])
    assert (kv.num_records, kv.free_queue()) == (1, [*range(1, 1001)])          # the null block

    admit(face, 0, 20)
    assert (kv.num_records, kv.free_queue()) == (8, [*range(6, 1001)])          # at first 8 records

    admit(face, 1, 60)
    assert kv.block_table(1) == [*range(6, 21)]
    assert (kv.num_records, kv.free_queue()) == (22, [*range(21, 1001)])        # 21 in use, one for all that are not
    kv.check()


def test_freed_blocks_stand_before_and_behind_those_that_were_never_used(pool):
    kv, face = pool(40, [6, 8])
    admit(face, 0, 6)
    admit(face, 1, 8)
    face.release(0)             # block 2 is not full, block 1 is cached
    face.release(1)             # so are 3 and 4

    assert (kv.num_records, kv.free_queue()) == (8, [2, *range(5, 41), 1, 4, 3])
    kv.check()


def test_a_pool_that_was_used_up_has_a_record_of_each_block(pool):
    kv, face = pool(20, [80, 80])
    admit(face, 0, 80)
    assert (kv.num_records, kv.free_queue()) == (21, [])
    face.release(0)

    admit(face, 1, 12)
    assert (kv.block_table(1), kv.free_queue()) == ([20, 19, 18], [*range(17, 0, -1)])
    kv.check()


def test_blocks_without_a_hash_are_reused_first_and_the_tail_before_the_head(pool):
    kv, face = pool(6, [12, 6], enable_prefix_caching=False)
    admit(face, 0, 12)
    admit(face, 1, 6)
    face.release(1)
    face.release(0)

    # 4, 5 were freed as 5, 4 in front of 6; then 1, 2, 3 as 3, 2, 1 in front of all
    assert kv.free_queue() == [3, 2, 1, 5, 4, 6]


def test_blocks_with_a_hash_are_reused_last_and_the_tail_before_the_head(pool):
    kv, face = pool(5, [14])
    admit(face, 0, 14)
    face.release(0)

    # 1, 2, 3 are full and go behind 5, tail first; 4 holds 2 tokens of 4 and goes to the front
    assert kv.free_queue() == [4, 5, 3, 2, 1]


def test_in_0_10_all_blocks_go_to_the_back(pool):
    kv, face = pool(5, [14], append_unhashed=True)
    admit(face, 0, 14)
    face.release(0)

    assert kv.free_queue() == [5, 4, 3, 2, 1]


def test_a_shared_prefix_is_held_once(pool):
    kv, face = pool(9, [[(SYSTEM, 8), (records.own_stream(0), 4)], [(SYSTEM, 8), (records.own_stream(1), 4)]])
    admit(face, 0, 12)

    assert admit(face, 1, 12) == 2
    assert (kv.block_table(0), kv.block_table(1)) == ([1, 2, 3], [1, 2, 4])
    assert kv.free_blocks == 5


def test_a_shared_block_is_freed_after_its_last_owner(pool):
    kv, face = pool(9, [[(SYSTEM, 8)], [(SYSTEM, 12)]])
    admit(face, 0, 8)
    admit(face, 1, 12)
    face.release(0)
    assert kv.free_blocks == 6

    face.release(1)
    assert kv.free_blocks == 9
    assert kv.free_queue()[-3:] == [3, 2, 1]


def test_the_last_token_is_never_served_from_the_cache(pool):
    _, face = pool(9, [[(SYSTEM, 8)], [(SYSTEM, 9)]])
    admit(face, 0, 8)

    assert face.lookup(0, 8) == 1           # 8 tokens are 2 blocks, but the second holds the last token
    assert face.lookup(1, 9) == 2


def test_a_block_is_found_only_behind_the_same_prefix(pool):
    # The second block of both prompts is SYSTEM 0..3; what precedes it differs.
    _, face = pool(9, [[(DOCUMENT, 4), (SYSTEM, 4)], [(SYSTEM, 4), (SYSTEM, 4), (DOCUMENT, 1)],
                       [(DOCUMENT, 4), (SYSTEM, 4), (DOCUMENT, 1)]])
    admit(face, 0, 8)

    assert (face.lookup(1, 9), face.lookup(2, 9)) == (0, 2)


def test_tokens_that_a_request_generated_are_found_in_the_next_turn(pool):
    # 6 prompt tokens and 6 outputs, and then a prompt that repeats both
    _, face = pool(9, [[(SYSTEM, 6)], [(SYSTEM, 6), (records.output_stream(0), 6), (records.own_stream(1), 2)]])
    admit(face, 0, 12)

    assert face.lookup(1, 14) == 3


def test_only_full_blocks_of_known_text_are_found(pool):
    _, face = pool(9, [[(SYSTEM, 16)], [(SYSTEM, 16)]])
    assert face.allocate(0, 0, 16, known_tokens=11)
    assert face.lookup(1, 16) == 2

    face.cache(0, 12)
    assert face.lookup(1, 16) == 3


def test_a_free_block_can_be_hit_until_it_is_reused(pool):
    kv, face = pool(3, [[(SYSTEM, 8)], [(SYSTEM, 9)], 8])
    admit(face, 0, 8)
    face.release(0)
    assert (kv.free_queue(), face.lookup(1, 9)) == ([3, 2, 1], 2)

    admit(face, 2, 8)           # takes 3 and 2: the tail of the prefix is lost first
    assert face.lookup(1, 9) == 1
    assert (kv.take_evictions(), kv.evictions) == ([2], 1)


def test_a_hit_takes_a_block_out_of_the_free_queue(pool):
    kv, face = pool(4, [[(SYSTEM, 8)], [(SYSTEM, 9)]])
    admit(face, 0, 8)
    face.release(0)             # free: 3, 4, 2, 1
    admit(face, 1, 9)

    assert (kv.block_table(1), kv.free_queue()) == ([1, 2, 3], [4])


def test_of_two_blocks_with_the_same_text_the_first_is_found_as_long_as_it_is_there(pool):
    kv, face = pool(6, [[(SYSTEM, 4)], [(SYSTEM, 4)], [(SYSTEM, 5)], 16])
    admit(face, 0, 4)
    admit(face, 1, 4)           # its only block holds its last token: no hit, so block 2 is a second copy
    assert kv.num_cached_hashes == 1
    admit(face, 2, 5)
    assert kv.block_table(2) == [1, 3]
    face.release(2)

    face.release(0)             # free: 3, 4, 5, 6, 1; the next request takes the first four
    admit(face, 3, 16)
    assert kv.block_table(3) == [3, 4, 5, 6]
    admit(face, 2, 4)           # one block, no hit: takes block 1, which is then the second with this text
    assert kv.take_evictions() == [1]
    face.release(2)
    admit(face, 2, 5)
    assert kv.block_table(2) == [2, 1]
    kv.check()


def test_an_allocation_that_does_not_fit_changes_nothing(pool):
    kv, face = pool(4, [[(SYSTEM, 8)], [(SYSTEM, 21)]])
    admit(face, 0, 8)
    face.release(0)
    before = kv.free_queue()

    # 21 tokens are 6 blocks; 2 hits are there, but they are among the 4 free ones
    assert not face.allocate(1, 1, 21, hits=face.lookup(1, 21), known_tokens=21)
    assert (kv.free_queue(), kv.free_blocks, kv.block_table(1), kv.take_evictions()) == (before, 4, [], [])
    assert face.lookup(1, 21) == 2
    kv.check()


@pytest.mark.parametrize(("watermark", "fits"), [(0, True), (1, True), (2, False)])
def test_the_watermark_stays_free(pool, watermark, fits):
    _, face = pool(4, [12])

    assert face.allocate(0, 0, 12, watermark=watermark) == fits


@pytest.mark.parametrize(("full_tokens", "fits"), [(0, True), (16, True), (17, False)])
def test_the_full_text_must_fit_though_only_a_chunk_is_taken(pool, full_tokens, fits):
    kv, face = pool(4, [17])

    assert face.allocate(0, 0, 4, full_tokens=full_tokens, known_tokens=4) == fits
    assert kv.free_blocks == (3 if fits else 4)


@pytest.mark.parametrize(("blocks", "fits"), [(5, True), (4, False)])
def test_free_hits_count_against_the_full_text(pool, blocks, fits):
    # 20 tokens are 5 blocks: 2 free hits are taken out of the queue and 3 more must come from it
    _, face = pool(blocks, [[(SYSTEM, 8)], [(SYSTEM, 20)]])
    admit(face, 0, 8)
    face.release(0)

    assert face.allocate(1, 1, 12, hits=face.lookup(1, 20), full_tokens=20, known_tokens=12) == fits


def test_without_prefix_caching_nothing_is_found(pool):
    kv, face = pool(9, [[(SYSTEM, 8)], [(SYSTEM, 9)]], enable_prefix_caching=False)
    admit(face, 0, 8)

    assert (face.lookup(1, 9), kv.num_cached_hashes) == (0, 0)


def test_members_and_others_take_blocks_in_their_order(pool):
    kv, face = pool(9, [4, 4, 4])
    for row in range(3):
        admit(face, row, 4)
    # Iteration 0: requests 0 and 2 are members and need a block; request 1, between them, goes on by itself.
    face.join(0, phase=0, order=10)
    face.join(2, phase=0, order=30)
    assert face.due(0) == 2

    face.step_begin(0)
    face.step_before(20)
    assert face.allocate(1, 1, 5, known_tokens=5)
    face.step_before(40)

    assert [kv.block_table(slot) for slot in range(3)] == [[1, 4], [2, 5], [3, 6]]


def test_a_member_puts_the_block_that_it_fills_into_the_cache_at_once(pool):
    # 3 prompt tokens and an output fill the block in the next iteration
    _, face = pool(9, [[(SYSTEM, 3)], [(SYSTEM, 3), (records.output_stream(0), 2)]])
    admit(face, 0, 3)
    face.join(0, phase=1, order=0)          # in iteration 0 it has 3 tokens, so it needs a block in iteration 1
    assert face.lookup(1, 5) == 0

    face.step_begin(0)
    face.step_before(1)

    assert face.lookup(1, 5) == 1


def test_a_member_that_left_takes_no_more_blocks(pool):
    kv, face = pool(9, [4, 4])
    for row in range(2):
        admit(face, row, 4)
        face.join(row, phase=0, order=row)
    face.leave(0, phase=0)

    face.step_begin(0)
    face.step_before(2)

    assert (kv.block_table(0), kv.block_table(1)) == ([1], [2, 3])


def test_an_impossible_pool_is_refused():
    content = Content(workload_of([1]))
    for num_blocks, block_size in ((0, 4), (4, 0)):
        with pytest.raises(ValueError, match="at least 1"):
            PagedKV(num_blocks, block_size, content)


@pytest.mark.parametrize("prompt", [[(SYSTEM, 8), (DOCUMENT, 4)], [(SYSTEM, 6), (DOCUMENT, 6)]])
@pytest.mark.parametrize("cache", [PagedKV, BlisKV])
def test_equal_prompts_under_different_adapters_have_no_blocks_in_common(cache, prompt):
    # Three blocks each, of which an admission may find two: the last token is always computed. The third request finds
    # those of the second, which has its adapter; the last one those of the first, which has none either.
    workload = workload_of([prompt] * 5)
    workload.demands["adapter"] = [-1, 0, 0, 1, -1]
    kv = cache(20, 4, Content(workload))
    face = Face(kv, 5)

    assert [admit(face, row, 12) for row in range(5)] == [0, 0, 2, 0, 2]
    kv.check()
