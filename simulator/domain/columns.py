"""The columns of results.h5: unit and meaning of each, for the file itself, for `describe` and for tests.

Times are instants on the simulated clock, which begins at 0; -1 where the thing never happened. Counts and codes have
no unit. The labels of codes are in `CODES`.
"""
from typing import NamedTuple

from simulator.domain import records


class Column(NamedTuple):
    """One column of a table."""

    unit: str           # "ns", "tokens", "blocks"; "": a count, a code or an index
    text: str           # what it says


def _columns(**given: tuple[str, str]) -> dict[str, Column]:
    return {name: Column(*column) for name, column in given.items()}


REQUESTS = _columns(
    request_id=("", "the id of the trace, or the row number"),
    arrival_ns=("ns", "it came"),
    enqueued_ns=("ns", "it entered the waiting queue of its replica; -1: never, so for all times below"),
    scheduled_ns=("ns", "it was first scheduled"),
    first_token_ns=("ns", "its client saw the first token"),
    completed_ns=("ns", "its client saw the last token"),
    prompt_tokens=("tokens", "length of the prompt"),
    output_tokens=("tokens", "generated and kept"),
    cached_tokens=("tokens", "of the prompt, found in the prefix cache at first admission"),
    preemptions=("", "times that it lost its place and its KV blocks"),
    replica=("", "row in /replicas; -1: it reached none"),
    rank=("", "which of its data-parallel ranks that is; -1: it reached none"),
    prefill_replica=("", "replica that computed the prompt for another; -1: none did"),
    status=("", "what became of it"),
    finish_reason=("", "why its output ended; vLLM's names, and max_model_len or kv_pool where engines say length too"),
    priority=("", "lower is served first"),
    slo_class=("", "place of its name in /labels/slo_class; -1: it has none; likewise the labels below"),
    tenant=("", "in /labels/tenant"),
    session=("", "in /labels/session"),
    model=("", "in /labels/model"),
    adapter=("", "in /labels/adapter"),
    grammar=("", "in /labels/grammar"),
    admitted_ns=("ns", "the admission policy let it in"),
    dispatched_ns=("ns", "it was sent to a replica, the last time"),
    downtime_ns=("ns", "duration: without progress, for failures and migrations"),
    retries=("", "times that it was sent elsewhere since its replica failed"),
    migrations=("", "times that it moved to another replica which had not failed"),
    cause=("", "why it was not served"),
    scheduled_arrival_ns=("ns", "it was ready to come; with [workload.load], like the next"),
    client_queue_ns=("ns", "duration: it waited at its client for a slot"),
    measured=("", "1: it counts in the summary; with [workload.measure] or [workload.warmup]"),
    due_ns=("ns", "its client wants the whole answer by then; -1: by no time"),
    expected_tokens=("tokens", "of output, as policies knew it; -1: nothing was known, likewise below"),
    reasoning_tokens=("tokens", "of the output, that come before the answer"),
    first_answer_ns=("ns", "its client saw the first token of the answer"),
    num_images=("", "in its prompt"),
    image_tokens=("tokens", "of its prompt that are images"),
    encoded_tokens=("tokens", "of images, encoded for it, again after a preemption; with [engine.encoder]"),
    loaded_tokens=("tokens", "of its text, given by KV tiers, again after a preemption; with [kv_tiers], as the next"),
    stored_tokens=("tokens", "of its text, written to KV tiers for it"),
    execution_ns=("ns", "duration: the stages of its batches executed; with output.vidur_csv, as the next"),
    preempted_ns=("ns", "duration: between one such stage and the next, be it a restart, a hand-over or a busy stage"),
    prefill_done_ns=("ns", "its prefill replica had computed the prompt; with pools for prefill, likewise below"),
    transfer_start_ns=("ns", "its KV began to move to its decode replica, behind the handshake"),
    transfer_end_ns=("ns", "all of it had come"),
    transfer_bytes=("bytes", "on the wire; 0: none moved"),
)
ITERATIONS = _columns(
    replica=("", "row in /replicas"),
    stage=("", "pipeline stage, from 0"),
    start_ns=("ns", "it was scheduled; of later stages: it entered them"),
    duration_ns=("ns", "duration of its execution in this stage"),
    sequences=("", "requests that it advanced"),
    prefill_tokens=("tokens", "computed of prompts, recomputed ones too"),
    decode_tokens=("tokens", "computed for decoding requests, drafts too"),
    context_tokens=("tokens", "in KV after it, summed over decoding requests"),
    waiting=("", "requests in the waiting queue after scheduling; likewise below"),
    running=("", "requests in the running list"),
    used_blocks=("blocks", "KV blocks in use, the null block not counted"),
    preempted=("", "requests that lost their place for it"),
    padded_tokens=("tokens", "computed, those that pad the batch to the size of a CUDA graph included"),
    encoder_tokens=("tokens", "embeddings that encoders computed before it"),
    begin_ns=("ns", "the accelerator began it in this stage: later than start_ns where batches were ahead of it"),
    rank=("", "which of the data-parallel ranks of its replica that is; 0 where there are none"),
)
REPLICAS = _columns(
    replica=("", "its number"),
    num_blocks=("blocks", "KV blocks, the null block not counted"),
    peak_used_blocks=("blocks", "most in use at once"),
    rank=("", "which of the data-parallel ranks of its replica this is; 0 where there are none"),
    iterations=("", "that computed at least one token"),
    preemptions=("", "of its requests"),
    requests=("", "sent there"),
    completed=("", "of these"),
    busy_ns=("ns", "duration: iterations executed"),
    used_block_ns=("blocks x ns", "used blocks integrated over busy_ns"),
    prefix_query_tokens=("tokens", "looked up in the prefix cache at first admissions"),
    prefix_hit_tokens=("tokens", "of these, found"),
    prefill_tokens=("tokens", "computed of prompts"),
    decode_tokens=("tokens", "computed for decoding requests"),
)
KV_TIERS = _columns(
    replica=("", "row in /replicas; -1: all of them, a store that they share"),
    level=("", "0: host memory; then as the experiment lists them"),
    capacity_chunks=("chunks", "that fit"),
    used_chunks=("chunks", "that were there at the end"),
    stores=("", "copies to it that were done"),
    stored_chunks=("chunks", "that they brought"),
    loads=("", "copies from it that were done"),
    loaded_chunks=("chunks", "that they took"),
    evicted_chunks=("chunks", "that went for others"),
    thrashed_chunks=("chunks", "that were taken less than 1 ms after they had come, where blocks are moved"),
    refusals=("", "offers for which there was no room"),
    flushed=("", "stores that an iteration waited for"),
    waited_ns=("ns", "duration: iterations waited for copies"),
    cancelled=("", "copies that came to nothing, since the replica failed"),
    started=("", "copies to it and from it that were asked for"),
    underway=("", "of these, neither done nor cancelled at the end"),
    hit_chunks=("chunks", "that were found there and read for a request"),
    store_busy_ns=("ns", "duration: the copies to it would take that long one by one"),
    load_busy_ns=("ns", "duration: the same for copies from it"),
    stored_bytes=("bytes", "copied to it, of all accelerators together"),
    loaded_bytes=("bytes", "copied from it"),
)
REPLICA_SAMPLES = _columns(
    time_ns=("ns", "just before whatever else happened at that instant"),
    replica=("", "row in /replicas"),
    waiting=("", "requests in the waiting queue"),
    running=("", "requests in the running list"),
    used_blocks=("blocks", "KV blocks in use, the null block not counted"),
    in_flight=("", "requests sent there and not gone"),
)
DECISIONS = _columns(
    time_ns=("ns", "the router decided"),
    score=("", "of the chosen replica; NaN: none was chosen"),
    best_score=("", "of all candidates; NaN: there was none"),
    regret=("", "best_score - score, at least 0"),
    request=("", "row in /requests"),
    replica=("", "row in /replicas; -1: none could take it"),
    num_candidates=("", "replicas that could have been chosen"),
    entrance=("", "index of the served model"),
)
CANDIDATES = _columns(
    decision=("", "row in /decisions"),
    score=("", "of this replica"),
    rank=("", "0: the best; among equals the lower replica comes first"),
    replica=("", "row in /replicas"),
    waiting=("", "requests in its waiting queue, as the router saw it; likewise below"),
    running=("", "requests in its running list"),
    in_flight=("", "requests sent there and not gone"),
    used_blocks=("blocks", "KV blocks in use"),
    free_blocks=("blocks", "KV blocks free"),
)
LIFECYCLE = _columns(
    time_ns=("ns", "from then on"),
    replica=("", "row in /replicas"),
    state=("", "the stage of its life"),
    cause=("", "what changed it"),
)
LEGS = _columns(
    sent_ns=("ns", "the gateway sent the request there, or its move there began"),
    enqueued_ns=("ns", "it, or its KV, got there; -1: never, so for the times below"),
    scheduled_ns=("ns", "it was first scheduled there, or went on there"),
    ended_ns=("ns", "it left"),
    request=("", "row in /requests"),
    replica=("", "row in /replicas"),
    cached_tokens=("tokens", "of its text, found in the KV cache when it was first scheduled there"),
    external_tokens=("tokens", "of its text, loaded from elsewhere"),
    role=("", "which part of the work it did there"),
    how=("", "in which way it left"),
)

ENCODE_JOBS = _columns(
    queued_ns=("ns", "it came to the replica"),
    start_ns=("ns", "the batch that has it began; -1: never, so for the times below"),
    end_ns=("ns", "that batch ended"),
    sent_ns=("ns", "its embeddings began to leave"),
    transferred_ns=("ns", "they had come to where the prompt is computed"),
    request=("", "row in /requests"),
    item=("", "number in its prompt"),
    replica=("", "of the encode pools, numbered pool by pool"),
    embeddings=("", "that it is"),
    hit=("", "1: what it shows was there already, or is computed for another item of the batch"),
)

TABLES = {"requests": REQUESTS, "iterations": ITERATIONS, "replicas": REPLICAS, "replica_samples": REPLICA_SAMPLES,
          "decisions": DECISIONS, "candidates": CANDIDATES, "lifecycle": LIFECYCLE, "legs": LEGS,
          "kv_tiers": KV_TIERS, "encode_jobs": ENCODE_JOBS}
# Columns that hold codes: the label of code i is the i-th.
CODES = {"requests": {"status": records.STATUS_NAMES, "finish_reason": records.FINISH_NAMES,
                      "cause": records.CAUSE_NAMES},
         "lifecycle": {"state": records.STAGE_NAMES, "cause": records.LIFECYCLE_CAUSES},
         "legs": {"role": records.LEG_ROLES, "how": records.LEG_ENDS}}
# Columns whose codes are places in /labels, -1 for none.
LABELS = ("slo_class", "tenant", "session", "model", "adapter", "grammar")
