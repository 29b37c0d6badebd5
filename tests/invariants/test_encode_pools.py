"""What holds in every run in which replicas of their own encode what is in prompts."""
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.domain import records
from support.encoding import encoders_of, random_case
from support.hand_over import serve

TIMES = ("queued_ns", "start_ns", "end_ns", "sent_ns", "transferred_ns")


def assert_sound(outcome, workload, plan):
    """Check what holds when all is over."""
    run, requests, encoders = outcome.run, outcome.requests, encoders_of(outcome)
    assert run.complete
    assert (requests["status"] >= records.COMPLETED).all()          # nobody is lost
    encoders.check()
    for group in encoders.groups:
        assert not group.view.account_array["in_flight"].any()
        assert not group.view.account_array["in_flight_tokens"].any()
    jobs = run.tables["encode_jobs"]
    for before, after in pairwise(TIMES):       # one after the other, or not at all
        assert ((jobs[after] < 0) | ((jobs[before] >= 0) & (jobs[after] >= jobs[before]))).all()
    assert (jobs["transferred_ns"][jobs["sent_ns"] >= 0] >= 0).all()
    served = requests["enqueued_ns"] >= 0                           # of P/D pairs the decode replica has it
    for row in np.flatnonzero(served):
        own = jobs[jobs["request"] == row]
        assert len(own) == workload.items.begins[row + 1] - workload.items.begins[row]
        assert (own["transferred_ns"] >= 0).all()
        assert requests["enqueued_ns"][row] >= own["transferred_ns"].max(initial=0)
    computed = jobs[(jobs["end_ns"] >= 0) & (jobs["hit"] == 0)]
    assert run.columns["encoded_tokens"].sum() == computed["embeddings"].sum()
    assert not any(row[14] for row in outcome.iterations)           # encoder_tokens: nobody else encodes


def assert_batches_fit(jobs, contents, plan):
    """Check budget, number and duration of each batch, and that links send one item after the other."""
    pools = [pool for pool in plan.pools for _ in range(pool.replicas)]
    largest = jobs["embeddings"].max(initial=0)
    begun = np.flatnonzero(jobs["end_ns"] >= 0)
    batches = {}
    for i in begun:
        batches.setdefault((int(jobs["replica"][i]), int(jobs["start_ns"][i]), int(jobs["end_ns"][i])), []).append(i)
    for (replica, start_ns, end_ns), rows in batches.items():
        pool, new = pools[replica], [i for i in rows if not jobs["hit"][i]]
        embeddings = int(jobs["embeddings"][new].sum())
        if pool.embedding_ns == 0.0 and pool.iteration_ns == 0.0:   # several batches of an instant look like one
            continue
        if end_ns > start_ns:
            assert len(rows) <= pool.max_jobs
            assert embeddings <= max(pool.max_embeddings, largest)
            assert len({contents[i] for i in new}) == len(new)
            assert end_ns - start_ns == pytest.approx(pool.iteration_ns + pool.embedding_ns * embeddings, abs=1)
    for replica, pool in enumerate(pools):
        sent = np.sort(jobs[(jobs["replica"] == replica) & (jobs["sent_ns"] >= 0)], order=["sent_ns", "transferred_ns"])
        left_ns = sent["transferred_ns"] - plan.latency_ns
        assert (sent["sent_ns"][1:] >= left_ns[:-1]).all()
        assert left_ns - sent["sent_ns"] == pytest.approx(
            sent["embeddings"] * pool.embedding_bytes / plan.bytes_per_s * 1e9, abs=1)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6))
def test_items_that_are_encoded_apart(seed):
    workload, case = random_case(seed)
    fast = serve(workload, **case)
    slow = serve(workload, fast_forward=False, **case)
    named = serve(workload, tracks_identity=True, **case)

    assert_sound(fast, workload, case["encode"])
    assert_batches_fit(encoders_of(fast).table, workload.items.table["content"], case["encode"])
    for other in (slow, named):
        assert (fast.requests == other.requests).all()
        assert (fast.run.tables["encode_jobs"] == other.run.tables["encode_jobs"]).all()
        assert sorted(fast.iterations) == sorted(other.iterations)
        assert fast.token_ms == other.token_ms


@pytest.mark.parametrize("seed", range(4))
def test_the_same_run_is_the_same(seed):
    workload, case = random_case(seed)
    one, other = serve(workload, **case), serve(workload, **case)

    assert one.requests.tobytes() == other.requests.tobytes()
    assert one.run.tables["encode_jobs"].tobytes() == other.run.tables["encode_jobs"].tobytes()


def test_the_cases_see_hits_time_outs_and_full_caches():
    runs = [(serve(workload, **case), workload) for workload, case in map(random_case, range(60))]
    jobs = [outcome.run.tables["encode_jobs"] for outcome, _ in runs]

    assert sum(each["hit"].sum() > 0 for each in jobs) > 20
    assert sum((each["start_ns"] < 0).any() for each in jobs) > 3           # taken back
    assert sum((each["start_ns"] > each["queued_ns"]).any() for each in jobs) > 30
