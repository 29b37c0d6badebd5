"""Runs with pipeline stages: groups alternate."""
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memmove

from simulator.core.memory cimport resize
from simulator.engine.replica.pipeline cimport batch_at, newest, oldest
from simulator.engine.replica.run_ahead cimport END_OF_CLOCK_NS, end_taking_back
from simulator.latency.base cimport LONGEST_ITERATION_NS


cdef int reserve_rounds(Rounds* rounds, int32_t num_stages) except -1:
    rounds.turns = <Turn*>calloc(num_stages, sizeof(Turn))
    if rounds.turns == NULL:
        raise MemoryError()
    return 0


cdef int grow_rounds(Rounds* rounds, int32_t room, int32_t num_stages) except -1 nogil:
    resize(&rounds.visits, <size_t>room * num_stages * sizeof(StageVisit))
    rounds.room = room
    return 0


cdef void free_rounds(Rounds* rounds) noexcept nogil:
    free(rounds.turns)
    free(rounds.visits)


cdef bint begin_rounds(Rounds* rounds, RunAhead* run, Pipeline* pipeline) noexcept nogil:
    cdef int32_t depth = pipeline.num_in_flight, num_turns = depth - (pipeline.turn_interval > 0), k
    cdef const Batch* batch = newest(pipeline)
    if pipeline.turn_interval > 0 and (num_turns == 0 or batch.step - oldest(pipeline).step != pipeline.turn_interval):
        return False
    for k in range(depth):
        batch = batch_at(pipeline, k)
        if batch.num_entries + batch.num_preempted + batch.num_starved > 0:
            return False
    for k in range(depth):
        batch = batch_at(pipeline, k)
        if k < num_turns:
            rounds.turns[k].shape, rounds.turns[k].step = batch.shape, batch.step
            rounds.turns[k].group = batch.group
        rounds.turns[k % num_turns].context_tokens = batch.shape.context_tokens
        run.ends_ns[k], run.used_blocks[k] = batch.end_ns, batch.used_blocks
        memcpy(&rounds.visits[k * pipeline.num_stages], batch.visits, pipeline.num_stages * sizeof(StageVisit))
    rounds.num_turns, run.behind, run.length = num_turns, depth - 1, 1
    return True


cdef void plan_rounds(Rounds* rounds, RunAhead* run, Pipeline* pipeline, int64_t most, int64_t horizon_ns,
                      LatencyModel latency, KVCache kv) noexcept nogil:
    cdef int32_t depth = pipeline.num_in_flight, num_turns = rounds.num_turns, num_stages = pipeline.num_stages
    cdef int32_t free_blocks = kv.free_blocks, block_size = kv.block_size, i = depth, stage
    cdef int32_t k = depth % num_turns
    cdef int64_t ready_ns, context_tokens
    cdef const int64_t* durations_ns = pipeline.durations_ns
    cdef int64_t* ends_ns = run.ends_ns
    cdef StageVisit* visit = &rounds.visits[depth * num_stages]
    cdef Turn* turn
    most += depth - 1
    while i < most and ends_ns[i - depth] < horizon_ns:
        turn = &rounds.turns[k]
        k = k + 1 if k + 1 < num_turns else 0
        free_blocks -= kv.due_of(turn.group, turn.phase)
        turn.phase = turn.phase + 1 if turn.phase + 1 < block_size else 0
        if free_blocks < 0 or ends_ns[i - 1] > END_OF_CLOCK_NS - LONGEST_ITERATION_NS:
            break
        turn.context_tokens += turn.shape.num_sequences
        context_tokens = turn.shape.context_tokens
        turn.shape.context_tokens = turn.context_tokens
        latency.stage_durations_ns(&turn.shape, pipeline.durations_ns)
        turn.shape.context_tokens = context_tokens
        if latency.has_failed():
            take_back_rounds(rounds, pipeline, i, i + 1, latency)
            break
        ready_ns = ends_ns[i - num_turns]                   # when the first stage has its tokens
        for stage in range(num_stages):
            ready_ns = max(ready_ns, (visit - num_stages).end_ns)
            visit.start_ns = ready_ns
            ready_ns += durations_ns[stage]
            visit.end_ns = ready_ns
            visit += 1
        ends_ns[i], run.used_blocks[i] = ready_ns, kv.num_blocks - free_blocks
        i += 1
    run.length = i - depth + 1


cdef void take_back_rounds(Rounds* rounds, Pipeline* pipeline, int32_t first, int32_t end,
                           LatencyModel latency) noexcept nogil:
    cdef int32_t i
    cdef int64_t context_tokens
    cdef Turn* turn
    latency.count(-1, True)
    for i in range(first, end):
        turn = &rounds.turns[i % rounds.num_turns]
        context_tokens = turn.shape.context_tokens
        turn.shape.context_tokens += <int64_t>(i // rounds.num_turns) * turn.shape.num_sequences
        latency.stage_durations_ns(&turn.shape, pipeline.durations_ns)
        turn.shape.context_tokens = context_tokens
    end_taking_back(latency)


cdef int64_t tokens_of_rounds(const Rounds* rounds, int32_t count) noexcept nogil:
    cdef int64_t tokens = 0
    cdef int32_t k
    for k in range(rounds.num_turns):
        if count > k:
            tokens += ((count - k + rounds.num_turns - 1) // rounds.num_turns) * (
                <int64_t>rounds.turns[k].shape.num_sequences)
    return tokens


cdef void move_to_round(const Rounds* rounds, const RunAhead* run, Pipeline* pipeline, Batch* batch,
                        int32_t i) noexcept nogil:
    cdef const Turn* turn = &rounds.turns[i % rounds.num_turns]
    cdef int32_t depth = run.behind + 1, num_rounds = i // rounds.num_turns
    if i >= depth:
        batch.start_ns = run.ends_ns[i - depth]
        batch.waiting, batch.running = run.waiting, run.running
    else:
        batch.start_ns = batch_at(pipeline, i).start_ns
        batch.waiting, batch.running = batch_at(pipeline, i).waiting, batch_at(pipeline, i).running
    memcpy(batch.visits, &rounds.visits[i * pipeline.num_stages], pipeline.num_stages * sizeof(StageVisit))
    batch.end_ns = run.ends_ns[i]
    batch.duration_ns = batch.end_ns - batch.visits[0].start_ns
    batch.used_blocks = run.used_blocks[i]
    batch.shape = turn.shape
    batch.shape.context_tokens += <int64_t>num_rounds * turn.shape.num_sequences
    batch.shape.chunks = batch.chunks
    batch.num_members = turn.shape.num_sequences
    batch.group, batch.feeds = turn.group, True
    batch.step = turn.step + num_rounds * pipeline.turn_interval


cdef void drop_rounds(Rounds* rounds, RunAhead* run, Pipeline* pipeline, int32_t count) noexcept nogil:
    cdef int32_t depth = run.behind + 1, k
    for k in range(depth):                  # in order: each is read, if at all, before it is written
        move_to_round(rounds, run, pipeline, batch_at(pipeline, k), count + k)
    pipeline.last_end_ns = run.ends_ns[count - 1]
    run.length -= count
    if run.length > 1:
        memmove(run.ends_ns, run.ends_ns + count, (run.length + run.behind) * sizeof(int64_t))
        memmove(run.used_blocks, run.used_blocks + count, (run.length + run.behind) * sizeof(int32_t))
        memmove(rounds.visits, &rounds.visits[count * pipeline.num_stages],
                <size_t>(run.length + run.behind) * pipeline.num_stages * sizeof(StageVisit))
        for k in range(rounds.num_turns):
            rounds.turns[k].shape, rounds.turns[k].step = (
                batch_at(pipeline, k).shape, batch_at(pipeline, k).step)
            rounds.turns[k].group = batch_at(pipeline, k).group
