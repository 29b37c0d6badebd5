"""KV beyond the blocks of a replica: in host memory, on disk, at another replica. What a scheduler may ask of it.

vLLM's word for what stands between scheduler and tier is KV connector. A tier holds leading tokens of texts. A
scheduler that admits a request asks it for those behind the tokens that it found in its own KV cache (`match`), gives
them blocks and loads them (`load`); a request that has ended may have to leave its blocks where they are, for the tier
to read (`keep_until`). What is on the way is in the scheduler's books (scheduling/transfers.pxd); the replica takes
notice of what has come when an iteration ends, as vLLM's worker reports it then, or while it has nothing to do.

A tier that `copies` stores blocks of its own accord. It is told of each step what it computes and who leaves, plans its
copies, says when the step's batch can be launched, and reports what is done itself (`take_loaded`).
"""
from libc.stdint cimport int32_t, int64_t


cdef enum:
    UNDECIDED = -1              # tokens: it cannot say yet; the request is passed over in this iteration


cdef enum LoadEnd:              # of KV that was on the way
    LOAD_CAME
    LOAD_LOST                   # it has not come, and is computed anew
    LOAD_FATAL                  # it has not come, and the request leaves for that: whoever sees to it has been told


cdef struct External:           # what a tier has of a text, behind the tokens found in the KV cache
    int64_t tokens              # 0: nothing; or UNDECIDED
    bint comes_later            # the request waits, with its blocks, until they are there; else they are loaded within
                                # the iteration that admits it
    bint brings_token           # with them may come the token that follows, which gets room, too


cdef class KVTier:
    cdef readonly bint copies               # it is told of each step
    cdef readonly bint puts_off_frees       # blocks of a batch in flight are freed when it ends
    cdef readonly bint drops_stale_tokens   # in flight when their request is preempted, they are computed anew
    cdef readonly bint takes_groups         # the replica may have a HybridKV
    cdef bint looks_below                   # `begins` does something
    cdef bint stays                         # `stays_ns` may be more than 0
    cdef readonly bint names_blocks         # who gets a block matters to it, also of those without a hash

    # What it has of the text of a request, whose first `local_tokens` (whole blocks) were found in the KV cache. Where
    # it comes within the iteration, at least one token of the text must be left to compute. `found` is all zero before.
    cdef int match(self, int32_t row, int64_t local_tokens, External* found) except -1 nogil

    # These tokens have blocks now, in `slot`: they are on the way from `now_ns` on. When they are there; of no meaning
    # unless they come later. NEVER_NS: that is not known yet, `take_loaded` or `Scheduler.comes_at` will tell.
    cdef int64_t load(self, int32_t row, int32_t slot, External found, int64_t now_ns) except -1 nogil

    # A request completes: until when its blocks, those of `slot`, stay as they are; -1: they are free at once. Who does
    # not know yet answers NEVER_NS, and tells the scheduler later, as with `load`.
    cdef int64_t keep_until(self, int32_t row, int32_t slot, int64_t now_ns) noexcept nogil

    # Tokens that it has loaded for a request since it was last asked what it has.
    cdef int64_t loaded_tokens(self, int32_t row) noexcept nogil

    # The replica takes notice that nothing is on the way to a request any more: how it ended.
    cdef LoadEnd load_end(self, int32_t row) noexcept nogil

    # ---- of what other replicas compute, or go on with

    cdef readonly bint hears_of_chunks      # it is told of texts as they are computed
    cdef readonly int64_t reserved_tokens   # to be left free for each sequence, SGLang's rule; -1: vLLM's rule holds

    # The KV of a text has come: and with it the token that follows?
    cdef bint brings_token(self, int32_t row) noexcept nogil

    # The parked slot with the blocks and the KV that a waiting request had before it came; -1: there is none. It runs.
    cdef int32_t slot_of(self, int32_t row) noexcept nogil
    cdef void runs(self, int32_t row) noexcept nogil

    # It was admitted; so many of its tokens are computed, and that is not all of its text.
    cdef int was_admitted(self, int32_t row) except -1 nogil
    cdef int chunk_ended(self, int32_t row, int64_t computed) except -1 nogil

    # ---- what a tier that copies is told of a step, in this order

    # It is about to be formed: take notice of what levels below the host have done by `now_ns`.
    cdef int begins(self, int64_t now_ns) except -1 nogil

    # The batch brings a sequence that is no member up to `computed` tokens in KV, of `text` that are known.
    cdef int computes(self, int32_t slot, int32_t row, int64_t computed, int64_t text) except -1 nogil

    # A sequence was preempted while the batch was formed.
    cdef int preempted(self, int32_t row) except -1 nogil

    # The step is formed: plan copies, of those too who have left since the last one.
    cdef int plan(self) except -1 nogil

    # When its batch can be launched, formed at `now_ns`, when what executes will end at `free_ns`. Then it was timed:
    # loads of the step begin when it ends; return what was done, so far, when the step was launched.
    cdef int64_t launch(self, int64_t now_ns, int64_t free_ns) except -1 nogil
    cdef int64_t begin_loads(self, int64_t launch_ns, int64_t end_ns) except -1 nogil

    # How much longer its batch takes, which alone would execute so long from `start_ns` on: it loads KV itself.
    cdef int64_t stays_ns(self, int64_t start_ns, int64_t executes_ns) noexcept nogil

    # It is a step even without a batch: something was planned, waited for or done, or somebody has left.
    cdef bint has_acted(self) noexcept nogil

    # The step has ended: take notice of what was done, as far as that; the slot of the next load that has come, -1:
    # there are no more.
    cdef int32_t take_loaded(self, int64_t num_done) except -2 nogil

    # ---- and between steps

    # A sequence leaves for good, `computed` tokens of whose `text` are in KV; its blocks are about to be freed. The
    # same for a request without blocks.
    cdef int leaves(self, int32_t slot, int32_t row, int64_t computed, int64_t text) except -1 nogil
    cdef int gives_up(self, int32_t row) except -1 nogil

    # It has nothing to do with a sequence as long as that one decodes.
    cdef bint is_through_with(self, int32_t slot, int32_t row) noexcept nogil

    # When a copy ends; NEVER_NS: none is under way. Steps before that can do without it: nothing else is to be done.
    cdef int64_t next_end_ns(self) noexcept nogil
    cdef bint is_quiet(self) noexcept nogil

    # To ask it what it has of a text changes nothing and is not answered by UNDECIDED, now and as long as nobody comes,
    # leaves or is admitted.
    cdef bint surely_decides(self, int32_t row) noexcept nogil

    # Steps of the same members may go ahead of it though it is not quiet: until they end nobody sees what it does.
    # Afterwards it does that: `count` of them have ended, `behind` more were in flight, `ends_ns` are the ends of all,
    # `num_done` what was done when the one that ends next was launched, and the one behind it; of those next now.
    cdef bint may_lag(self) noexcept nogil
    cdef int catch_up(self, const int64_t* ends_ns, int32_t count, int32_t behind, int64_t* num_done) except -1 nogil

    # What it answers may change though nobody comes, leaves or is admitted.
    cdef bint may_change(self) noexcept nogil

    # The replica has failed: copies come to nothing, what the host held is lost.
    cdef int fail(self) except -1 nogil
