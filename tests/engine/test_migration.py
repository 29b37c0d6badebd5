"""Requests that move, by timelines worked out by hand.

Every iteration takes 10 ms. A request of 100 prompt tokens that comes at 0 has its k-th token at 10 k ms; 99 + k tokens
are then in KV, so that 7 blocks of 16 tokens hold it up to its 13th token. A block takes 1 ms from replica to replica.
"""

import numpy as np
import pytest
from msgspec.structs import replace

from simulator.domain import records
from simulator.engine.operations.move_plan import MovePlan, Port
from simulator.results.journeys import moves_of
from simulator.scheduling.blis import Blis
from simulator.scheduling.vllm import VllmParameters
from support.migration import PORT, assert_all_free, serve
from support.workloads import plain_workload

MS = 1_000_000
WAYS = [{"fast_forward": fast, "tracks_identity": tables} for fast in (True, False) for tables in (False, True)]
every_way = pytest.mark.parametrize("way", WAYS, ids=str)


def one_request(outputs=50):
    return plain_workload(0, 100, outputs)


def moving(**options):
    return MovePlan(**({"ports": (PORT,), "last_stage_blocks": 2, "max_stages": 5} | options))


@every_way
def test_a_live_move_copies_while_the_request_runs_on(way):
    # At 105 ms 109 tokens are in KV: 6 full blocks are copied up to 111 ms. Then 110 tokens, 1 block to go: it leaves
    # with the iteration that ends at 120 ms, the block is there at 121 ms, and the idle replica begins at once.
    served = serve(one_request(), [(105, 0, 1)], plan=moving(), replicas=2, **way)
    assert served.token_ms[0] == [*range(10, 121, 10), *range(131, 502, 10)]
    assert served.journeys["downtime_ns"].tolist() == [1 * MS]
    assert served.journeys["migrations"].tolist() == [1]
    assert served.requests["replica"].tolist() == [1]
    assert served.requests["status"].tolist() == [records.COMPLETED]
    assert served.gaps == [(10 * MS, 48), (11 * MS, 1)]
    assert moves_of(served.run) == [(0, 0, 1, 105 * MS, 121 * MS)]
    assert_all_free(served)


@every_way
def test_a_blocking_move_takes_the_request_off_first(way):
    # It leaves at 110 ms with 110 tokens in 7 blocks, which are there at 117 ms.
    served = serve(one_request(), [(105, 0, 1)], plan=moving(mode="blocking"), replicas=2, **way)
    assert served.token_ms[0] == [*range(10, 111, 10), *range(127, 508, 10)]
    assert served.journeys["downtime_ns"].tolist() == [7 * MS]
    assert_all_free(served)


@every_way
def test_a_move_by_recomputation_queues_at_its_destination(way):
    # It leaves at 110 ms, and its 111 tokens are computed again in one iteration.
    served = serve(one_request(), [(105, 0, 1)], plan=moving(mode="recompute", latency_ns=3 * MS), replicas=2, **way)
    assert served.token_ms[0] == [*range(10, 111, 10), *range(123, 504, 10)]
    assert served.journeys["downtime_ns"].tolist() == [3 * MS]
    assert served.iterations["prefill_tokens"][served.iterations["replica"] == 1].tolist()[0] == 111
    assert served.requests["preemptions"].tolist() == [0]
    assert_all_free(served)


@every_way
def test_latency_comes_after_each_stage(way):
    # 6 blocks at 111 + 2 ms; it leaves at 120 ms, one block more at 121 + 2 ms.
    served = serve(one_request(), [(105, 0, 1)], plan=moving(latency_ns=2 * MS), replicas=2, **way)
    assert served.token_ms[0][11:13] == [120, 133]
    assert served.journeys["downtime_ns"].tolist() == [3 * MS]


@every_way
def test_stages_go_on_until_little_is_left(way):
    # A block takes 50 ms. Stage 1: 6 blocks, 105 to 405 ms. Then 139 tokens are in KV, 2 more blocks are full: to
    # 505 ms. Then 149 tokens, 9 full blocks and one begun, 2 to go: one more than may be left. The third stage copies
    # 1 block to 555 ms: 154 tokens, 1 block to go. The request leaves at 560 ms with 155 tokens.
    port = Port(block_bytes=50e6, inner_bytes_per_s=0.0, outer_bytes_per_s=1e9)
    served = serve(one_request(100), [(105, 0, 1)], plan=moving(ports=(port,), last_stage_blocks=1), replicas=2, **way)
    assert served.token_ms[0][55:58] == [560, 620, 630]
    assert served.journeys["downtime_ns"].tolist() == [50 * MS]


@every_way
def test_the_last_stage_allowed_is_the_last(way):
    # As above, but in the second stage it stands still: it leaves at 410 ms with 140 tokens in 9 blocks, 6 are there.
    port = Port(block_bytes=50e6, inner_bytes_per_s=0.0, outer_bytes_per_s=1e9)
    served = serve(one_request(100), [(105, 0, 1)], plan=moving(ports=(port,), max_stages=2), replicas=2, **way)
    assert served.token_ms[0][40:42] == [410, 570]
    assert served.journeys["downtime_ns"].tolist() == [150 * MS]


@every_way
def test_moves_to_one_replica_share_its_link(way):
    # Both leave at 110 ms, one with 7 blocks, one with 46 tokens in 3. Half the bandwidth each: 3 blocks take 6 ms, to
    # 116 ms; by then 3 of the 7 are through and the other 4 take 4 ms, to 120 ms. Replica 2 begins iterations at 10 k.
    workload = plain_workload([0, 0, 0], [100, 36, 100], [50, 50, 50])
    served = serve(workload, [(105, 0, 2), (105, 1, 2)], plan=moving(mode="blocking", max_in=2), replicas=3, **way)
    assert served.journeys["downtime_ns"].tolist() == [10 * MS, 6 * MS, 0]
    assert served.token_ms[0][10:12] == served.token_ms[1][10:12] == [110, 130]
    assert served.token_ms[2] == list(range(10, 501, 10))
    assert_all_free(served)


@every_way
def test_moves_over_unlike_links_do_not_share(way):
    workload = plain_workload([0] * 4, [100] * 4, [50] * 4)
    served = serve(workload, [(105, 0, 2), (105, 1, 3)], plan=moving(mode="blocking"), replicas=4, **way)
    assert served.journeys["downtime_ns"].tolist() == [7 * MS, 7 * MS, 0, 0]


@every_way
def test_replicas_of_one_scale_up_domain_use_its_fabric(way):
    port = Port(block_bytes=1e6, inner_bytes_per_s=7e9, outer_bytes_per_s=1e9, replicas_per_domain=2)
    workload = plain_workload([0] * 4, [100] * 4, [50] * 4)
    served = serve(workload, [(105, 0, 1), (105, 2, 0)], plan=moving(ports=(port,), mode="blocking"), replicas=4,
                   **way)
    assert served.journeys["downtime_ns"].tolist() == [1 * MS, 0, 7 * MS, 0]


@every_way
def test_a_request_stays_where_its_destination_has_no_room(way):
    # 7 blocks are to be had at replica 1, request 1 holds all of them.
    workload = plain_workload([0, 0], [100, 100], [10, 10])
    served = serve(workload, [(55, 0, 1)], plan=moving(), replicas=2, num_gpu_blocks=8, **way)
    assert served.requests["replica"].tolist() == [0, 1]
    assert served.token_ms[0] == list(range(10, 101, 10))
    assert served.counts == {"moved": 0, "aborted": 1, "refused": 0}
    assert_all_free(served)


@every_way
def test_a_request_that_completes_while_it_is_copied_frees_what_was_reserved(way):
    served = serve(one_request(11), [(105, 0, 1)], plan=moving(), replicas=2, **way)       # the copy ends at 111 ms
    assert served.requests["completed_ns"].tolist() == [110 * MS]
    assert served.requests["replica"].tolist() == [0]
    assert served.counts["aborted"] == 1
    assert_all_free(served)


@every_way
def test_a_client_may_give_up_while_its_request_stands_still(way):
    workload = one_request()
    workload.demands["deadline_ns"] = 112 * MS          # the blocks are there at 117 ms
    served = serve(workload, [(105, 0, 1)], plan=moving(mode="blocking"), replicas=2, **way)
    assert served.requests["status"].tolist() == [records.TIMED_OUT]
    assert served.requests["output_tokens"].tolist() == [11]
    assert served.journeys["downtime_ns"].tolist() == [2 * MS]
    assert_all_free(served)


@every_way
def test_a_preempted_request_does_not_move_on(way):
    # Round robin: requests 0 and 2 are at replica 0, each with 6 of 13 blocks. At 20 ms both need a seventh and 2,
    # which came last, is preempted while 5 blocks of it are copied, from 15 to 65 ms.
    workload = plain_workload([0, 0, 0], [95, 1, 95], [30, 1, 30])
    port = Port(block_bytes=10e6, inner_bytes_per_s=0.0, outer_bytes_per_s=1e9)
    served = serve(workload, [(15, 2, 1)], plan=moving(ports=(port,)), replicas=2, num_gpu_blocks=14, **way)
    assert served.requests["preemptions"].tolist() == [0, 0, 1]
    assert served.counts == {"moved": 0, "aborted": 1, "refused": 0}
    assert served.requests["output_tokens"].tolist() == [30, 1, 30]
    assert_all_free(served)


@every_way
def test_what_waits_moves_at_once(way):
    # One at a time: request 2 would wait at replica 0 until 500 ms.
    workload = plain_workload([0, 0, 0], [100, 100, 100], [50, 1, 5])
    served = serve(workload, [(25, 2, 1)], plan=moving(), parameters=VllmParameters(max_num_seqs=1), replicas=2, **way)
    assert served.requests["replica"].tolist() == [0, 1, 1]
    assert served.token_ms[2] == [35, 45, 55, 65, 75]
    assert served.requests["enqueued_ns"].tolist() == [0, 0, 0]
    assert_all_free(served)


@every_way
def test_who_arrives_waits_for_a_place_ahead_of_the_queue(way):
    # Request 0 is at replica 1 at 117 ms, where request 1 runs alone until 200 ms and request 3 waits.
    workload = plain_workload([0, 0, 600 * MS, 0], [100, 100, 1, 100], [50, 20, 1, 5])
    workload.requests["arrival_ns"] = [0, 0, 0, 0]
    served = serve(workload, [(105, 0, 1)], plan=moving(mode="blocking"), parameters=VllmParameters(max_num_seqs=1),
                   replicas=2, **way)
    assert served.token_ms[0][10:12] == [110, 210]
    assert served.requests["scheduled_ns"].tolist()[3] == served.requests["completed_ns"].tolist()[0]
    assert_all_free(served)


def test_what_is_cached_at_the_destination_is_not_copied():
    # Requests 0 and 1 share 64 tokens, 4 blocks, and are at different replicas. At 105 ms request 0 has 6 full blocks.
    workload = shared_workload()
    plan = moving(mode="blocking")
    served = serve(workload, [(105, 0, 1)], plan=plan, replicas=2, enable_prefix_caching=True)
    assert served.journeys["downtime_ns"].tolist() == [3 * MS, 0]
    assert_all_free(served)


def test_what_moved_is_cached_at_its_destination_and_stays_cached_at_its_source():
    # Request 0 moves at 110 ms; requests 2 and 3 have its first 64 tokens too and come when nobody runs any more.
    workload = shared_workload(4)
    workload.requests["arrival_ns"] = [0, 600 * MS, 700 * MS, 800 * MS]
    workload.demands["num_segments"][1] = 0
    served = serve(workload, [(105, 0, 1)], plan=moving(), replicas=2, enable_prefix_caching=True)
    assert served.requests["replica"].tolist() == [1, 1, 0, 1]
    assert served.requests["cached_tokens"].tolist() == [0, 0, 64, 64]


@pytest.mark.parametrize("identity", [None, True])
def test_a_request_that_comes_back_finds_the_blocks_that_it_left(identity):
    # It leaves replica 0 at 110 ms with 110 tokens in KV, 6 full blocks, is computed anew at replica 1, and is back at
    # 200 ms with 100 + 20 tokens: the 6 blocks are still there.
    served = serve(one_request(), [(105, 0, 1), (195, 0, 0)], plan=moving(mode="recompute"), replicas=2,
                   enable_prefix_caching=True, tracks_identity=identity)
    prompts = served.iterations[served.iterations["prefill_tokens"] > 0]
    assert list(zip(prompts["replica"].tolist(), prompts["prefill_tokens"].tolist(), strict=True)) == [
        (0, 100), (0, 120 - 6 * 16), (1, 111)]
    assert served.token_ms[0] == list(range(10, 501, 10))
    assert_all_free(served)


def test_a_replica_that_is_emptied_sends_its_requests_away_one_after_the_other():
    # Round robin: 0 and 2 at replica 0. Request 0 leaves at 10 ms, 100 tokens in 7 blocks, and is there at 17 ms.
    # Then request 2 leaves at 20 ms, with 7 blocks too, and is there at 27 ms, when replica 1 ends an iteration.
    workload = plain_workload([0, 0, 0], [100, 1, 100], [50, 1, 50])
    served = serve(workload, at=[(5, lambda migration, now_ns: migration.evacuate_by_migration(0, now_ns))],
                   plan=moving(mode="blocking"), replicas=2)
    assert served.requests["replica"].tolist() == [1, 1, 1]
    assert served.journeys["downtime_ns"].tolist() == [7 * MS, 0, 7 * MS]
    assert served.token_ms[0][:3] == [10, 27, 37]
    assert served.token_ms[2][:4] == [10, 20, 37, 47]
    assert_all_free(served)


def test_a_replica_that_is_left_alone_keeps_its_requests():
    workload = plain_workload([0, 0, 0], [100, 1, 100], [50, 1, 50])
    served = serve(workload, at=[(5, lambda migration, now_ns: migration.evacuate_by_migration(0, now_ns)),
                                 (15, lambda migration, _: migration.leave_alone(0))],
                   plan=moving(mode="blocking"), replicas=2)
    assert served.requests["replica"].tolist() == [1, 1, 0]


@every_way
def test_who_stands_still_goes_on_at_its_source_when_the_move_is_given_up(way):
    # It left at 110 ms, its blocks would be there at 117 ms; at 112 ms its idle replica begins at once.
    served = serve(one_request(), [(105, 0, 1)], at=[(112, lambda migration, now_ns: migration.abandon(1, now_ns))],
                   plan=moving(mode="blocking"), replicas=2, **way)
    assert served.token_ms[0] == [*range(10, 111, 10), *range(122, 503, 10)]
    assert served.journeys["downtime_ns"].tolist() == [2 * MS]
    assert served.journeys["migrations"].tolist() == [0]
    assert served.requests["replica"].tolist() == [0]
    assert_all_free(served)


def test_what_is_sent_to_a_replica_that_is_given_up_waits_there():
    # Without KV it would be there at 120 ms.
    served = serve(one_request(), [(105, 0, 1)], at=[(112, lambda migration, now_ns: migration.abandon(1, now_ns))],
                   plan=moving(mode="recompute", latency_ns=10 * MS), replicas=2)
    assert served.token_ms[0][10:12] == [110, 122]
    assert served.journeys["downtime_ns"].tolist() == [2 * MS]


@pytest.mark.parametrize("scheduler", [Blis])
def test_requests_of_other_schedulers_move_too(scheduler):
    # As in the first test: 6 blocks while it runs on, then one.
    served = serve(one_request(), [(105, 0, 1)], plan=moving(), replicas=2, scheduler=scheduler,
                   parameters=scheduler.Parameters())
    assert served.token_ms[0] == [*range(10, 121, 10), *range(131, 502, 10)]
    assert_all_free(served)


def shared_workload(count=2):
    """Return requests of 100 tokens, the first 64 of a stream that all share."""
    workload = plain_workload([0] * count, [100] * count, [50] * count)
    segments = np.zeros(2 * count, records.SEGMENT)
    for row in range(count):
        segments[2 * row] = (5 << 2, 64)
        segments[2 * row + 1] = ((row << 2) | 1, 36)
        workload.demands["segments_begin"][row], workload.demands["num_segments"][row] = 2 * row, 2
    return replace(workload, segments=segments)
