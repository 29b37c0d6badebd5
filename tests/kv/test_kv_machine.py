"""Random use of the KV caches against vLLM's and BLIS's rules in plain Python, whichever way blocks are taken."""
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kv.blis_pool_model import BlisPoolModel
from kv.pool_model import PoolModel
from kv.texts import text_of, workload_of
from simulator.domain import records
from simulator.kv.blis_sparse import SparseBlisKV
from simulator.kv.content import Content
from simulator.kv.counting import CountingKV
from simulator.kv.paged import PagedKV
from simulator.kv.sparse import SparseKV
from support.kv_faces import Face

NUM_SLOTS = 5
BEHIND_ALL = 2**62
STREAMS = [records.named_stream(0), records.named_stream(1), records.output_stream(0), records.own_stream(1)]
CHUNKS = st.just(2**20) | st.integers(1, 12)           # often the whole rest
LOOKAHEADS = st.just(0) | st.integers(0, 3)
PROMPTS = st.lists(
    st.integers(1, 12) | st.lists(st.tuples(st.sampled_from(STREAMS), st.integers(1, 8)), min_size=1, max_size=3),
    min_size=3, max_size=6)


def known_text(prompts, row, num_tokens, block_size):
    """Return what BLIS caches of a text: not the blocks that one output fills."""
    prompt = prompts[row]
    prompt_tokens = prompt if isinstance(prompt, int) else sum(tokens for _, tokens in prompt)
    return text_of(prompts, row, min(num_tokens, prompt_tokens) if block_size == 1 else num_tokens)


@dataclass
class Sequence:
    row: int
    order: int
    computed: int               # tokens in KV
    has_exact_blocks: bool      # none for lookahead
    is_member: bool = False


class KVMachine(RuleBasedStateMachine):
    """Admit, continue, group, step and release sequences as a scheduler would."""

    face = None                 # set by the test, like the options below
    counting = False
    sparse = False
    caching = True
    append_unhashed = False
    blis = False

    @initialize(num_blocks=st.integers(2, 12) | st.integers(10, 100), block_size=st.integers(1, 4), prompts=PROMPTS)
    def create(self, num_blocks, block_size, prompts):
        self.prompts = prompts
        workload = workload_of(prompts)
        self.requests = workload.requests
        self.model = PoolModel(num_blocks, block_size, self.caching, self.append_unhashed)
        if self.counting:
            kv = CountingKV(num_blocks, block_size)
        elif self.blis:
            kv = SparseBlisKV(num_blocks, block_size, Content(workload))
            self.model = BlisPoolModel(num_blocks, block_size)
        elif self.sparse:
            kv = SparseKV(num_blocks, block_size, Content(workload), append_unhashed=self.append_unhashed)
        else:
            kv = PagedKV(num_blocks, block_size, Content(workload), enable_prefix_caching=self.caching,
                         append_unhashed=self.append_unhashed)
            kv.log_evictions()
        self.kv, self.ours = kv, self.face(kv, NUM_SLOTS)
        self.block_size = block_size
        self.text_length = workload.requests["prompt_tokens"].tolist()
        self.done = set()       # rows of requests that will not come back
        self.sequences = {}     # slot -> Sequence, in order of admission
        self.iteration = 0
        self.admitted = 0

    def text(self, row, num_tokens=None):
        return text_of(self.prompts, row, self.text_length[row] if num_tokens is None else num_tokens)

    def known(self, row, num_tokens):
        return known_text(self.prompts, row, num_tokens, self.block_size) if self.blis else self.text(row, num_tokens)

    def idle_rows(self):
        running = {sequence.row for sequence in self.sequences.values()}
        return sorted(set(range(len(self.prompts))) - running - self.done)

    def slots(self, *, members):
        return [slot for slot, sequence in self.sequences.items() if sequence.is_member == members]

    def phase(self, slot):
        return (self.iteration - self.sequences[slot].computed) % self.block_size

    @precondition(lambda self: len(self.sequences) < NUM_SLOTS and self.idle_rows())
    @rule(data=st.data(), chunk=CHUNKS, lookahead=LOOKAHEADS, whole=st.booleans(), watermark=st.integers(0, 3))
    def admit(self, data, chunk, lookahead, whole, watermark):
        row = data.draw(st.sampled_from(self.idle_rows()))
        slot = data.draw(st.sampled_from(sorted(set(range(NUM_SLOTS)) - set(self.sequences))))
        length, hits = self.text_length[row], self.model.lookup(self.text(row))
        computed = len(hits) * self.block_size
        assert self.ours.lookup(row, length) == len(hits)
        computed += min(chunk, length - computed)
        limits = {"full_tokens": length if whole else 0, "watermark": watermark}
        fits = self.model.allocate(slot, self.known(row, computed), computed + lookahead, hits=hits, **limits)
        assert fits == self.ours.allocate(slot, row, computed + lookahead, hits=len(hits), known_tokens=computed,
                                          **limits)
        if fits:
            self.sequences[slot] = Sequence(row, self.admitted, computed, lookahead == 0)
            self.admitted += 1
            self.requests["scheduled_ns"][row] = 0

    def continue_by(self, slot, chunk, lookahead=0):
        sequence = self.sequences[slot]
        if sequence.computed == self.text_length[sequence.row]:         # it has sampled a token
            self.text_length[sequence.row] += 1
        computed = min(sequence.computed + chunk, self.text_length[sequence.row])
        fits = self.model.allocate(slot, self.known(sequence.row, computed), computed + lookahead)
        assert self.ours.allocate(slot, sequence.row, computed + lookahead, known_tokens=computed) == fits
        if fits:
            sequence.computed = computed
            sequence.has_exact_blocks = len(self.model.tables[slot]) == self.model.blocks_for(computed)

    @precondition(lambda self: self.slots(members=False))
    @rule(data=st.data(), chunk=CHUNKS, lookahead=LOOKAHEADS)
    def continue_alone(self, data, chunk, lookahead):
        self.continue_by(data.draw(st.sampled_from(self.slots(members=False))), chunk, lookahead)

    def joinable(self):
        return [slot for slot in self.slots(members=False) if self.sequences[slot].has_exact_blocks
                and self.sequences[slot].computed == self.text_length[self.sequences[slot].row]]

    @precondition(joinable)
    @rule(data=st.data())
    def join(self, data):
        slot = data.draw(st.sampled_from(self.joinable()))
        sequence = self.sequences[slot]
        self.text_length[sequence.row] += 1
        sequence.is_member = True
        self.ours.join(slot, self.phase(slot), sequence.order)

    @precondition(lambda self: self.slots(members=True))
    @rule(data=st.data())
    def leave(self, data):
        self.take_out(data.draw(st.sampled_from(self.slots(members=True))))

    def take_out(self, slot):
        self.ours.leave(slot, self.phase(slot))
        self.ours.settle(slot, self.sequences[slot].computed)
        self.sequences[slot].is_member = False

    @precondition(lambda self: self.sequences)
    @rule(data=st.data(), returns=st.sampled_from([True, True, True, False]))
    def release(self, data, returns):
        slot = data.draw(st.sampled_from(list(self.sequences)))
        if self.sequences[slot].is_member:
            self.take_out(slot)
        returns = returns or len(self.done) + 2 >= len(self.prompts)        # some always remain
        if not returns:
            self.done.add(self.sequences[slot].row)
            self.requests["status"][self.sequences[slot].row] = records.COMPLETED
        self.ours.release(slot, returns)
        self.model.release(slot)
        del self.sequences[slot]

    @precondition(lambda self: self.slots(members=True))
    @rule(chunk=st.just(0) | CHUNKS)
    def step(self, chunk):
        """Every member gains a token; between them, in order, the others are continued by a chunk (0: they wait)."""
        need = sum(self.sequences[slot].computed % self.block_size == 0 for slot in self.slots(members=True))
        assert self.ours.due(self.iteration % self.block_size) == need
        alone = self.slots(members=False) if chunk else []
        for slot in alone:
            sequence = self.sequences[slot]
            end = min(sequence.computed + chunk, self.text_length[sequence.row] + 1)
            need += max(self.model.blocks_for(end) - len(self.model.tables[slot]), 0)
        if need > len(self.model.free):
            return
        self.ours.step_begin(self.iteration % self.block_size)
        for slot, sequence in self.sequences.items():
            if sequence.is_member:
                self.extend_member(slot)
            elif slot in alone:
                self.ours.step_before(sequence.order)
                self.continue_by(slot, chunk)
        self.ours.step_before(BEHIND_ALL)
        self.iteration += 1

    def extend_member(self, slot):
        sequence = self.sequences[slot]
        sequence.computed += 1
        self.text_length[sequence.row] += 1
        assert self.model.allocate(slot, self.known(sequence.row, sequence.computed), sequence.computed)

    @precondition(lambda self: self.slots(members=True))
    @rule(count=st.integers(1, 9))
    def run(self, count):
        """The same for several iterations at once, members only."""
        members = self.slots(members=True)
        need = sum(self.model.blocks_for(self.sequences[slot].computed + count) - len(self.model.tables[slot])
                   for slot in members)
        if need > len(self.model.free):
            return
        self.ours.step_run(self.iteration % self.block_size, count)
        for _ in range(count):
            for slot in members:
                self.extend_member(slot)
        self.iteration += count

    @invariant()
    def agree(self):
        assert self.kv.free_blocks == len(self.model.free)
        self.kv.check(sum(map(len, self.model.tables.values())))
        if self.counting:
            return
        if not self.sparse:
            self.agree_on_blocks()
        for row in self.idle_rows():
            length = self.text_length[row]
            assert self.ours.lookup(row, length) == len(self.model.lookup(self.text(row)))

    def agree_on_blocks(self):
        assert self.kv.free_queue() == self.model.free
        for slot in range(NUM_SLOTS):
            assert self.kv.block_table(slot) == self.model.tables.get(slot, [])
        assert self.kv.num_cached_hashes == len(set(self.model.content.values()))

    def teardown(self):
        if not self.counting and not self.sparse and hasattr(self, "model"):
            assert self.kv.take_evictions() == self.model.evicted
            assert self.kv.evictions == len(self.model.evicted)


@pytest.mark.parametrize("options", [
    {"caching": True},
    {"caching": True, "append_unhashed": True},
    {"caching": False},
    {"caching": False, "append_unhashed": True},
    {"caching": False, "counting": True},
    {"sparse": True},
    {"sparse": True, "append_unhashed": True},
    {"sparse": True, "blis": True},
], ids=["prefix-caching", "prefix-caching-0.10", "no-caching", "no-caching-0.10", "counting", "sparse", "sparse-0.10",
        "sparse-blis"])
def test_the_cache_follows_the_rules(options):
    machine = type("Machine", (KVMachine,), {"face": Face, **options})
    run_state_machine_as_test(machine, settings=settings(
        max_examples=40, stateful_step_count=40, deadline=None, derandomize=True))
