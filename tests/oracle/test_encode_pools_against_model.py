"""Replicas that encode agree with a plain model of them, given who got what and when, on random scenarios."""
import numpy as np
import pytest

from support.encoding import encoders_of, random_case
from support.hand_over import serve

SEEDS = range(150)


class Replica:
    """One replica: batches in order, a cache that drops the oldest of what nobody computes with, a link."""

    def __init__(self, pool, plan, largest):
        self.pool, self.plan = pool, plan
        self.budget, self.size = max(pool.max_embeddings, largest), max(pool.cache_embeddings, largest)
        self.cache, self.users, self.unused = {}, {}, []        # content -> size; -> jobs; contents, oldest first

    def serve(self, jobs):
        """Return (start, end, sent, transferred, hit) of each; jobs : (queued_ns, content, embeddings), in order."""
        times, free_ns, link_ns, behind = [], 0, 0, 0
        while behind < len(jobs):
            start_ns = max(free_ns, jobs[behind][0])
            batch, computed = self.batch([job for job in jobs[behind:] if job[0] <= start_ns])
            end_ns = free_ns = start_ns + self.rounded(
                self.pool.iteration_ns + self.pool.embedding_ns * computed)
            for (_, content, embeddings), hit in batch:
                self.users[content] -= 1
                if self.users[content] == 0:
                    self.unused.append(content)
                sent_ns = max(end_ns, link_ns)
                link_ns = sent_ns + self.rounded(
                    self.pool.embedding_bytes / self.plan.bytes_per_s * 1e9 * embeddings)
                times.append((start_ns, end_ns, sent_ns, link_ns + self.plan.latency_ns, hit))
            behind += len(batch)
        return times

    def batch(self, waiting):
        """Return those of the queue that are a batch, with whether each is a hit, and what it computes."""
        batch, computed = [], 0
        for job in waiting[:self.pool.max_jobs]:
            _, content, embeddings = job
            hit = content in self.cache
            if not hit:
                taken = sum(self.cache.values())
                idle = sum(self.cache[each] for each in self.unused)
                if embeddings > self.budget - computed or embeddings > self.size - taken + idle:
                    break
                while embeddings > self.size - sum(self.cache.values()):
                    del self.cache[self.unused.pop(0)]
                self.cache[content], computed = embeddings, computed + embeddings
            elif content in self.unused:
                self.unused.remove(content)
            self.users[content] = self.users.get(content, 0) + 1
            batch.append((job, hit))
        return batch, computed

    @staticmethod
    def rounded(ns):
        return int(np.floor(ns + 0.5))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_model_finds_no_fault(seed):
    workload, case = random_case(seed, deadlines=False)
    jobs, plan = encoders_of(serve(workload, **case)).table, case["encode"]
    contents, largest = workload.items.table["content"], workload.items.largest
    replicas = [pool for pool in plan.pools for _ in range(pool.replicas)]

    assert (jobs["transferred_ns"] >= 0).all()
    for number, pool in enumerate(replicas):
        own = np.flatnonzero(jobs["replica"] == number)
        own = own[np.argsort(jobs["queued_ns"][own], kind="stable")]
        expected = Replica(pool, plan, largest).serve(
            [(int(jobs["queued_ns"][i]), int(contents[i]), int(jobs["embeddings"][i])) for i in own])
        found = jobs[["start_ns", "end_ns", "sent_ns", "transferred_ns", "hit"]][own].tolist()
        assert found == [(*times, int(hit)) for *times, hit in expected]


def test_the_scenarios_crowd_the_replicas():
    tables = [encoders_of(serve(workload, **case)).table
              for workload, case in (random_case(seed, deadlines=False) for seed in SEEDS)]
    assert sum(bool((jobs["start_ns"] > jobs["queued_ns"]).any()) for jobs in tables) > 60
    assert sum(bool(jobs["hit"].any()) for jobs in tables) > 60
