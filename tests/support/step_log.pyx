"""Record of every decision of a run."""
from libc.stdint cimport int32_t, int64_t

from simulator.core.clock cimport NEVER_NS
from simulator.domain.request cimport Request
from simulator.engine.replica.pipeline cimport newest, oldest
from simulator.engine.replica.replica cimport Replica
from simulator.scheduling.base cimport Scheduler
from simulator.domain.iteration cimport Batch, Entry

from simulator.domain import records
from simulator.kv.hybrid.cache import HybridKV
from simulator.kv.paged import PagedKV


WITH_TABLES = (PagedKV, HybridKV)   # their tables are recorded
OFTEN_CHECKED = 512            # blocks: larger pools are checked every 64 iterations, for check() visits each block


class IterationLimit(Exception):
    """The run reached `max_iterations`."""


class StepLog:
    """Observer that keeps a dict per decision that scheduled or preempted a request.

    limit : raise IterationLimit after this number of decisions that compute something; None: keep all.
        A decision that only preempts is kept and not counted: logs of the real scheduler leave it out.
    blocks : record block tables and queues of free blocks, too, with each decision.

    See `support.recording.Recording` for the contents of the dicts.
    """

    def __init__(self, limit=None, blocks=True):
        self.steps = []
        self._blocks = blocks
        self._open, self._last, self._failing, self._rejected = {}, {}, [], set()
        self._limit = limit
        self._num_iterations = 0

    def scheduled(self, Replica replica):
        """Note the batch just formed; called by the replica."""
        cdef const Batch* batch = replica.formed
        failing = _failing_rows(replica)
        is_over = batch.shape.num_sequences == 0 and replica.pipeline.num_in_flight == 0    # they leave at once
        if not is_over:
            self._failing += [row for row in failing if row not in self._failing]
        if batch.shape.num_sequences == 0 and batch.num_preempted == 0 and not _is_step(replica):
            return
        if batch.shape.num_sequences > 0:
            if self._limit is not None and self._num_iterations >= self._limit:
                raise IterationLimit()
            self._num_iterations += 1
        step = {"replica": replica.index, "t_ns": batch.start_ns, "duration_ns": 0}
        _describe_batch(replica, step)
        _describe_state(replica, step, self._blocks)
        self.steps.append(step)
        if is_over and failing:
            step["finished"] = failing
            _describe_end(replica.rank.scheduler.kv, step, self._blocks)
        if replica.rank.scheduler.copies:
            _describe_copies(replica, step)
            self._open.setdefault(replica.index, []).append(step)
            return
        self._last[replica.index] = step
        if batch.shape.num_sequences > 0:
            self._open.setdefault(replica.index, []).append(step)

    def ended(self, Replica replica):
        """Note the results of the oldest batch in flight; called by the replica."""
        cdef const Batch* batch = oldest(&replica.pipeline)
        step = self._open[replica.index][0]
        if not replica.rank.scheduler.copies:
            self._open[replica.index].pop(0)
        kv = replica.rank.scheduler.kv
        step["duration_ns"] = batch.duration_ns
        step.setdefault("begin_ns", batch.end_ns - batch.duration_ns)
        if batch.num_stages > 1:
            step["stages"] = [(batch.visits[i].start_ns, batch.visits[i].end_ns) for i in range(batch.num_stages)]
        step["finished"] = [row for row, _ in step["scheduled"] if _has_finished(replica, row, batch.end_ns)]
        rejected = [row for row in _rejected_rows(replica, batch) if row not in self._rejected]
        self._rejected |= set(rejected)
        step["finished"] += rejected
        failed = [row for row in self._failing if replica.rank.request(row).status == records.FAILED]
        step["finished"] += failed
        self._failing = [row for row in self._failing if row not in failed]
        _describe_end(kv, step, self._blocks)

    def reported(self, Replica replica):
        """Note the state of blocks after a tier has reported; called by the replica."""
        if replica.rank.scheduler.copies:
            step = self._open[replica.index].pop(0)
        else:
            step = self._last.pop(replica.index, None)
        if step is not None:
            _describe_end(replica.rank.scheduler.kv, step, self._blocks)
            if not step["scheduled"] and not replica.rank.scheduler.copies:     # it waited for the tier
                step["duration_ns"] = replica.wake_ns - step["t_ns"]
            reports = replica.rank.scheduler.transfers.take_log()
            step["came"] = [row for what, row, _ in reports if what == "came"]
            step["read"] = [row for what, row, _ in reports if what == "read"]


cdef bint _is_step(Replica replica) noexcept:
    """Return whether a step that computes nothing is recorded, as a tier acted or is about to."""
    if replica.rank.scheduler.copies:
        return replica.has_acted
    return replica.rank.scheduler.next_transfer_ns() < NEVER_NS or (
        replica.rank.scheduler.failed.size > 0 and replica.pipeline.num_in_flight == 0)


cdef list _failing_rows(Replica replica):
    """Return the requests that the scheduler cannot serve."""
    cdef Scheduler scheduler = replica.rank.scheduler
    return [scheduler.failed.rows[i] for i in range(scheduler.failed.size)]


cdef bint _has_finished(Replica replica, int32_t row, int64_t end_ns) except -1:
    """Return whether this iteration completed the replica's part of a request."""
    cdef const Request* request = replica.rank.request(row)
    return (request.status == records.COMPLETED
            and request.completed_ns == replica.rank.delivery.completed_ns(row, end_ns))


cdef list _rejected_rows(Replica replica, const Batch* batch):
    """Return the requests rejected with the token of this iteration."""
    return [batch.entries[i].row for i in range(batch.num_entries)
            if replica.rank.delivery.rejects(batch.entries[i].row) and not batch.entries[i].is_partial
            and replica.rank.request(batch.entries[i].row).status == records.REJECTED]


cdef object _describe_copies(Replica replica, dict step):
    """Add the tier's actions in the step, and the positions of blocks that are copied."""
    cdef const Batch* batch = replica.formed
    cdef Scheduler scheduler = replica.rank.scheduler
    step["launch_ns"] = step["begin_ns"] = batch.launch_ns
    if (batch.shape.num_sequences > 0 and replica.pipeline.num_in_flight > 0
            and newest(&replica.pipeline).shape.num_sequences > 0):
        step["begin_ns"] = max(batch.launch_ns, newest(&replica.pipeline).end_ns)
    step["end_ns"] = batch.end_ns
    if (copies := scheduler.tier.take_log()) is not None:
        step["copies"] = copies
    if hasattr(scheduler.kv, "block_table"):            # a tree has pages without names
        step["blocks"] = {scheduler.sequence(slot).row: scheduler.kv.block_table(slot)
                          for slot in (*scheduler.slots(), *scheduler.slots(scheduler.first_held()))}


cdef object _describe_end(kv, dict step, bint blocks):
    step["free_blocks_end"] = kv.free_blocks
    step["free_queue_end"] = kv.free_queue() if blocks and isinstance(kv, WITH_TABLES) else None


cdef object _describe_batch(Replica replica, dict step):
    """Add the contents of the batch to a step; `scheduled` follows the running list."""
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


cdef object _describe_state(Replica replica, dict step, bint blocks):
    """Add the state of scheduler and KV cache after the decision, and check the cache."""
    scheduler = replica.rank.scheduler
    kv = scheduler.kv
    step["running"] = scheduler.running_rows()
    step["waiting"] = scheduler.waiting.rows()
    if scheduler.transfers is not None:
        step["held"] = scheduler.held_rows()
        step["loads"] = [(row, tokens, what == "later") for what, row, tokens in scheduler.transfers.take_log()]
    if scheduler.encoder is not None:
        step["encoder"] = scheduler.encoder.encoded()
        step["encoder_evicted"] = scheduler.encoder.take_evictions()
        step["encoder_free"] = [scheduler.encoder.free, scheduler.encoder.reclaimable]
    step["free_blocks"] = kv.free_blocks
    paged = isinstance(kv, WITH_TABLES)
    step["evicted"] = kv.take_evictions() if paged else None
    step["cached_hashes"] = kv.num_cached_hashes if paged else None
    step["free_queue"] = kv.free_queue() if paged and blocks else None
    running = zip(step["running"], scheduler.slots())
    step["blocks"] = {row: kv.block_table(slot) for row, slot in running} if paged and blocks else None
    if paged and "held" in step:
        step["held_blocks"] = {row: kv.block_table(slot) for row, slot in zip(step["held"], scheduler.held_slots())}
    if paged and (kv.num_blocks <= OFTEN_CHECKED or replica.rank.row.iterations % 64 == 0):
        kv.check()
