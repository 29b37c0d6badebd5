"""Single operations of the data structures, in loops without the GIL."""
import time
from statistics import median

import numpy as np
import pytest
from pairs import cpu_s

from simulator.domain import records
from simulator.workload.build import build_workload
from simulator.workload.columns import Columns, Prompts, in_arrival_order

ROUNDS = 7
pytestmark = pytest.mark.benchmark(group="operations", timer=time.process_time)


def workload(num_requests, prompt_tokens=16, num_prompts=0):
    """Return requests 1 ns apart; each prompt is one of `num_prompts`, in turn, or for 0 its own."""
    rows = np.arange(num_requests)
    tokens = np.full(num_requests, prompt_tokens)
    prompts = None
    if num_prompts:
        prompts = Prompts(np.ones_like(rows), records.named_stream(rows % num_prompts), tokens)
    return build_workload(in_arrival_order(Columns(rows, tokens, np.ones_like(rows), prompts=prompts)))


def ns_per_operation(benchmark, loop, count):
    """Time `loop.run(count)`; return the median in ns an operation."""
    loop.run(count // 10)       # warm caches
    times_s = []
    benchmark.pedantic(lambda: times_s.append(cpu_s(lambda: loop.run(count))), rounds=ROUNDS)
    ns = 1e9 * median(times_s) / count
    benchmark.extra_info["ns_per_operation"] = round(ns, 2)
    return ns


@pytest.mark.parametrize("size", [16, 1024])
def test_event_queue_pop_and_push(size, benchmark, operations, report):
    ns = ns_per_operation(benchmark, operations.EventQueueLoop(size), 1_000_000)
    report.add(f"event queue, {size} events", f"{ns:.1f} ns", "", "pop and push")


@pytest.mark.parametrize("size", [64, 512])
def test_wake_heap_top_and_set(size, benchmark, operations, report):
    ns = ns_per_operation(benchmark, operations.WakeHeapLoop(size), 1_000_000)
    report.add(f"wake heap, {size} replicas", f"{ns:.1f} ns", "", "find the first and move it")


@pytest.mark.parametrize("size", [32, 256])
def test_finish_heap_pop_and_push(size, benchmark, operations, report):
    ns = ns_per_operation(benchmark, operations.FinishHeapLoop(size), 1_000_000)
    report.add(f"finish heap, {size} sequences", f"{ns:.1f} ns", "", "pop and push")


@pytest.mark.parametrize("by_priority", [False, True], ids=["fcfs", "priority"])
def test_waiting_queue_pop_and_push(by_priority, benchmark, operations, report):
    size, count = 1000, 200_000
    loop = operations.WaitingQueueLoop(workload(size + count * (ROUNDS + 1)), size, by_priority)    # no row twice
    ns = ns_per_operation(benchmark, loop, count)
    name = "priority" if by_priority else "fcfs"
    report.add(f"waiting queue, {name}, {size} requests", f"{ns:.1f} ns", "", "pop and push")


@pytest.mark.parametrize("caching", [False, True], ids=["plain", "caching"])
def test_allocator_release_and_allocate(caching, benchmark, operations, report):
    slots, blocks = 100, 60         # of 16 tokens: texts of 960 tokens
    loop = operations.AllocatorLoop(workload(slots), 8000, slots, blocks, caching)
    ns = ns_per_operation(benchmark, loop, 20_000)
    assert loop.free_blocks == 8000 - slots * blocks
    name = "with prefix caching" if caching else "without prefix caching"
    report.add(f"allocator, {name}", f"{ns / blocks:.1f} ns a block", "", f"release and allocate {blocks} blocks")


@pytest.mark.parametrize("num_cached", [8, 0], ids=["hit", "miss"])
def test_prefix_cache_lookup(num_cached, benchmark, operations, report):
    num_prompts, blocks = 8, 64
    loop = operations.LookupLoop(workload(1000, blocks * 16 + 1, num_prompts), 8000, num_cached, blocks * 16 + 1)
    ns = ns_per_operation(benchmark, loop, 50_000)
    assert (loop.blocks_found > 0) == (num_cached > 0)
    if num_cached:
        assert loop.blocks_found == blocks * 50_000 * ROUNDS + blocks * 5_000
        report.add("prefix cache, hit", f"{ns / blocks:.1f} ns a block", "", f"{blocks} blocks found")
    else:
        report.add("prefix cache, miss", f"{ns:.1f} ns", "", "the first block is not there")
