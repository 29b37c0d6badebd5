"""An encoder replica: its queue, batches, cache and link."""
from libc.stdlib cimport free
cimport cython

from simulator.core.arithmetic cimport round_half_up
from simulator.core.index_list cimport new_list
from simulator.core.row_list cimport add_row

from msgspec.structs import replace


@cython.final
cdef class Station:
    """One replica of an encode pool.

    A batch is chosen as vLLM's scheduler does for requests that consist of an item alone, where the model behind the
    encoder does not run: in order, until an item exceeds the budget, finds no room in the cache, or is one too many.
    Duration: iteration_ns + embeddings computed x embedding_ns, or the prices of the items computed, and no less than
    least_ns. Source: vLLM 0.32.0, vllm/v1/core/sched/scheduler.py;
    vllm/v1/worker/gpu_model_runner.py, which returns behind the encoder where an ECConnector is a producer.

    An encoded item may be evicted from the cache when the batch ends, sent or not: a copy is sent.

    items : simulator.domain.items.Items, a job each.
    pool : plan.EncodePool. bytes_per_s : of its link, which sends one item after the other.
    jobs : structured array (jobs,), `records.ENCODE_JOB`, written to.
    links : of lists of jobs, shared with the other replicas.
    """

    def __init__(self, items, pool, double bytes_per_s, jobs, IndexLinks links):
        cdef EncodeJob[::1] rows = jobs
        self._jobs = &rows[0] if len(jobs) else NULL
        self._links, self._waiting = links, new_list()
        self._embedding_ns, self._iteration_ns = pool.embedding_ns, pool.iteration_ns
        self._sending_ns = pool.embedding_bytes / bytes_per_s * 1e9
        self._max_jobs = pool.max_jobs
        self._least_ns = pool.least_ns
        if pool.item_ns is not None:
            items = replace(items, ns=pool.item_ns(items))
        self.cache = EncoderCache(items, pool.max_embeddings, pool.cache_embeddings)

    def __dealloc__(self):
        free(self.batch.rows)

    cdef int64_t begin(self, int64_t now_ns) except -2 nogil:
        cdef int64_t before, duration_ns
        cdef double computing_ns
        cdef int32_t job
        self.batch.size = 0
        self.cache.begin()
        while self._waiting.size > 0 and self.batch.size < self._max_jobs:
            job, before = self._waiting.head, self.cache.batch_tokens
            if self.cache.plan(job, 0, self._jobs[job].embeddings) < self._jobs[job].embeddings:
                break
            self.cache.encode(job)
            self._links.remove(&self._waiting, job)
            add_row(&self.batch, job)
            self._jobs[job].start_ns, self._jobs[job].hit = now_ns, self.cache.batch_tokens == before
        if self.batch.size == 0:
            return -1
        computing_ns = self._embedding_ns * <double>self.cache.batch_tokens
        if self.cache.batch_tokens > 0:
            computing_ns += max(self.cache.encoding_ns(), self._least_ns)
        duration_ns = round_half_up(self._iteration_ns + computing_ns)
        self.is_busy = True
        self.batches += 1
        self.busy_ns += duration_ns
        return now_ns + duration_ns

    cdef void end(self, int64_t now_ns) noexcept nogil:
        cdef int32_t i
        self.is_busy = False
        for i in range(self.batch.size):
            self._jobs[self.batch.rows[i]].end_ns = now_ns
            self.cache.let_go(self.batch.rows[i])

    cdef int64_t send(self, int32_t job, int64_t now_ns) noexcept nogil:
        self._jobs[job].sent_ns = max(now_ns, self._link_free_ns)
        self._link_free_ns = self._jobs[job].sent_ns + round_half_up(
            self._sending_ns * <double>self._jobs[job].embeddings)
        return self._link_free_ns

    # ---- the face for tests and exploration

    def check(self, holders):
        """Raise RuntimeError unless list and cache agree; `holders` : jobs of the batch in progress."""
        self._links.check_list(&self._waiting)
        self.cache.check(holders)
