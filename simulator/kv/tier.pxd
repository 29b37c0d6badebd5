"""KV beyond the blocks of a replica: in host memory, on disk, at another replica. The interface to a scheduler.

vLLM calls the part between scheduler and tier a KV connector. A tier holds leading tokens of texts. A scheduler that
admits a request asks the tier for the tokens behind those found in its own KV cache (`match`), gives them blocks and
loads them (`load`); a request that has ended may have to leave its blocks in place, for the tier to read
(`keep_until`). The scheduler keeps the list of loads in flight (scheduling/transfers.pxd); the replica notices the end
of a load when an iteration ends, as vLLM's worker reports it then, or while it is idle.

A tier that `copies` also stores blocks on its own. For each step the scheduler calls it with the computed tokens and
the requests that leave; it plans its copies, says when the step's batch can be launched, and reports loads that ended
(`take_loaded`).
"""
from libc.stdint cimport int32_t, int64_t


cdef enum:
    UNDECIDED = -1              # tokens: the answer is not known yet; the request is passed over in this iteration


cdef enum LoadEnd:              # of KV in flight
    LOAD_CAME
    LOAD_LOST                   # the KV was lost, and is computed again
    LOAD_FATAL                  # the KV was lost, and the request fails for that; the tier has reported the failure


cdef struct External:           # tokens of a text that a tier has, behind the tokens found in the KV cache
    int64_t tokens              # 0: none; or UNDECIDED
    bint comes_later            # the request waits, with its blocks, until they are loaded; else they are loaded within
                                # the iteration that admits it
    bint has_first_token        # the first token from prefill may arrive with them, and gets room, too


cdef class KVTier:
    cdef readonly bint copies               # the step functions below are called
    cdef readonly bint puts_off_frees       # blocks of a batch in flight are freed when it ends
    cdef readonly bint drops_stale_tokens   # tokens in flight when their request is preempted are computed again
    cdef readonly bint takes_groups         # the replica may have a HybridKV
    cdef bint looks_below                   # `begins` has an effect
    cdef bint stays                         # `stays_ns` may be more than 0
    cdef readonly bint names_blocks         # reuse of blocks matters to it, also of blocks without a hash

    # Fill in `found` with the tokens it has of a request's text; the first `local_tokens` (whole blocks) were found in
    # the KV cache. If tokens are loaded within the iteration, at least one token of the text must be left to compute.
    # `found` is all zero before.
    cdef int match(self, int32_t row, int64_t local_tokens, External* found) except -1 nogil

    # The tokens found have blocks now, in `slot`: load them from `now_ns` on. Returns when they are loaded; without
    # meaning unless they come later. NEVER_NS: not known yet; `take_loaded` or `Scheduler.comes_at` will report it.
    cdef int64_t load(self, int32_t row, int32_t slot, External found, int64_t now_ns) except -1 nogil

    # A request completes: until when its blocks, those of `slot`, must stay; -1: they are free at once. NEVER_NS: not
    # known yet; the tier notifies the scheduler later, as with `load`.
    cdef int64_t keep_until(self, int32_t row, int32_t slot, int64_t now_ns) noexcept nogil

    # Tokens that it has loaded for a request since the last `match`.
    cdef int64_t loaded_tokens(self, int32_t row) noexcept nogil

    # The replica notices that the load of a request has ended: returns its outcome.
    cdef LoadEnd load_end(self, int32_t row) noexcept nogil

    # ---- KV that other replicas compute, or continue with

    cdef readonly bint hears_of_chunks      # `was_admitted` and `chunk_ended` are called
    cdef readonly int64_t reserved_tokens   # tokens left free for each sequence, SGLang's rule; -1: vLLM's rule holds

    # The KV of a text has arrived: did the first token from prefill arrive with it?
    cdef bint has_first_token(self, int32_t row) noexcept nogil

    # The slot of a migrated request that already has blocks and KV; -1: there is none. The request runs.
    cdef int32_t slot_of(self, int32_t row) noexcept nogil
    cdef void runs(self, int32_t row) noexcept nogil

    # The request was admitted; `computed` tokens are computed, and that is not its whole text.
    cdef int was_admitted(self, int32_t row) except -1 nogil
    cdef int chunk_ended(self, int32_t row, int64_t computed) except -1 nogil

    # ---- steps of a tier that copies, in call order

    # A step is about to be formed: notice the reads and writes of lower levels that ended by `now_ns`.
    cdef int begins(self, int64_t now_ns) except -1 nogil

    # The batch brings a sequence outside the bulk-decode cohort to `computed` tokens in KV, of `text` known tokens.
    cdef int computes(self, int32_t slot, int32_t row, int64_t computed, int64_t text) except -1 nogil

    # A sequence was preempted while the batch was formed.
    cdef int preempted(self, int32_t row) except -1 nogil

    # The step is formed: plan copies, also for requests that have left since the last step.
    cdef int plan(self) except -1 nogil

    # Returns when the batch can be launched: formed at `now_ns`, the one in execution ends at `free_ns`. begin_loads():
    # the batch was timed; loads of the step begin when it ends; returns the number of copies done at its launch.
    cdef int64_t launch(self, int64_t now_ns, int64_t free_ns) except -1 nogil
    cdef int64_t begin_loads(self, int64_t launch_ns, int64_t end_ns) except -1 nogil

    # Returns how much longer its batch takes, which without loads would take `executes_ns` from `start_ns` on.
    cdef int64_t stays_ns(self, int64_t start_ns, int64_t executes_ns) noexcept nogil

    # Does the step count without a batch? A copy was planned, waited for or done, or a request has left.
    cdef bint has_acted(self) noexcept nogil

    # The step has ended: notice the first `num_done` copies that are done; returns the slot of the next load that has
    # ended, -1: there are no more.
    cdef int32_t take_loaded(self, int64_t num_done) except -2 nogil

    # ---- between steps

    # A request ends with `computed` of its `text` known tokens in KV; its blocks are about to be freed. The same for a
    # request without blocks.
    cdef int leaves(self, int32_t slot, int32_t row, int64_t computed, int64_t text) except -1 nogil
    cdef int gives_up(self, int32_t row) except -1 nogil

    # Does it have nothing more to do for a sequence as long as that one decodes?
    cdef bint is_through_with(self, int32_t slot, int32_t row) noexcept nogil

    # When the next copy ends; NEVER_NS: none is in flight. is_quiet(): steps before that need no call of the tier.
    cdef int64_t next_end_ns(self) noexcept nogil
    cdef bint is_quiet(self) noexcept nogil

    # `match` changes nothing and does not answer UNDECIDED, now and until a request arrives, leaves or is admitted.
    cdef bint surely_decides(self, int32_t row) noexcept nogil

    # The engine may fast-forward decode steps though the tier is not quiet, because no one observes it until they end.
    # catch_up(): replay them. `count` steps have ended, `behind` more were in flight, `ends_ns` are the ends of all,
    # `num_done` the copies done at the launch of the step that ends next, and of the one behind it; updated in place.
    cdef bint may_lag(self) noexcept nogil
    cdef int catch_up(self, const int64_t* ends_ns, int32_t count, int32_t behind, int64_t* num_done) except -1 nogil

    # The replica has failed: copies in flight are cancelled, KV in host memory is lost.
    cdef int fail(self) except -1 nogil
