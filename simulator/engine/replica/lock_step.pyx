"""Ranks in lock step: attention data parallelism, whose mixture-of-experts layers all ranks enter together.

Each rank is a replica with a scheduler and a KV cache of its own: routers choose among ranks, and views, accounts and
results number them as replicas. What they share is the beat. All form their batches at the same instant, an iteration
lasts as `LatencyModel.step_ns` says of all batches together, a rank without tokens executes a dummy batch, and what
arrives meanwhile waits for the end. Every `sync_interval` iterations, and after the first, the ranks agree on whether
anybody has unfinished requests; until then they go on with dummy batches, and an iteration in which all batches are
dummies lasts as one token of a decoding request does.

Source: vLLM 0.32.0, vllm/v1/engine/core.py, DPEngineCoreProc.run_busy_loop and _has_global_unfinished_reqs;
vllm/v1/worker/gpu_model_runner.py, execute_dummy_batch. The messages that wake sleeping ranks take no time here.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.domain.batch cimport BatchShape
from simulator.engine.replica.beat cimport Beat
from simulator.engine.replica.pipeline cimport oldest
from simulator.engine.replica.replica cimport Replica
from simulator.engine.replica.run_ahead cimport (
    END_OF_CLOCK_NS, MAX_RUN, RunAhead, cut_run, forget_fault, free_run, grow_run)
from simulator.latency.base cimport LONGEST_ITERATION_NS, LatencyModel


@cython.final
cdef class LockStep(Beat):
    """The beat of some replicas.

    replicas : list of Replica of one pool, which have it as their beat from now on.
    latency : LatencyModel of the pool.
    sync_interval : iterations from one agreement to the next.
    """

    cdef list _owners
    cdef void** _replicas               # [_num_ranks]
    cdef int32_t _num_ranks
    cdef LatencyModel _latency
    cdef int64_t _dummy_ns
    cdef int32_t _sync_interval
    cdef int64_t _step                  # iterations since the ranks woke
    cdef bint _is_awake
    cdef BatchShape* _shapes            # [_num_busy] batches of the iteration in progress
    cdef int32_t _num_busy              # ranks that have one
    cdef RunAhead _run                  # iterations planned for all; its used_blocks are of no meaning

    def __init__(self, replicas, LatencyModel latency, int32_t sync_interval):
        cdef BatchShape dummy
        cdef int32_t i
        self._owners, self._num_ranks, self._latency = list(replicas), len(replicas), latency
        self._sync_interval, self.wake_ns, self._run.length = sync_interval, NEVER_NS, 1
        self._replicas = <void**>calloc(self._num_ranks, sizeof(void*))
        self._shapes = <BatchShape*>calloc(self._num_ranks, sizeof(BatchShape))
        if self._replicas == NULL or self._shapes == NULL:
            raise MemoryError()
        for i in range(self._num_ranks):
            self._replicas[i] = <void*>self._owners[i]
            (<Replica>self._replicas[i]).march(self, self._owners[0].index, self._num_ranks)
        memset(&dummy, 0, sizeof(BatchShape))
        dummy.num_sequences = dummy.num_decodes = dummy.num_samples = dummy.decode_tokens = dummy.context_tokens = 1
        self._dummy_ns = latency.step_ns(&dummy, 1, self._num_ranks)
        latency.raise_if_failed()

    def __dealloc__(self):
        free(self._replicas)
        free(self._shapes)
        free_run(&self._run)

    cdef int advance(self, int64_t until_ns, int64_t horizon_ns) except -1 nogil:
        cdef int64_t now_ns
        while self.wake_ns < until_ns:
            now_ns = self.wake_ns
            self._end()
            self._begin(now_ns, horizon_ns)
        return 0

    cdef void cut(self, int64_t now_ns) noexcept nogil:
        cdef int32_t i
        if self._run.length > 1:
            self._wake_at(cut_run(&self._run, now_ns))
            for i in range(self._num_ranks):
                (<Replica>self._replicas[i]).cut_own(now_ns)

    cdef void rouse(self, int64_t now_ns) noexcept nogil:
        if not self._is_awake and self.wake_ns > now_ns:
            self._wake_at(now_ns)

    cdef void _wake_at(self, int64_t time_ns) noexcept nogil:
        cdef int32_t i
        self.wake_ns = time_ns
        for i in range(self._num_ranks):
            (<Replica>self._replicas[i]).wake_at(time_ns)

    # ---- an iteration ends

    cdef int _end(self) except -1 nogil:
        cdef int32_t i
        if not self._is_awake:
            return 0
        for i in range(self._num_ranks):
            (<Replica>self._replicas[i]).end_oldest()
        self._step += self._run.length
        self._run.length = 1
        if (self._step == 1 or self._step % self._sync_interval == 0) and not self._has_requests():
            self._is_awake, self._step = False, 0
        return 0

    cdef bint _has_requests(self) noexcept nogil:
        cdef int32_t i
        for i in range(self._num_ranks):
            if (<Replica>self._replicas[i]).has_requests():
                return True
        return False

    # ---- an iteration begins

    cdef int _begin(self, int64_t now_ns, int64_t horizon_ns) except -1 nogil:
        cdef bint is_steady = True, is_broken = False
        cdef int64_t step_ns = self._dummy_ns
        cdef int32_t i
        self._num_busy = 0
        for i in range(self._num_ranks):
            if (<Replica>self._replicas[i]).form(now_ns, &self._shapes[self._num_busy]):
                self._num_busy += 1
            is_steady = is_steady and (<Replica>self._replicas[i]).is_steady()
            is_broken = is_broken or (<Replica>self._replicas[i]).rank.is_livelocked
        if self._num_busy > 0:
            step_ns = self._latency.step_ns(self._shapes, self._num_busy, self._num_ranks)
            if self._latency.has_failed():
                with gil:
                    self._latency.raise_if_failed()
        if is_broken or now_ns + step_ns > END_OF_CLOCK_NS or self._num_busy == 0 and (
                not self._is_awake or self._has_requests()):    # nobody can go on until something changes
            self._is_awake, self._step = False, 0
            self._wake_at(NEVER_NS)
            return 0
        self._is_awake = True
        for i in range(self._num_ranks):
            (<Replica>self._replicas[i]).start(now_ns + step_ns)
        self._wake_at(now_ns + step_ns)
        if is_steady and self._num_busy > 0 and self.wake_ns < horizon_ns:
            self._plan(now_ns, horizon_ns)
        return 0

    cdef int _plan(self, int64_t now_ns, int64_t horizon_ns) except -1 nogil:
        """Foresee iterations of the same members, as many as all ranks can."""
        cdef int64_t most = MAX_RUN, step_ns
        cdef int32_t length = 1, i
        for i in range(self._num_ranks):
            most = min(most, (<Replica>self._replicas[i]).num_alike())
        if most <= 1:
            return 0
        if most > self._run.room:
            grow_run(&self._run, most)
        for i in range(self._num_ranks):
            (<Replica>self._replicas[i]).begin_run(most)
        self._run.start_ns, self._run.ends_ns[0] = now_ns, self.wake_ns
        while length < most and self._run.ends_ns[length - 1] < horizon_ns and self._foresee(length):
            step_ns = self._latency.step_ns(self._shapes, self._num_busy, self._num_ranks)
            if self._latency.has_failed():
                forget_fault(self._latency)
                break
            self._run.ends_ns[length] = self._run.ends_ns[length - 1] + step_ns
            length += 1
        self._run.length = length
        for i in range(self._num_ranks):
            (<Replica>self._replicas[i]).end_run(&self._run)
        self._wake_at(self._run.ends_ns[length - 1])
        return 0

    cdef bint _foresee(self, int32_t number) noexcept nogil:
        """Let all ranks take their blocks for another iteration of the run; False: one does not get them."""
        cdef int32_t i, busy = 0
        if self._run.ends_ns[number - 1] > END_OF_CLOCK_NS - LONGEST_ITERATION_NS:
            return False
        for i in range(self._num_ranks):
            if (<Replica>self._replicas[i]).pipeline.num_in_flight > 0:
                if not (<Replica>self._replicas[i]).foresee(number):
                    return False
                self._shapes[busy].context_tokens += oldest(&(<Replica>self._replicas[i]).pipeline).num_members
                busy += 1
        return True
