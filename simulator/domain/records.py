"""NumPy dtypes of the records in request.pxd and tables.pxd.

A test holds the two definitions together.
"""
import numpy as np

STATUS_NAMES = ("pending", "waiting", "running", "completed", "rejected", "dropped", "timed_out", "failed",
                "not_sent")
PENDING, WAITING, RUNNING, COMPLETED, REJECTED, DROPPED, TIMED_OUT, FAILED, NOT_SENT = range(9)

CAUSE_NAMES = ("", "admission", "queue_full", "shed", "expired", "recalled", "no_replica", "lost", "kv_load_failed",
               "max_num_queued_reqs", "max_num_queued_tokens")

# Why an output ended: vLLM's FinishReason (vllm/v1/engine/__init__.py: stop, length, abort, error), and reasons that
# vLLM does not distinguish: it says length for max_model_len too.
FINISH_NAMES = ("", "stop", "length", "max_model_len", "timeout", "error", "abort", "rejected", "cancelled",
                "kv_pool")
UNENDED, STOP, LENGTH, MAX_MODEL_LEN, TIMEOUT, ERROR, ABORT, REFUSED, CANCELLED, KV_POOL = range(10)

NEVER_NS = -1


def _record(**fields):
    return np.dtype(list(fields.items()), align=True)


REQUEST = _record(
    arrival_ns="i8", enqueued_ns="i8", scheduled_ns="i8", first_token_ns="i8", completed_ns="i8",
    prompt_tokens="i4", output_tokens="i4", cached_tokens="i4", preemptions="i4", replica="i4",
    status="i1", spare=("i1", 3))
DEMAND = _record(
    deadline_ns="i8", due_ns="i8", max_tokens="i4", priority="i4", tie_rank="i4", segments_begin="i4",
    num_segments="i4", slo_class="i4", tenant="i4", session="i4", model="i4", adapter="i4", grammar="i4",
    expected_tokens="i4")
OUTCOME = _record(output_tokens="i4")
SEGMENT = _record(stream="i8", num_tokens="i8")
ITEM = _record(content="i4", offset="i4", tokens="i4")
ITERATION = _record(
    replica="i4", stage="i4", start_ns="i8", duration_ns="i8", sequences="i4", prefill_tokens="i4", decode_tokens="i4",
    waiting="i4", context_tokens="i8", running="i4", used_blocks="i4", preempted="i4", rank="i4",
    padded_tokens="i4", encoder_tokens="i4", begin_ns="i8")
REPLICA = _record(
    replica="i4", num_blocks="i4", peak_used_blocks="i4", rank="i4", iterations="i8", preemptions="i8", requests="i8",
    completed="i8", busy_ns="i8", used_block_ns="f8", prefix_query_tokens="i8", prefix_hit_tokens="i8",
    prefill_tokens="i8", decode_tokens="i8")
REPLICA_STATE = _record(
    time_ns="i8", iterations="i8", waiting_prefill_tokens="i8", running_prefill_tokens="i8",
    unallocated_prefill_tokens="i8", waiting_tokens="i8", running_tokens="i8", loading_tokens="i8", iteration_ns="i8",
    preemptions="i8", prefix_query_tokens="i8", prefix_hit_tokens="i8", cache_hit_rate="f8",
    iteration_prefill_tokens="i4", waiting="i4", running="i4", loading="i4", used_blocks="i4", num_blocks="i4",
    block_size="i4", max_running="i4", max_batched_tokens="i4", is_silent="i4")
REPLICA_ACCOUNT = _record(
    in_flight_tokens="i8", expected_tokens="i8", dispatched="i8", up_since_ns="i8", in_flight="i4", replica="i4",
    pool="i4", node="i4", unit="i4", infer_type="i1", is_routable="i1", spare=("i1", 2))
JOURNEY = _record(
    admitted_ns="i8", dispatched_ns="i8", downtime_ns="i8", retries="i4", migrations="i4", cause="i1", spare=("i1", 7))
KV_TIER = _record(
    replica="i4", level="i4", capacity_chunks="i8", used_chunks="i8", stores="i8", stored_chunks="i8", loads="i8",
    loaded_chunks="i8", evicted_chunks="i8", thrashed_chunks="i8", refusals="i8", flushed="i8", waited_ns="i8",
    cancelled="i8", started="i8", underway="i8",
    hit_chunks="i8", store_busy_ns="i8", load_busy_ns="i8", stored_bytes="f8", loaded_bytes="f8")
TIER_USE = _record(loaded_tokens="i4", stored_tokens="i4")
EXECUTION = _record(execution_ns="i8", preempted_ns="i8", first_ns="i8", left_ns="i8")
TOKEN = _record(time_ns="i8", request="i4", tokens="i4")
SAMPLE = _record(time_ns="i8", replica="i4", waiting="i4", running="i4", used_blocks="i4", in_flight="i4", spare="i4")
DECISION = _record(
    time_ns="i8", score="f8", best_score="f8", regret="f8", request="i4", replica="i4", num_candidates="i4",
    entrance="i4")
CANDIDATE = _record(
    decision="i8", score="f8", rank="i4", replica="i4", waiting="i4", running="i4", in_flight="i4", used_blocks="i4",
    free_blocks="i4", spare="i4")
LIFECYCLE = _record(time_ns="i8", replica="i4", state="i1", cause="i1", spare="i2")

LEG = _record(
    sent_ns="i8", enqueued_ns="i8", scheduled_ns="i8", ended_ns="i8", request="i4", replica="i4", cached_tokens="i4",
    external_tokens="i4", role="i1", how="i1", spare="6i1")
TRANSFER = _record(
    prefill_done_ns="i8", start_ns="i8", end_ns="i8", num_bytes="i8", prefill_replica="i4", decode_replica="i4",
    decode_place="i4", prefill_slot="i4", decode_slot="i4", loaded_tokens="i4", carrier="i4",
    computed_tokens="i4", sent_tokens="i4", under_way="i4", lease="i4", stage="i1", has_begun="i1", has_met="i1",
    is_tail="i1", is_local="i1", is_promised="i1", spare=("i1", 2))
ENCODE_JOB = _record(
    queued_ns="i8", start_ns="i8", end_ns="i8", sent_ns="i8", transferred_ns="i8", request="i4", item="i4",
    replica="i4", embeddings="i4", hit="i1", spare=("i1", 7))
LEG_ENDS = ("underway", "completed", "handed_over", "moved", "retried", "ended")
LEG_ROLES = ("whole", "prefill", "decode")

# What LIFECYCLE.state and LIFECYCLE.cause mean; see engine/operations/lifecycle.pxd.
STAGE_NAMES = ("off", "provisioning", "loading", "warming", "up", "draining", "slow", "cut_off", "down")
LIFECYCLE_CAUSES = ("start", "scaling", "failure", "detection", "recovery", "reopening", "cooldown", "breaker",
                    "unbarred", "restart")


def has_come(status: np.ndarray) -> np.ndarray:
    """Return which requests have arrived: not those that never will, or may yet."""
    return (status != PENDING) & (status != NOT_SENT)


def named_stream(code: int) -> int:
    """Return the code of a shared, named token stream."""
    return code << 2


def own_stream(row: int) -> int:
    """Return the code of the token stream that belongs to request `row` alone."""
    return (row << 2) | 1


def output_stream(row: int) -> int:
    """Return the code of the stream of tokens that request `row` generates."""
    return (row << 2) | 2
