"""A run: iterations of an unchanged group, planned ahead."""
from libc.stdlib cimport free
from libc.string cimport memmove

from simulator.core.memory cimport resize
from simulator.engine.replica.pipeline cimport newest, oldest
from simulator.latency.base cimport LONGEST_ITERATION_NS

cdef enum:
    FIRST_ROOM = 64             # doubled up to MAX_RUN


cdef int grow_run(RunAhead* run, int64_t most) except -1 nogil:
    cdef int32_t room = FIRST_ROOM
    while room < most and room < MAX_RUN:
        room *= 2
    resize(&run.ends_ns, room * sizeof(int64_t))
    resize(&run.used_blocks, room * sizeof(int32_t))
    if run.keeps_contexts:
        resize(&run.contexts, room * sizeof(int64_t))
    run.room = room
    return 0


cdef void free_run(RunAhead* run) noexcept nogil:
    free(run.ends_ns)
    free(run.used_blocks)
    free(run.contexts)


cdef void plan_run(RunAhead* run, Pipeline* pipeline, int64_t most, int64_t horizon_ns, LatencyModel latency,
                   KVCache kv, int32_t phase) noexcept nogil:
    cdef Batch* batch = oldest(pipeline) if pipeline.num_in_flight == 1 else newest(pipeline)
    cdef int64_t end_ns = batch.end_ns, context_tokens = batch.shape.context_tokens
    cdef int32_t free_blocks = kv.free_blocks - kv.slack, num_blocks = kv.num_blocks - kv.slack
    cdef int32_t behind = pipeline.num_in_flight - 1, i = behind + 1
    begin_run(run, pipeline)
    most += behind
    while i < most and end_ns < horizon_ns:
        free_blocks -= kv.due(phase)
        phase = phase + 1 if phase + 1 < kv.block_size else 0
        if free_blocks < 0 or end_ns > END_OF_CLOCK_NS - LONGEST_ITERATION_NS:
            break
        batch.shape.context_tokens += batch.num_members
        end_ns += latency.iteration_ns(&batch.shape)
        if latency.has_failed():
            batch.shape.context_tokens = context_tokens
            take_back(run, pipeline, i, i + 1, latency)
            break
        run.ends_ns[i] = end_ns
        run.used_blocks[i] = num_blocks - free_blocks
        i += 1
    batch.shape.context_tokens = context_tokens         # restored: planning in a copy of the shape costs more
    run.length = i - behind


cdef void plan_multi_token(RunAhead* run, Pipeline* pipeline, int64_t most, int64_t horizon_ns, LatencyModel latency,
                           Scheduler scheduler) noexcept nogil:
    cdef Batch* batch = oldest(pipeline) if pipeline.num_in_flight == 1 else newest(pipeline)
    cdef int64_t end_ns = batch.end_ns, context_tokens = batch.shape.context_tokens
    cdef int32_t free_blocks = scheduler.kv.free_blocks, phase = scheduler.phase
    cdef int32_t behind = pipeline.num_in_flight - 1, i = behind + 1
    begin_run(run, pipeline)
    run.contexts[0], run.contexts[behind] = oldest(pipeline).shape.context_tokens, context_tokens
    batch.shape.context_tokens = scheduler.member_tokens
    most += behind
    while i < most and end_ns < horizon_ns:
        free_blocks -= scheduler.kv.due(phase)
        if free_blocks < 0 or end_ns > END_OF_CLOCK_NS - LONGEST_ITERATION_NS:
            break
        run.contexts[i] = batch.shape.context_tokens
        end_ns += latency.iteration_ns(&batch.shape)
        if latency.has_failed():
            take_back(run, pipeline, i, i + 1, latency)
            break
        run.ends_ns[i] = end_ns
        run.used_blocks[i] = scheduler.kv.num_blocks - free_blocks
        batch.shape.context_tokens += scheduler.multi_token.advances[phase]
        phase = phase + 1 if phase + 1 < scheduler.kv.num_phases else 0
        i += 1
    batch.shape.context_tokens = context_tokens
    run.length = i - behind


cdef void take_back(const RunAhead* run, Pipeline* pipeline, int32_t first, int32_t end,
                    LatencyModel latency) noexcept nogil:
    cdef Batch* batch = newest(pipeline)
    cdef int64_t context_tokens = batch.shape.context_tokens
    cdef int32_t i
    latency.count(-1, True)
    for i in range(first, end):
        batch.shape.context_tokens = context_tokens + <int64_t>(i - run.behind) * batch.num_members
        if run.contexts != NULL:
            batch.shape.context_tokens = run.contexts[i]
        latency.batch_ns(&batch.shape)
    batch.shape.context_tokens = context_tokens
    end_taking_back(latency)


cdef void end_taking_back(LatencyModel latency) noexcept nogil:
    latency.count(1, False)
    if latency.has_failed():
        with gil:
            try:
                latency.raise_if_failed()
            except Exception:
                pass


cdef inline void begin_run(RunAhead* run, Pipeline* pipeline) noexcept nogil:
    """Begin a run with the batches in flight."""
    cdef const Batch* batch = oldest(pipeline)
    run.start_ns = batch.start_ns
    run.context_tokens = batch.shape.context_tokens
    run.behind = pipeline.num_in_flight - 1
    run.ends_ns[0], run.used_blocks[0] = batch.end_ns, batch.used_blocks
    if run.behind > 0:
        run.scheduled_ns, run.start_ns = batch.start_ns, batch.end_ns - batch.duration_ns
        batch = newest(pipeline)
        run.ends_ns[1], run.used_blocks[1] = batch.end_ns, batch.used_blocks
        run.waiting, run.running = batch.waiting, batch.running


cdef int32_t iteration_at(const RunAhead* run, int64_t now_ns) noexcept nogil:
    cdef int32_t low = 0, high = run.length - 1, middle
    while low < high:
        middle = (low + high) // 2
        if run.ends_ns[middle] >= now_ns:
            high = middle
        else:
            low = middle + 1
    return low


cdef int32_t first_using(const RunAhead* run, int32_t i, int32_t used_blocks) noexcept nogil:
    cdef int32_t length = run.length + run.behind, high, middle
    cdef int32_t low = i + 1, step = 1                      # most often it is one of the next
    while low + step < length and run.used_blocks[low + step - 1] < used_blocks:
        low += step
        step *= 2
    high = min(low + step, length)
    while low < high:
        middle = (low + high) // 2
        if run.used_blocks[middle] >= used_blocks:
            high = middle
        else:
            low = middle + 1
    return low


cdef int32_t first_using_others(const RunAhead* run, int32_t i) noexcept nogil:
    cdef int32_t length = run.length + run.behind, other = i + 1
    while other < length and run.used_blocks[other] == run.used_blocks[i]:
        other += 1
    return other


cdef int64_t cut_run(RunAhead* run, int64_t now_ns) noexcept nogil:
    cdef int32_t last = iteration_at(run, now_ns)
    run.length = last + 1
    return run.ends_ns[last]


cdef inline int64_t begun_ns(const RunAhead* run, int32_t i) noexcept nogil:
    return run.ends_ns[i - 1] if i > 0 else run.start_ns


cdef void move_to(const RunAhead* run, Batch* batch, int32_t i) noexcept nogil:
    batch.start_ns = begun_ns(run, i)
    batch.end_ns = run.ends_ns[i]
    batch.duration_ns = batch.end_ns - batch.start_ns
    batch.used_blocks = run.used_blocks[i]
    batch.shape.context_tokens = run.context_tokens + <int64_t>i * batch.num_members
    if run.contexts != NULL:
        batch.shape.context_tokens = run.contexts[i]
    if run.behind > 0:
        batch.start_ns = begun_ns(run, i - run.behind) if i > 0 else run.scheduled_ns
        if i > 0:
            batch.waiting, batch.running = run.waiting, run.running


cdef void drop_from_run(RunAhead* run, Pipeline* pipeline, int32_t count) noexcept nogil:
    cdef Batch* batch = oldest(pipeline)
    move_to(run, batch, count)
    if run.behind > 0:
        move_to(run, newest(pipeline), count + 1)
    run.length -= count
    if run.contexts != NULL:
        memmove(run.contexts, run.contexts + count, (run.length + run.behind) * sizeof(int64_t))
    if run.length > 1:
        run.scheduled_ns, run.start_ns = batch.start_ns, batch.end_ns - batch.duration_ns
        run.context_tokens = batch.shape.context_tokens
        memmove(run.ends_ns, run.ends_ns + count, (run.length + run.behind) * sizeof(int64_t))
        memmove(run.used_blocks, run.used_blocks + count, (run.length + run.behind) * sizeof(int32_t))


cdef int32_t most_used_blocks(const RunAhead* run, int32_t count) noexcept nogil:
    cdef int32_t most = 0, i
    for i in range(count):
        most = max(most, run.used_blocks[i])
    return most


cdef void add_used_blocks(const RunAhead* run, int32_t count, double* block_ns) noexcept nogil:
    cdef double total = block_ns[0]
    cdef int64_t start_ns = run.start_ns
    cdef int32_t i
    for i in range(count):
        total += <double>run.used_blocks[i] * <double>(run.ends_ns[i] - start_ns)
        start_ns = run.ends_ns[i]
    block_ns[0] = total
