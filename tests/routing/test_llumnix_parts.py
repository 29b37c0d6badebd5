"""The parts of Llumnix's scheduler: tables, predictor, account, counts of lite mode, keys of chunks."""
import hashlib
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simulator
from simulator.routing.llumnix.candidates import CANDIDATE, Candidates
from simulator.routing.llumnix.composition import FAILOVER_DOMAINS, INFER_TYPES, METRIC_NAMES, FilterSpec, SelectorSpec
from simulator.routing.llumnix.predictor import ProfileTable
from support.llumnix_faces import (
    AccountFace,
    LiteFace,
    PredictorFace,
    filtered,
    orders_before,
    prefill_ms_in,
    selected,
    value_in,
    value_of,
)
from support.llumnix_hashes import chunk_keys, xxh64

ROWS, REPLICAS = 6, 3


@given(st.floats(0, 10), st.floats(0, 7))
def test_a_table_of_a_bilinear_function_is_that_function(row, column):
    table = ProfileTable([(a, b, 3 + 2 * a + 5 * b + 0.5 * a * b) for a in (0, 1, 4, 10) for b in (0, 2, 3, 7)])

    if (row, column) != (0, 0):
        assert value_in(table, row, column) == pytest.approx(3 + 2 * row + 5 * column + 0.5 * row * column, rel=1e-12)


def test_a_table_ends_where_its_grid_ends():
    table = ProfileTable([(1, 1, 1), (1, 2, 2), (2, 1, 3)])

    assert value_in(table, 1, 1.5) == 1.5
    assert value_in(table, 1.5, 1.5) is None        # the corner (2, 2) was not profiled
    assert value_in(table, 0.5, 1) is None
    assert value_in(table, 1, 3) is None
    assert value_in(ProfileTable(()), 1, 1) is None


def test_chunks_cost_the_same_wherever_they_stand():
    table = ProfileTable([(n, 0, 0.1 * n) for n in (0, 1000)])

    assert prefill_ms_in(table, 250, 100, 7.0) == pytest.approx(10 + 7 + 10 + 7 + 5 + 7)
    assert prefill_ms_in(table, 0, 100, 7.0) == 0


@given(st.tuples(st.floats(0.1, 10), st.floats(0.001, 0.1), st.floats(0, 1e-5)),
       st.lists(st.integers(1, 8192), min_size=5, max_size=30, unique=True))
@settings(max_examples=50)
def test_the_predictor_finds_the_quadratic_behind_its_samples(coefficients, tokens):
    constant, slope, curve = coefficients
    predictor = PredictorFace(5)
    for each in tokens:
        predictor.learn(each, constant + slope * each + curve * each * each)

    assert predictor.refit()
    for each in tokens:
        assert predictor.duration_ms(each) == pytest.approx(constant + slope * each + curve * each**2, rel=1e-5)


def test_the_predictor_takes_the_mean_of_samples_at_one_place():
    predictor = PredictorFace(3)
    for duration_ms in (10, 20, 30):
        predictor.learn(5, duration_ms)

    assert predictor.refit()
    assert predictor.duration_ms(5) == pytest.approx(20)
    assert predictor.duration_ms(1000) == pytest.approx(20)


def test_the_predictor_waits_for_its_warm_up():
    predictor = PredictorFace(2)
    predictor.learn(1, 1)

    assert not predictor.refit()


@given(st.integers(0, 10000), st.integers(0, 3000), st.integers(0, 500))
def test_progress_is_between_nothing_and_all(backlog, running, age_ms):
    predictor = PredictorFace(2)
    predictor.learn(0, 1)
    predictor.learn(1000, 41)
    predictor.refit()

    assert 0 <= predictor.progress(backlog, running, 1024, age_ms) <= backlog


ROLES = st.sampled_from(INFER_TYPES)
ACCOUNT_OPS = st.lists(st.one_of(
    st.tuples(st.just("sent"), st.integers(0, ROWS - 1), st.integers(0, REPLICAS - 1), ROLES),
    st.tuples(st.just("left"), st.integers(0, ROWS - 1), st.integers(-1, REPLICAS - 1)),
    st.tuples(st.just("status"), st.integers(0, REPLICAS - 1), st.sets(st.integers(0, ROWS - 1)),
              st.sets(st.integers(0, ROWS - 1))),
    st.tuples(st.just("back"), st.integers(0, REPLICAS - 1))), max_size=40)


@given(ACCOUNT_OPS)
@settings(max_examples=150)
def test_counters_are_the_sums_of_what_no_status_has_shown(ops):
    candidates = Candidates(REPLICAS)
    account = AccountFace(REPLICAS, ROWS, candidates)

    for now_s, (name, *given_values) in enumerate(ops):
        if name == "sent":
            row, replica, role = given_values
            account.note_sent(row, replica, role, 100 + row, 0, now_s * 10**9)
        elif name == "left":
            account.note_left(*given_values)
        elif name == "status":
            replica, waited, waiting = given_values
            account.note_status(replica, waited, list(waiting), now_s * 10**9)
        else:
            account.note_restart(*given_values)
        check_account(account, candidates)


def check_account(account, candidates):
    account.check()
    for replica in range(REPLICAS):
        hidden = [each for each in account.dispatches(replica).values() if not each[3]]
        prefills = [tokens for role, _, tokens, _ in hidden if role != "decode"]
        decodes = [tokens for role, tokens, _, _ in hidden if role != "prefill"]
        row = candidates.array[replica]
        assert (row["in_flight"], row["in_flight_prefills"], row["in_flight_prefill_tokens"]) == (
            len(hidden), len(prefills), sum(prefills))
        assert (row["in_flight_decodes"], row["in_flight_decode_tokens"]) == (len(decodes), sum(decodes))
        assert all(replica in account.replicas_of(each) for each in account.dispatches(replica))


def test_a_status_that_shows_a_request_after_it_waited_lets_it_go_at_once():
    candidates = Candidates(1)
    account = AccountFace(1, 2, candidates)
    account.note_sent(0, 0, "neutral", 100)
    account.note_sent(1, 0, "neutral", 70)

    account.note_status(0, {0}, [1], 0)         # request 1 waits, but not lately: neither seen nor given up

    assert account.dispatches(0) == {1: ("neutral", 70, 70, False)}
    assert candidates.array["in_flight"][0] == 1
    assert candidates.array["in_flight_prefill_tokens"][0] == candidates.array["in_flight_decode_tokens"][0] == 70


@pytest.mark.parametrize(("leaks", "in_flight"), [(False, 1), (True, 0)])
def test_who_comes_back_while_it_is_remembered_is_counted_anew_but_by_upstream(leaks, in_flight):
    candidates = Candidates(1)
    account = AccountFace(1, 1, candidates, leaks=leaks)
    account.note_sent(0, 0, "neutral", 100)
    account.note_status(0, {0}, [0], 0)

    account.note_sent(0, 0, "neutral", 100)

    assert candidates.array["in_flight"][0] == in_flight


LITE_OPS = st.lists(st.tuples(st.sampled_from(["sent", "tokens", "prefilled", "left", "away"]),
                              st.integers(0, ROWS - 1), st.integers(0, REPLICAS - 1), st.integers(1, 500)), max_size=40)


@given(LITE_OPS)
@settings(max_examples=150)
def test_lite_counts_are_those_of_a_plain_dictionary(ops):
    state, live = LiteFace(REPLICAS, ROWS), {}
    state.gateways.add(0)
    for replica in range(REPLICAS):
        state.register_replica(replica, 1)

    for name, row, replica, tokens in ops:
        key = (row, replica)
        if name == "sent" and any(each == row for each, _ in live):
            with pytest.raises(KeyError, match="already"):
                state.note_sent(row, replica, 0, tokens)
        elif name == "sent":
            state.note_sent(row, replica, 0, tokens)
            live[key] = [tokens, True]
        elif name == "left":
            state.note_left(row, replica)
            live = {each: value for each, value in live.items() if each[0] != row}
        elif name == "away":
            state.deregister_replica(replica)
            state.register_replica(replica, 1)
            live = {each: value for each, value in live.items() if each[1] != replica}
        elif key in live:
            if name == "tokens":
                state.note_tokens(row, replica, 0, tokens)
                live[key][0] = max(live[key][0], tokens)
            else:
                state.note_prefilled(row, replica, 0)
                live[key][1] = False
        state.check()
        for each in range(REPLICAS):
            here = [value for (_, place), value in live.items() if place == each]
            waiting = [value[0] for value in here if value[1]]
            assert state.counts_of(each) == (
                len(here), sum(value[0] for value in here), len(waiting), sum(waiting))


def test_freeness_is_the_free_tokens_for_each_decoding_sequence():
    candidates = Candidates(1)
    candidates.array["total_tokens"], candidates.array["used_tokens"] = 1000, 400
    candidates.array["running_decodes"] = 3

    assert value_of(candidates, "freeness", 0) == 200
    assert orders_before("freeness", 2.0, 1.0)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.integers(1, 9), st.integers(0, 100))
def test_a_selector_chooses_one_of_the_k_best(values, top_k, seed):
    candidates = Candidates(len(values))
    candidates.metric_array[METRIC_NAMES.index("decode_batch_size")] = values
    spec = SelectorSpec(metrics=["decode_batch_size"], top_k=top_k)

    chosen = selected(candidates, spec, range(len(values)), seed=seed)

    assert values[chosen] <= sorted(values)[min(top_k, len(values)) - 1]


@given(st.lists(st.tuples(st.booleans(), st.integers(-1, 2), st.integers(-1, 2)), min_size=1, max_size=8),
       st.sampled_from(FAILOVER_DOMAINS), st.integers(1, 2))
def test_failover_domains_are_those_of_their_definition(replicas, domain, data_parallel_size):
    candidates = Candidates(len(replicas))
    for row, (is_bad, node, unit) in zip(candidates.array, replicas, strict=True):
        row["needs_failover"], row["node"], row["unit"] = is_bad, node, unit
        row["data_parallel_size"] = data_parallel_size
    failed = {i for i, (is_bad, _, _) in enumerate(replicas) if is_bad}
    if "node" in domain:
        nodes = {replicas[i][1] for i in failed} - {-1}
        failed = {i for i, (_, node, _) in enumerate(replicas) if node in nodes}
    if "unit" in domain and data_parallel_size > 1:
        units = {replicas[i][2] for i in failed}
        failed |= {i for i, (_, _, unit) in enumerate(replicas) if unit in units}

    kept = filtered(candidates, [FilterSpec(name="failover", failover_domain=domain)], range(len(replicas)))

    assert set(kept) == set(range(len(replicas))) - failed


def test_xxh64_is_that_of_its_specification():
    # XXH64 of nothing, of one byte and of 64, seed 0, by the reference implementation 0.8
    assert xxh64(b"") == 0xEF46DB3751D8E999
    assert xxh64(b"a") == 0xD24EC4F1A98C6E5B


def test_keys_of_a_shared_beginning_are_shared():
    first, second = chunk_keys([*range(512), 1], 256), chunk_keys([*range(256), *range(256)], 256)

    assert len(first) == len(second) == 2
    assert first[0] == second[0]
    assert first[1] != second[1]


PREFIX = [1, 2, 3, 4]               # two chunks of two


def hex_rest(previous):
    """Return the key of the token 5 behind a digest: SHA-256 of digest and token, 32 bits, marked as unfull."""
    return hashlib.sha256(bytes.fromhex(previous) + struct.pack("<I", 5)).hexdigest() + "_0"


def cbor_rest(previous):
    """Likewise, of the CBOR of [digest, [5], null]: 0x83, 0x58 0x20 and 32 bytes, 0x81 0x05, 0xf6."""
    digest = bytes.fromhex(previous.removesuffix("_0"))
    return hashlib.sha256(b"\x83\x58\x20" + digest + b"\x81\x05\xf6").hexdigest() + "_0"


def xxhash_rest(_):
    """Likewise, of all tokens, 64 bits each, and zeros up to the end of the chunk."""
    return f"iris.block.hash.key.{xxh64(struct.pack('<6q', *PREFIX, 5, 0))}"


@pytest.mark.parametrize(("algorithm", "rest"), [
    ("sha256_hex", hex_rest), ("sha256_cbor", cbor_rest), ("xxhash", xxhash_rest)])
def test_a_rest_has_a_key_of_its_own_where_it_is_saved(algorithm, rest):
    whole = chunk_keys(PREFIX, 2, algorithm)

    assert len(whole) == 2
    assert chunk_keys([*PREFIX, 5], 2, algorithm) == whole
    assert chunk_keys(PREFIX, 2, algorithm, save_unfull_chunk=True) == whole
    assert chunk_keys([*PREFIX, 5], 2, algorithm, save_unfull_chunk=True) == [*whole, rest(whole[-1])]


def test_the_fallback_of_adaptive_pd_leaves_the_ttft_of_no_request():
    # 100 tokens wait at replica 0, 300 at replica 1; 0.1 ms a token
    candidates = Candidates(2, ProfileTable([(n, 0, 0.1 * n) for n in (0, 1000)]), ProfileTable([(1, 8, 5), (9, 9, 9)]))
    candidates.array["waiting_prefill_tokens"], candidates.array["max_batched_tokens"] = [100, 300], 1000
    candidates.metric_array[METRIC_NAMES.index("predicted_tpot")] = [20, 20]
    candidates.metric_array[METRIC_NAMES.index("predicted_ttft")] = [60, 80]        # with a prompt of 500

    chosen = selected(candidates, SelectorSpec(name="slo_decode_adaptive", tpot_limit_ms=42.5), range(2), True)

    assert chosen == 0
    assert candidates.metric_array[METRIC_NAMES.index("predicted_ttft")].tolist() == pytest.approx([10, 30])


def test_the_record_has_the_fields_of_the_struct():
    text = (Path(simulator.__file__).parent / "routing/llumnix/candidates.pxd").read_text()
    body = text[text.index("cdef struct Candidate:"):text.index("cdef enum:")]

    fields = re.findall(r"^    int(\d+)_t (\w+)", body, re.MULTILINE)

    assert [(name, f"i{int(bits) // 8}") for bits, name in fields] == [
        (name, CANDIDATE[name].str[1:]) for name in CANDIDATE.names]
