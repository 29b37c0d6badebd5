"""Random use of the KV cache that holds blocks for programs, against its rules in plain Python."""
from random import Random

import numpy as np
import pytest

from kv.pool_model import PoolModel
from kv.texts import text_of, workload_of
from simulator.domain import records
from simulator.domain.kv_retention import Retention
from simulator.kv.content import Content
from simulator.kv.retaining import RetainingKV
from support.kv_faces import RetainingFace

NUM_SESSIONS = 4


class RetainingModel(PoolModel):
    """vLLM's pool with holds: session -> (key, session, blocks, the last given back first).

    row : of the request that allocates or was admitted. now_ns : start of the batch.
    """

    def __init__(self, num_blocks, block_size, retention, public_blocks):
        super().__init__(num_blocks, block_size)
        self.retention, self.public_blocks = retention, public_blocks
        self.most = int(retention.max_share * num_blocks)
        self.holds, self.rows = {}, {}
        self.row = self.now_ns = self.num_holds = self.found = self.expired = self.given_back = 0
        self.over_share = 0

    def is_held(self, block):
        return any(block in path for _, _, path in self.holds.values())

    def held(self):
        return [block for block in self.free if self.is_held(block)]

    def drop(self, session):
        """Take the last block off a path; return whether it can be reused now."""
        path = self.holds[session][2]
        block = path.pop()
        if not path:
            del self.holds[session]
        if self.is_held(block) or block not in self.free:
            return False
        self.free.remove(block)
        self.free.append(block)
        return True

    def end(self, session):
        while session in self.holds:
            self.drop(session)

    def give_back(self):
        while not self.drop(min(self.holds.values())[1]):
            pass

    def allocate(self, slot, known_text, slots, *, hits=(), full_tokens=0, watermark=0):
        have, revived = len(self.tables.get(slot, [])) + len(hits), [block for block in hits if block in self.free]
        need = max(self.blocks_for(slots) - have, self.blocks_for(full_tokens) - have, 0)
        if need + len(revived) + watermark > len(self.free):
            return False
        if slot not in self.tables:
            self.rows[slot] = self.row
            for session in sorted(self.holds, key=lambda session: self.holds[session][:2]):
                if self.retention.policy == "ttl" and self.holds[session][0] <= self.now_ns:
                    self.expired += 1
                    self.end(session)
            self.found += self.row % NUM_SESSIONS in self.holds
            self.end(self.row % NUM_SESSIONS)
        return super().allocate(slot, known_text, slots, hits=hits, full_tokens=full_tokens, watermark=watermark)

    def _take(self):
        if len(self.held()) == len(self.free):
            self.given_back += 1
            self.give_back()
        block = next(block for block in self.free if not self.is_held(block))
        self.free.remove(block)
        self.free.insert(0, block)
        return super()._take()

    def release(self, slot):
        row, retention = self.rows[slot], self.retention
        path = [block for block in self.tables[slot][:self.public_blocks(row)] if block in self.content]
        super().release(slot)
        end_ns, tool_ns = int(retention.requests["completed_ns"][row]), int(retention.tool_ns[row])
        if retention.requests["status"][row] != records.COMPLETED or not path or tool_ns < 0:
            return
        key = {"ttl": end_ns + retention.ttl_ns, "pin": end_ns, "predicted": -(end_ns + tool_ns)}[retention.policy]
        self.end(row % NUM_SESSIONS)
        self.holds[row % NUM_SESSIONS] = key, row % NUM_SESSIONS, path
        self.num_holds += 1
        while len(self.held()) > self.most:
            self.over_share += 1
            self.give_back()


class Driver:
    """Turns of programs that share a beginning, served at random: each step acts on the cache and on the model."""

    def __init__(self, face, seed, policy, max_share):
        self.rng = rng = Random(seed)
        self.prompts = [[(records.named_stream(0), rng.randint(2, 6)), (records.named_stream(1 + row % NUM_SESSIONS),
                                                                         4 + 3 * (row // NUM_SESSIONS))]
                        for row in range(NUM_SESSIONS * 8)]
        workload, self.now_ns = workload_of(self.prompts), 0
        workload.demands["session"] = np.arange(len(self.prompts)) % NUM_SESSIONS
        tool_ns = np.array([rng.randint(0, 60) for _ in self.prompts[NUM_SESSIONS:]] + [-1] * NUM_SESSIONS)
        num_blocks, self.requests = rng.randint(14, 40), workload.requests
        retention = Retention(policy, 30, max_share, self.requests, workload.demands, tool_ns,
                              np.zeros(len(self.prompts), np.int64))
        self.kv = RetainingKV(num_blocks, 2, Content(workload))
        self.kv.retain_by(retention)
        self.ours = face(self.kv, NUM_SESSIONS)
        self.model = RetainingModel(num_blocks, 2, retention, lambda row: self.length(row) // 2)
        self.next_row, self.running = list(range(NUM_SESSIONS)), {}     # of each session; slot -> (row, tokens in KV)

    def length(self, row):
        return sum(tokens for _, tokens in self.prompts[row])

    def step(self):
        self.now_ns += self.rng.randint(0, 5)
        self.model.now_ns = self.now_ns
        self.ours.at(self.now_ns)
        session = self.rng.randrange(NUM_SESSIONS)          # its slot, too
        if session not in self.running:
            self.admit(session)
        elif self.rng.random() < 0.5:
            self.grow(session, *self.running[session])
        else:
            self.leave(session, self.running.pop(session)[0], self.rng.random() < 0.2)
        assert self.kv.free_blocks == len(self.model.free)
        self.kv.check(sum(map(len, self.model.tables.values())))
        for row in self.next_row:
            if row < len(self.prompts) and row % NUM_SESSIONS not in self.running:
                assert self.ours.lookup(row, self.length(row)) == len(self.model.lookup(self.text(row)))

    def text(self, row, num_tokens=None):
        return text_of(self.prompts, row, self.length(row) if num_tokens is None else num_tokens)

    def admit(self, session):
        row = self.model.row = self.next_row[session]
        if row >= len(self.prompts):
            return
        length, hits = self.length(row), self.model.lookup(self.text(row))
        assert self.ours.lookup(row, length) == len(hits)
        fits = self.model.allocate(session, self.text(row), length, hits=hits)
        assert fits == self.ours.allocate(session, row, length, hits=len(hits), known_tokens=length)
        if fits:
            self.running[session] = row, length

    def grow(self, session, row, tokens):
        tokens += self.rng.randint(1, 4)
        fits = self.model.allocate(session, self.text(row, tokens), tokens)
        assert fits == self.ours.allocate(session, row, tokens, known_tokens=tokens)
        if fits:
            self.running[session] = row, tokens

    def leave(self, session, row, is_preempted):
        if not is_preempted:
            self.requests["status"][row], self.requests["completed_ns"][row] = records.COMPLETED, self.now_ns
            self.next_row[session] += NUM_SESSIONS
        else:
            self.requests["preemptions"][row] += 1
        self.ours.release(session, is_preempted)
        self.model.release(session)

    def counts(self):
        kv, model = self.kv, self.model
        found = kv.num_holds, kv.num_found, kv.num_expired, kv.blocks_given_back, kv.blocks_over_share
        assert found == (model.num_holds, model.found, model.expired, model.given_back, model.over_share)
        assert (kv.num_open, kv.num_set_aside) == (len(model.holds), len(model.held()))
        return found


@pytest.mark.parametrize(("policy", "max_share", "nonzero"), [
    ("ttl", 1.0, (0, 1, 2, 3)), ("pin", 1.0, (0, 1, 3)), ("predicted", 1.0, (0, 1, 3)), ("ttl", 0.3, (0, 1, 4))])
def test_the_cache_follows_the_rules(policy, max_share, nonzero):
    totals = np.zeros(5, int)
    for seed in range(25):
        driver = Driver(RetainingFace, seed, policy, max_share)
        for _ in range(100):
            driver.step()
        totals += driver.counts()
    assert (totals[list(nonzero)] > 20).all()           # each way for a hold to end was tried
