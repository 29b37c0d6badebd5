"""Runs of blocks against a cache that lists each block by itself: the same hits and free blocks at random use."""
import random

import numpy as np
import pytest

from kv.texts import workload_of
from simulator.domain import records
from simulator.domain.items import Items
from simulator.kv.content import Content
from simulator.kv.sparse import SparseKV
from support.kv_faces import Face

NUM_SLOTS = 4
OPTIONS = [{}, {"hashes_ahead": 1}, {"drops_last_hit": True}, {"append_unhashed": True}]


def drawn_prompts(draw):
    """Return prompts: short ids, long ones, turns that begin with an earlier prompt and its answer."""
    prompts = []
    for row in range(draw.randint(3, 7)):
        pieces = []
        if prompts and draw.random() < 0.6:
            before = draw.randrange(row)
            pieces = prompts[before][:draw.randint(0, len(prompts[before]))]
            if draw.random() < 0.5:
                pieces = [*prompts[before], (records.output_stream(before), draw.randint(1, 9))]
        most = draw.choice([2, 8, 20])
        pieces = pieces + [(records.named_stream(draw.randrange(3)), draw.randint(1, most))
                           for _ in range(draw.randint(0 if pieces else 1, 4))]
        prompts.append([*pieces, (records.own_stream(row), draw.randint(1, 6))] if draw.random() < 0.3 else pieces)
    return prompts


def drawn_items(draw, lengths):
    """Return up to three items in each prompt, often of equal content."""
    begins, table = [0], []
    for length in lengths:
        offsets = sorted(draw.sample(range(length), min(length, draw.choice([0, 0, 1, 3]))))
        table += [(draw.randrange(2), offset, 1) for offset in offsets]
        begins.append(len(table))
    return Items(np.array(begins, np.int64), np.array(table, records.ITEM), 2)


class Pair:
    """One scene on two caches."""

    def __init__(self, face, seed):
        self.draw = draw = random.Random(seed)
        workload = workload_of(drawn_prompts(draw))
        self.length = workload.requests["prompt_tokens"].tolist()
        workload.demands["adapter"] = [draw.choice([-1, -1, -1, 0]) for _ in self.length]
        if draw.random() < 0.3:
            workload.items = drawn_items(draw, self.length)
        self.block_size, num_blocks = draw.randint(1, 4), draw.randint(4, 60)
        caches = [SparseKV(num_blocks, self.block_size, Content(workload), **OPTIONS[seed % len(OPTIONS)])
                  for _ in range(2)]
        caches[1].follow()                  # followers see each block
        self.faces = [face(kv, NUM_SLOTS) for kv in caches]
        self.running = {}                   # slot -> [row, computed]

    def both(self, name, *args, **options):
        """Return what both caches answer."""
        first, second = (getattr(face, name)(*args, **options) for face in self.faces)
        assert first == second, name
        return first

    def idle(self):
        return [row for row in range(len(self.length)) if all(row != it[0] for it in self.running.values())]

    def admit(self):
        slots, rows = [slot for slot in range(NUM_SLOTS) if slot not in self.running], self.idle()
        if not slots or not rows:
            return
        slot, row = self.draw.choice(slots), self.draw.choice(rows)
        hits = self.both("lookup", row, self.length[row])
        computed = hits * self.block_size
        computed += min(self.draw.choice([1, 3, 1000]), self.length[row] - computed)
        if self.both("allocate", slot, row, computed, hits=hits, known_tokens=computed):
            self.running[slot] = [row, computed]

    def go_on(self):
        if not self.running:
            return
        slot = self.draw.choice(list(self.running))
        row, computed = self.running[slot]
        self.length[row] += computed == self.length[row]        # it has sampled a token
        computed = min(computed + self.draw.choice([1, 5, 1000]), self.length[row])
        if self.both("allocate", slot, row, computed, known_tokens=computed):
            self.running[slot][1] = computed

    def leave(self):
        if self.running:
            slot = self.draw.choice(list(self.running))
            self.both("release", slot, True)
            del self.running[slot]

    def agree(self):
        first, second = self.faces
        assert first.kv.free_blocks == second.kv.free_blocks
        for row in self.idle():
            self.both("lookup", row, self.length[row])


@pytest.mark.parametrize("first_seed", range(4))
def test_runs_decide_as_single_blocks_do(first_seed):
    for seed in range(first_seed * 50, first_seed * 50 + 50):
        pair = Pair(Face, seed)
        for _ in range(60):
            pair.draw.choice([pair.admit, pair.admit, pair.go_on, pair.go_on, pair.go_on, pair.leave])()
            pair.agree()
        held = sum(-(-computed // pair.block_size) for _, computed in pair.running.values())
        for face in pair.faces:
            face.kv.check(held)
