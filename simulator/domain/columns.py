"""The columns of results.h5: unit and meaning of each, for the file itself, for `describe` and for tests.

Times are instants on the simulated clock, which begins at 0; -1 where the thing never happened. Counts and codes have
no unit. The labels of codes are in `CODES`.
"""
from typing import NamedTuple

import numpy as np

from simulator.domain import records


class Column(NamedTuple):
    """One column of a table."""

    unit: str           # "ns", "tokens", "blocks"; "": a count, a code or an index
    text: str           # meaning
    merge: str = "last"     # value of a request with a prefill leg, see `folded`


def _columns(**given: tuple[str, str]) -> dict[str, Column]:
    return {name: Column(*column) for name, column in given.items()}


def folded(values: np.ndarray, num_requests: int, merge: str) -> np.ndarray:
    """Return one value for each request, given further ones for prefill legs.

    values : of each request; then of its prefill leg, if there are such.
    merge : "sum" or "max" of the two legs, or "last": that of the decode leg.
    """
    own, legs = values[:num_requests], values[num_requests:]
    if not len(legs) or merge == "last":
        return own
    return {"sum": np.add, "max": np.maximum}[merge](own, legs)


REQUESTS = _columns(
    request_id=("", "the id of the trace, or the row number"),
    arrival_ns=("ns", "time of arrival"),
    enqueued_ns=("ns", "it entered the waiting queue of its replica; -1: never (so for all times in this table)"),
    scheduled_ns=("ns", "it was first scheduled"),
    first_token_ns=("ns", "its client saw the first token"),
    completed_ns=("ns", "its client saw the last token"),
    prompt_tokens=("tokens", "length of the prompt"),
    output_tokens=("tokens", "output tokens generated and kept"),
    cached_tokens=("tokens", "prompt tokens found in the prefix cache at first admission"),
    preemptions=("", "times that it lost its slot and its KV blocks"),
    replica=("", "row in /replicas; -1: it reached no replica"),
    rank=("", "data-parallel rank of that replica; -1: it reached none"),
    prefill_replica=("", "replica that computed the prompt for another; -1: none did"),
    status=("", "final status of the request"),
    finish_reason=("", "why its output ended; vLLM's names, and max_model_len or kv_pool where engines say length too"),
    priority=("", "lower is served first"),
    slo_class=("", "index of its name in /labels/slo_class; -1: none"),
    tenant=("", "index of its name in /labels/tenant; -1: none"),
    session=("", "index of its name in /labels/session; -1: none"),
    model=("", "index of its name in /labels/model; -1: none"),
    adapter=("", "index of its name in /labels/adapter; -1: none"),
    grammar=("", "index of its name in /labels/grammar; -1: none"),
    admitted_ns=("ns", "the admission policy let it in"),
    dispatched_ns=("ns", "it was sent to a replica, the last time"),
    downtime_ns=("ns", "duration: without progress, due to failures and migrations"),
    retries=("", "times that it was sent elsewhere because its replica failed"),
    migrations=("", "times that it moved from a replica that had not failed"),
    cause=("", "why it was not served"),
    scheduled_arrival_ns=("ns", "it was ready to be sent; with [workload.load]"),
    client_queue_ns=("ns", "duration: it waited at its client for a slot; with [workload.load]"),
    measured=("", "1: it counts in the summary; with [workload.measure] or [workload.warmup]"),
    due_ns=("ns", "its client wants the whole answer by then; -1: no deadline"),
    expected_tokens=("tokens", "predicted output tokens, as policies see them; -1: no prediction"),
    reasoning_tokens=("tokens", "output tokens before the answer; -1: not known"),
    first_answer_ns=("ns", "its client saw the first token of the answer"),
    num_images=("", "images and videos in its prompt; -1: not known"),
    image_tokens=("tokens", "prompt tokens that are images and videos; -1: not known"),
    encoded_tokens=("tokens", "image tokens encoded for it, again after a preemption; with [engine.encoder]",
                    "sum"),
    loaded_tokens=("tokens", "tokens of its text read from KV tiers, again after a preemption; with [kv_tiers]", "sum"),
    stored_tokens=("tokens", "tokens of its text written to KV tiers for it; with [kv_tiers]", "sum"),
    execution_ns=("ns", "duration: the stages of its batches executed; with output.vidur_csv"),
    preempted_ns=("ns", "duration: between the end of one stage of its batches and the start of the next: restarts, "
                  "hand-overs, busy stages; with output.vidur_csv"),
    prefill_done_ns=("ns", "its prefill replica had computed the prompt; with prefill pools"),
    transfer_start_ns=("ns", "its KV began to move to its decode replica, after the handshake; with prefill pools"),
    transfer_end_ns=("ns", "all of its KV had arrived at its decode replica; with prefill pools"),
    transfer_bytes=("bytes", "bytes of its KV sent to its decode replica; 0: none; with prefill pools"),
)
ITERATIONS = _columns(
    replica=("", "row in /replicas"),
    stage=("", "pipeline stage, from 0"),
    start_ns=("ns", "it was scheduled; of later stages: it entered them"),
    duration_ns=("ns", "duration of its execution in this stage"),
    sequences=("", "requests that it advanced"),
    prefill_tokens=("tokens", "prompt tokens computed, including recomputed ones"),
    decode_tokens=("tokens", "tokens computed for decoding requests, including drafts"),
    context_tokens=("tokens", "tokens in KV after it, summed over decoding requests"),
    waiting=("", "requests in the waiting queue after scheduling"),
    running=("", "requests in the running list after scheduling"),
    used_blocks=("blocks", "KV blocks in use after scheduling, the null block not counted"),
    preempted=("", "requests preempted when it was scheduled; a round that preempts and computes nothing has no row"),
    padded_tokens=("tokens", "tokens computed, including padding to the size of a CUDA graph"),
    encoder_tokens=("tokens", "embeddings that encoders computed before it"),
    begin_ns=("ns", "the accelerator began it in this stage: later than start_ns where batches were ahead of it"),
    rank=("", "data-parallel rank of its replica; 0 where there are none"),
)
REPLICAS = _columns(
    replica=("", "number of the replica"),
    num_blocks=("blocks", "KV blocks, the null block not counted"),
    peak_used_blocks=("blocks", "most KV blocks in use at once"),
    rank=("", "data-parallel rank of its replica; 0 where there are none"),
    iterations=("", "iterations that computed at least one token"),
    preemptions=("", "preemptions of its requests"),
    requests=("", "requests sent to it"),
    completed=("", "requests sent to it that are complete"),
    busy_ns=("ns", "duration: iterations executed"),
    used_block_ns=("blocks x ns", "used blocks integrated over busy_ns"),
    prefix_query_tokens=("tokens", "prompt tokens looked up in the prefix cache at first admissions"),
    prefix_hit_tokens=("tokens", "prompt tokens found there (of prefix_query_tokens)"),
    prefill_tokens=("tokens", "prompt tokens computed"),
    decode_tokens=("tokens", "tokens computed for decoding requests"),
)
KV_TIERS = _columns(
    replica=("", "row in /replicas; -1: a store that all replicas share"),
    level=("", "0: host memory; then levels in the order of the experiment"),
    capacity_chunks=("chunks", "chunks that fit in the level"),
    used_chunks=("chunks", "chunks in the level at the end"),
    stores=("", "completed copies to the level"),
    stored_chunks=("chunks", "chunks copied to it"),
    loads=("", "completed copies from the level"),
    loaded_chunks=("chunks", "chunks copied from it"),
    evicted_chunks=("chunks", "chunks evicted to make room for others"),
    thrashed_chunks=("chunks", "chunks read less than 1 ms after they were stored, where blocks are moved"),
    refusals=("", "offers refused for lack of room"),
    flushed=("", "stores that an iteration waited for"),
    waited_ns=("ns", "duration: iterations waited for copies"),
    cancelled=("", "copies abandoned because the replica failed"),
    started=("", "copies to it and from it that were started"),
    underway=("", "started copies neither done nor cancelled at the end"),
    hit_chunks=("chunks", "chunks found there and read for a request"),
    store_busy_ns=("ns", "duration: time its link would need for the copies to it, one by one"),
    load_busy_ns=("ns", "duration: time its link would need for the copies from it, one by one"),
    stored_bytes=("bytes", "bytes copied to it, summed over accelerators"),
    loaded_bytes=("bytes", "bytes copied from it, summed over accelerators"),
)
REPLICA_SAMPLES = _columns(
    time_ns=("ns", "instant of the sample, before any other event at that instant"),
    replica=("", "row in /replicas"),
    waiting=("", "requests in the waiting queue"),
    running=("", "requests in the running list"),
    used_blocks=("blocks", "KV blocks in use, the null block not counted"),
    in_flight=("", "requests sent to it, or promised by a router that counts these, that have not left"),
)
SAMPLED_REQUESTS = {name: REQUESTS[name] for name in (
    "request_id", "arrival_ns", "enqueued_ns", "scheduled_ns", "first_token_ns", "completed_ns", "prompt_tokens",
    "output_tokens", "cached_tokens", "preemptions", "replica", "status")}
DECISIONS = _columns(
    time_ns=("ns", "instant of the router's decision"),
    score=("", "score of the chosen replica; NaN: none was chosen"),
    best_score=("", "highest score of all candidates; NaN: there was none"),
    regret=("", "best_score - score, at least 0"),
    request=("", "row in /requests"),
    replica=("", "row in /replicas; -1: no replica could take the request"),
    num_candidates=("", "replicas that could have been chosen"),
    entrance=("", "index of the served model"),
)
CANDIDATES = _columns(
    decision=("", "row in /decisions"),
    score=("", "score of this replica"),
    rank=("", "0: the best; among equals the lower replica is first"),
    replica=("", "row in /replicas"),
    waiting=("", "requests in its waiting queue, as the router saw it"),
    running=("", "requests in its running list, as the router saw it"),
    in_flight=("", "requests sent there that have not left, as the router saw it"),
    used_blocks=("blocks", "KV blocks in use, as the router saw it"),
    free_blocks=("blocks", "KV blocks free, as the router saw it"),
)
LIFECYCLE = _columns(
    time_ns=("ns", "instant at which the state begins"),
    replica=("", "row in /replicas"),
    state=("", "new state of the replica"),
    cause=("", "cause of the change"),
)
LEGS = _columns(
    sent_ns=("ns", "the gateway sent the request to the replica, or its move there began"),
    enqueued_ns=("ns", "the request, or its KV, arrived there; -1: never (so for the times below)"),
    scheduled_ns=("ns", "it was first scheduled there, or resumed there"),
    ended_ns=("ns", "it left the replica"),
    request=("", "row in /requests"),
    replica=("", "row in /replicas"),
    cached_tokens=("tokens", "tokens of its text found in the KV cache when it was first scheduled there"),
    external_tokens=("tokens", "tokens of its text loaded from elsewhere"),
    role=("", "part of the work that the replica did"),
    how=("", "how the request left the replica"),
)

ENCODE_JOBS = _columns(
    queued_ns=("ns", "the item arrived at the replica"),
    start_ns=("ns", "the batch that contains it began; -1: never (so for the times below)"),
    end_ns=("ns", "that batch ended"),
    sent_ns=("ns", "its embeddings began to be sent"),
    transferred_ns=("ns", "its embeddings had arrived where the prompt is computed"),
    request=("", "row in /requests"),
    item=("", "number of the item in its prompt"),
    replica=("", "replica of the encode pools, numbered pool by pool"),
    embeddings=("", "number of embeddings of the item"),
    hit=("", "1: its content was cached already, or is computed for another item of the batch"),
)

TABLES = {"requests": REQUESTS, "iterations": ITERATIONS, "replicas": REPLICAS, "replica_samples": REPLICA_SAMPLES,
          "decisions": DECISIONS, "candidates": CANDIDATES, "lifecycle": LIFECYCLE, "legs": LEGS,
          "kv_tiers": KV_TIERS, "encode_jobs": ENCODE_JOBS, "sampled_requests": SAMPLED_REQUESTS}
# Columns that hold codes: the label of code i is the i-th.
CODES = {"requests": {"status": records.STATUS_NAMES, "finish_reason": records.FINISH_NAMES,
                      "cause": records.CAUSE_NAMES},
         "sampled_requests": {"status": records.STATUS_NAMES},
         "lifecycle": {"state": records.STAGE_NAMES, "cause": records.LIFECYCLE_CAUSES},
         "legs": {"role": records.LEG_ROLES, "how": records.LEG_ENDS}}
# Columns of codes that are indices into /labels, -1 for none.
LABELS = ("slo_class", "tenant", "session", "model", "adapter", "grammar")
