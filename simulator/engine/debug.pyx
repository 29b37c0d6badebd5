"""The debug face: every decision of a run, for tests and for the curious."""
from libc.stdint cimport int32_t

from simulator.core.clock cimport NEVER_NS
from simulator.engine.replica.pipeline cimport oldest
from simulator.engine.replica.replica cimport Replica
from simulator.scheduling.base cimport Scheduler
from simulator.domain.iteration cimport Batch, Entry

from simulator.domain import records
from simulator.kv.hybrid.cache import HybridKV
from simulator.kv.paged import PagedKV


WITH_TABLES = (PagedKV, HybridKV)   # they are asked for them here
OFTEN_CHECKED = 512            # blocks; larger pools are checked every 64 iterations, for check() visits each block


class IterationLimit(Exception):
    """The run reached `max_iterations`."""


class StepLog:
    """Observer that keeps a dict per decision that scheduled or preempted something.

    limit : raise IterationLimit instead of keeping more decisions that compute something than this; None: keep all.
        A decision that only preempts is kept and not counted: logs of the real scheduler leave it out.

    `simulator.debug.Recording` says what the dicts hold.
    """

    def __init__(self, limit=None):
        self.steps = []
        self._open, self._last = {}, {}
        self._limit = limit
        self._num_iterations = 0

    def scheduled(self, Replica replica):
        """Note the batch just formed; called by the replica."""
        cdef const Batch* batch = replica.formed
        if (batch.shape.num_sequences == 0 and batch.num_preempted == 0
                and replica.rank.scheduler.next_transfer_ns() == NEVER_NS):
            return
        if batch.shape.num_sequences > 0:
            if self._limit is not None and self._num_iterations >= self._limit:
                raise IterationLimit()
            self._num_iterations += 1
        step = {"replica": replica.index, "t_ns": batch.start_ns, "duration_ns": 0}
        _describe_batch(replica, step)
        _describe_state(replica, step)
        self.steps.append(step)
        self._last[replica.index] = step
        if batch.shape.num_sequences > 0:
            self._open.setdefault(replica.index, []).append(step)

    def ended(self, Replica replica):
        """Note what the first batch in flight brought; called by the replica."""
        cdef const Batch* batch = oldest(&replica.pipeline)
        step = self._open[replica.index].pop(0)
        kv = replica.rank.scheduler.kv
        step["duration_ns"] = batch.duration_ns
        if batch.num_stages > 1:
            step["stages"] = [(batch.visits[i].start_ns, batch.visits[i].end_ns) for i in range(batch.num_stages)]
        step["finished"] = [row for row, _ in step["scheduled"]
                            if replica.rank.request(<int32_t>row).status == records.COMPLETED
                            and (
                                replica.rank.request(<int32_t>row).completed_ns
                                == replica.rank.delivery.completed_ns(row, batch.end_ns))]
        _describe_end(kv, step)

    def reported(self, Replica replica):
        """Note how the blocks stand once a tier has reported; called by the replica."""
        step = self._last.pop(replica.index, None)
        if step is not None:
            _describe_end(replica.rank.scheduler.kv, step)
            if not step["scheduled"]:           # nothing executed: it waited for this
                step["duration_ns"] = replica.wake_ns - step["t_ns"]
            reports = replica.rank.scheduler.transfers.take_log()
            step["came"] = [row for what, row, _ in reports if what == "came"]
            step["read"] = [row for what, row, _ in reports if what == "read"]


cdef object _describe_end(kv, dict step):
    step["free_blocks_end"] = kv.free_blocks
    step["free_queue_end"] = kv.free_queue() if isinstance(kv, WITH_TABLES) else None


cdef object _describe_batch(Replica replica, dict step):
    """Add what the batch does to a step; `scheduled` follows the running list."""
    cdef const Batch* batch = replica.formed
    cdef Scheduler scheduler = replica.rank.scheduler
    cdef int32_t i, slot
    cdef const Entry* entry
    tokens, hits, drafts = {}, {}, {}
    for i in range(batch.num_entries):
        entry = &batch.entries[i]
        tokens[entry.slot] = entry.tokens
        if entry.is_admission:
            hits[entry.row] = scheduler.sequence(entry.slot).num_computed - entry.tokens
        if entry.drafts:
            drafts[entry.row] = entry.drafts
    scheduled = []
    for slot in scheduler.slots():
        if scheduler.sequence(slot).is_member:
            if (batch.num_members and not scheduler.sequence(slot).is_starved
                    and scheduler.sequence(slot).group == scheduler.group):
                scheduled.append((scheduler.sequence(slot).row, scheduler.turn_tokens))
                if scheduler.turn_tokens > 1:
                    drafts[scheduler.sequence(slot).row] = scheduler.turn_tokens - 1
        elif slot in tokens:
            scheduled.append((scheduler.sequence(slot).row, tokens[slot]))
    step["scheduled"] = scheduled
    step["hits"] = hits
    step["drafts"] = drafts
    step["preempted"] = [batch.preempted[i].row for i in range(batch.num_preempted)]


cdef object _describe_state(Replica replica, dict step):
    """Add how scheduler and KV cache stand after the decision, and check the latter."""
    scheduler = replica.rank.scheduler
    kv = scheduler.kv
    step["running"] = scheduler.running_rows()
    step["waiting"] = scheduler.waiting.rows()
    if scheduler.transfers is not None:
        step["held"] = scheduler.held_rows()
        step["loads"] = [(row, tokens, what == "later") for what, row, tokens in scheduler.transfers.take_log()]
    step["free_blocks"] = kv.free_blocks
    paged = isinstance(kv, WITH_TABLES)
    step["evicted"] = kv.take_evictions() if paged else None
    step["cached_hashes"] = kv.num_cached_hashes if paged else None
    step["free_queue"] = kv.free_queue() if paged else None
    running = zip(step["running"], scheduler.slots())
    step["blocks"] = {row: kv.block_table(slot) for row, slot in running} if paged else None
    if paged and (kv.num_blocks <= OFTEN_CHECKED or replica.rank.row.iterations % 64 == 0):
        kv.check()
