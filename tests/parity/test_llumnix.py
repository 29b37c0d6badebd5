"""Decisions of the real Llumnix scheduler, recorded function by function.

What upstream does is expected with upstream_compat, and by default too unless a fault of upstream decides: then the
default follows the intention, where the recording says what that is.
"""
from types import SimpleNamespace

import pytest
from msgspec import ValidationError, structs

from simulator.errors import InputErrors
from simulator.routing.llumnix.composition import INFER_TYPES, policy_names, policy_specs
from simulator.routing.llumnix.planner import MovePlanner
from simulator.routing.llumnix.predictor import ProfileTable
from simulator.routing.llumnix.rescheduler import LlumnixReschedulerParameters
from simulator.routing.llumnix.router import LlumnixParameters
from simulator.routing.rescheduling.base import Rescheduler, selected_requests
from simulator.signals.view import View
from support.llumnix import (
    NOW_NS,
    Scheduler,
    candidates_of,
    filter_spec,
    flag_defaults,
    indexed,
    keys_of,
    number,
    parameters_of,
    profile_tables,
    rescheduler_parameters_of,
    selector_spec,
)
from support.llumnix import cases as read_cases
from support.llumnix_faces import (
    PredictorFace,
    begin_at,
    decode_ms_in,
    filtered,
    note_holders,
    orders_before,
    pairs_of,
    plan_for,
    prefill_ms_in,
    reserve_all,
    selected,
    value_in,
    value_of,
)
from support.llumnix_faces import dispatch as dispatched
from support.llumnix_hashes import chunk_keys
from support.llumnix_state import local_account, lrs

CASES, DEFAULTS = read_cases(), flag_defaults()
OUTCOMES = {}                   # kind -> function of (input, upstream_compat) that returns what the case calls expected

# Why recorded outcomes are not repeated.
NOBODY = "upstream never asks a selector about nobody; ours answers that there is nobody"
NOISE = "with samples at fewer places than coefficients upstream returns the rounding noise of its linear algebra"


def outcome_of(*kinds):
    def register(function):
        OUTCOMES.update(dict.fromkeys(kinds, function))
        return function
    return register


def shows_a_fault_of_upstream(case):
    """Say whether upstream's outcome hangs on a fault that the default does not repeat; see llumnix_*.py for each."""
    kind, given, expected = case["kind"], case["input"], case["expected"]
    flags = given.get("flags", {})
    if kind == "local_account":     # a reverted prefill stays counted
        return any(op["op"] == "revert_prefill" for op in given["ops"])
    if kind == "prefix_hits":       # who has no hit misses nothing; a run that begins late counts
        held = [set(each) for each in given["kvs_hits"]]
        return any(not held or each["id"] not in held[0] for each in given["instances"])
    if kind == "dispatch":
        chosen = [each for one in expected.get("any_of", [expected]) for each in one.get("selected", ())]
        return (flags.get("enable-predictor-enhanced-scheduling", False)            # predicts nothing
                or flags.get("enable-cache-aware-scheduling", False)                # as prefix_hits
                or flags.get("enable-adaptive-pd", False)                           # limits mixed up
                or any(len(each) == 2 and each[1] is None for each in chosen))      # as local_account
    return kind == "prefill_progress"                                               # predicts nothing


def obstacle(case):
    """Return why a recorded outcome is not compared; None if it is."""
    if case["kind"] == "selector" and not case["input"]["instances"] and "panic" in case["expected"]:
        return NOBODY
    samples = case["input"].get("samples", ())
    if (case["kind"] == "quadratic" and not case["expected"].get("fit_error")
            and len({each[0] for each in samples}) < min(3, len(samples))):
        return NOISE
    return None


def runs():
    """Yield a parameter set for each comparison: with upstream_compat, and by default."""
    for file, case in CASES:
        name = f"{file}-{case['id']}"
        yield pytest.param(case, True, case["expected"], id=f"{name}-compat")
        if "intended" in case:
            yield pytest.param(case, False, case["intended"], id=f"{name}-intended")
        elif not shows_a_fault_of_upstream(case):
            yield pytest.param(case, False, case["expected"], id=f"{name}-default")


def agrees(found, expected):
    """Compare with what the case says of its outcome; ours may say more."""
    return all(key in found and equal(found[key], value, 1 if key.endswith("_approx") else 1e-6)
               for key, value in expected.items())


def pruned(found, intended):
    """Return what an intention speaks of; it is told in part."""
    if not isinstance(intended, dict):
        return found
    return {key: pruned(found[key], value) for key, value in intended.items() if key in found}


def equal(found, expected, tolerance):
    """Compare numbers as what they are upstream, float32, and all else exactly."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(
            equal(found[key], value, tolerance) for key, value in expected.items())
    if isinstance(expected, list):
        found, expected = ([] if each == [None] else each for each in (found, expected))    # nobody
        return len(found) == len(expected) and all(equal(*each, tolerance) for each in zip(found, expected))
    expected = number(expected)
    if isinstance(expected, (int, float)) and not isinstance(expected, bool):
        return isinstance(found, (int, float)) and found == pytest.approx(expected, rel=1e-6, abs=tolerance)
    return found == expected


@pytest.mark.skipif(not CASES, reason="no ../shared/goldens/llumnix here")
@pytest.mark.parametrize(("case", "upstream_compat", "expected"), list(runs()))
def test_outcome_is_that_of_upstream(case, upstream_compat, expected):
    if obstacle(case):
        pytest.skip(obstacle(case))
    if "panic" in expected:
        with pytest.raises((InputErrors, ValidationError)):
            OUTCOMES[case["kind"]](case["input"], upstream_compat)
        return
    found = OUTCOMES[case["kind"]](case["input"], upstream_compat)
    if expected is case.get("intended"):
        found = pruned(found, expected)
    assert any(agrees(found, each) for each in expected.get("any_of", [expected])), f"{found} != {expected}"


@pytest.mark.skipif(not CASES, reason="no ../shared/goldens/llumnix here")
def test_every_kind_of_case_is_known():
    assert {case["kind"] for _, case in CASES} <= set(OUTCOMES)


@outcome_of("metric")
def metric(given, _):
    candidates = candidates_of([given["instance"]], given.get("profiling"))
    return {"value": value_of(candidates, given["metric"], 0, given.get("request_tokens", 0),
                              not given.get("full_mode", True))}


@outcome_of("metric_compare")
def metric_compare(given, _):
    name, a, b = given["metric"], number(given["a"]), number(given["b"])
    forth, back = orders_before(name, a, b), orders_before(name, b, a)
    return {"a_less_b": forth, "a_value_less_b": forth, "b_less_a": back, "equal": not forth and not back}


@outcome_of("filter_single")
def filter_single(given, _):
    candidates, spec = candidates_of([given["instance"]]), filter_spec(given["filter"])
    strict = filtered(candidates, [spec], [0]) == []
    return {"filtered_out": strict, "needs_failover": bool(candidates.array["needs_failover"][0]),
            "skip_when_fallback": spec.name == "metric" and spec.skip_in_fallback}


@outcome_of("filter_global")
def filter_global(given, _):
    ordered, _ = indexed(given["instances"])
    kept = filtered(candidates_of(given["instances"]), [filter_spec(given["filter"])], range(len(ordered)))
    return {"filtered_out": [each["id"] for i, each in enumerate(ordered) if i not in kept]}


@outcome_of("filter_pipeline")
def filter_pipeline(given, _):
    ordered, _ = indexed(given["instances"])
    candidates = candidates_of(given["instances"])
    specs = [filter_spec(each) for each in (*given.get("single", ()), *given.get("global", ()))]
    kept = filtered(candidates, specs, range(len(ordered)), given.get("fallback", False))
    return {"remaining": [ordered[i]["id"] for i in kept],
            "needs_failover": [each["id"] for i, each in enumerate(ordered) if candidates.array["needs_failover"][i]]}


@outcome_of("selector")
def selector(given, _):
    ordered, index = indexed(given["instances"])
    candidates = candidates_of(given["instances"], given.get("profiling"))
    chosen = selected(candidates, selector_spec(given["selector"]), range(len(ordered)), given.get("fallback", False),
                      index.get(given["selector"].get("last_selected"), -1))
    return {"selected": ordered[chosen]["id"] if chosen >= 0 else None}


@outcome_of("dispatch")
def dispatch(given, upstream_compat):
    if not given["instances"]:
        return {"selected": [[]] * given.get("repeat", 1)}
    scheduler = Scheduler(given, upstream_compat)
    request, held = given["request"], given.get("kvs_hits")
    tokens, repeat = request["prompt_num_tokens"], given.get("repeat", 1)
    parameters, found = scheduler.parameters, []
    for turn in range(repeat):
        name = f"{request['id']}-{turn}" if repeat > 1 else request["id"]
        scheduler.rows[name] = turn
        if turn:
            begin_at(scheduler.candidates, NOW_NS)
        if parameters.enable_cache_aware_scheduling and tokens >= max(1, parameters.cache_aware_min_tokens):
            holders = [{scheduler.index[each] for each in chunk if each in scheduler.index} for chunk in held or ()]
            note_holders(scheduler.candidates, holders, parameters.kvs_chunk_size, tokens, upstream_compat)
        chosen = dispatched(scheduler.dispatcher, request["mode"], request.get("stage"), turn, tokens)
        found.append([None if each is None else scheduler.ordered[each]["id"] for each in chosen])
    names = [each["id"] for each in scheduler.ordered]
    outcome = {"selected": found, "metrics_last": {name: scheduler.metrics_of(name) for name in names},
               "ctx_after": {name: scheduler.context_of(name) for name in names}}
    if scheduler.dispatcher.account is not None:
        outcome["local_account_after"] = {name: scheduler.account_of(name) for name in names}
    return outcome


@outcome_of("reserved_election")
def reserved_election(given, _):
    ordered, _ = indexed(given["instances"])
    candidates = candidates_of(given["instances"])
    reserve_all(candidates)
    return {name: next((ordered[i]["id"] for i, each in enumerate(candidates.array["reserved"])
                        if each == INFER_TYPES.index(name)), "") for name in ("prefill", "decode")}


outcome_of("local_account")(local_account)
outcome_of("lrs")(lrs)


@outcome_of("hash")
def hashes(given, _):
    try:
        keys = chunk_keys(given["tokens"], given["chunk_size"], given["algo"], given["save_unfull_chunk"])
    except ValueError:
        return {"error": True, "hashes": None}
    return {"error": False, "hashes": keys}


@outcome_of("prefix_hits")
def prefix_hits(given, upstream_compat):
    ordered, index = indexed(given["instances"])
    candidates, tokens = candidates_of(given["instances"]), given["prompt_num_tokens"]
    holders = [{index[each] for each in chunk if each in index} for chunk in given["kvs_hits"]]
    note_holders(candidates, holders, given["chunk_size"], tokens, upstream_compat)
    return {each["id"]: {"prefix_hit_tokens": int(row["hit_tokens"]), "prefix_miss_tokens": int(row["miss_tokens"]),
                         "prefix_hit_ratio": int(row["hit_tokens"]) / tokens if tokens else 0}
            for each, row in zip(ordered, candidates.array, strict=True)}


def value_or_error(value):
    return "error" if value is None else value


@outcome_of("interpolation")
def interpolation(given, _):
    table = ProfileTable(given["samples"])
    return {"values": [value_or_error(value_in(table, *query)) for query in given["queries"]]}


@outcome_of("latency_tpot")
def latency_tpot(given, _):
    _, tpot = profile_tables(given["profiling"])
    return {"values": [value_or_error(decode_ms_in(tpot, *query)) for query in given["queries"]]}


@outcome_of("latency_ttft")
def latency_ttft(given, _):
    ttft, tpot = profile_tables(given["profiling"])
    found = []
    for tokens, sequences, texts, chunk in given["queries"]:
        decode_ms = decode_ms_in(tpot, sequences, texts)
        found.append(value_or_error(None if decode_ms is None else prefill_ms_in(ttft, tokens, chunk, decode_ms)))
    return {"values": found}


@outcome_of("quadratic")
def quadratic(given, _):
    predictor = PredictorFace(given["warmup"])
    for tokens, duration_ms in given["samples"]:
        predictor.learn(tokens, duration_ms)
    ready = predictor.refit()
    too_few = len(given["samples"]) < max(1, given["warmup"])
    return {"fit_error": too_few, "ready": ready, "values": [
        predictor.duration_ms(each[0]) if ready else "error" for each in given["queries"]]}


@outcome_of("prefill_progress")
def prefill_progress(given, upstream_compat):
    scheduler = Scheduler({
        "flags": {"enable-predictor-enhanced-scheduling": True,
                  "max-num-batched-tokens": given["max_num_batched_tokens"],
                  "num-predictor-warmup-samples": len(given["predictor_samples"])},
        "instances": [given["instance"] | {"infer_type": "prefill"}],
        "predictor_samples": given["predictor_samples"]}, upstream_compat)
    dispatched(scheduler.dispatcher, "pd_staged", "prefill", 0, 0)
    computed = int(scheduler.candidates.array["predicted_tokens"][0])
    backlog = value_of(scheduler.candidates, "all_prefills_tokens_num", 0)
    return {"all_prefills_tokens_num": backlog + computed, "num_computed_prefill_tokens_predicted": computed,
            "num_computed_prefill_tokens_predicted_approx": computed}


@outcome_of("verify_config")
def verify_config(given, upstream_compat):
    parameters = parameters_of(given["flags"], upstream_compat)
    keys = [f"dispatch-{kind}-load-metric" for kind in ("decode", "neutral", "prefill")] + [
        "enable-adaptive-pd", "enable-cache-aware-scheduling", "enable-instance-status-local-account",
        "enable-predictor-enhanced-scheduling"]
    found = {key: getattr(parameters, key.replace("-", "_")) for key in keys}
    # Nobody reads it upstream, and here it is the presence of a table.
    return found | {"enable-rescheduling": given["flags"].get("enable-rescheduling", False)
                    and parameters.mode == "full"}


@outcome_of("resched_selector")
def resched_selector(given, _):
    ordered, index = indexed(given["instances"])
    one = given["selector"]
    pairs = pairs_of(candidates_of(given["instances"]), one["type"], [index[each] for each in one["src"]],
                     [index[each] for each in one["dst"]], next(iter(one.get("metric_names", ())), None),
                     one.get("scope") == "unit", one.get("force_higher_to_lower", True))
    return {"pairs": [[ordered[a]["id"], ordered[b]["id"]] for a, b in pairs]}


@outcome_of("reschedule")
def reschedule(given, _):
    ordered, _ = indexed(given["instances"])
    parameters, names = rescheduler_parameters_of(given["flags"]), [each["id"] for each in ordered]
    rescheduler = Rescheduler(None, SimpleNamespace(view=View(len(ordered))))
    plan_for(MovePlanner(candidates_of(given["instances"], given.get("profiling")), policy_specs(parameters)),
             rescheduler, NOW_NS)
    return {"pairs": [{"src": names[source], "dst": names[destination], "rule": rule, "order": order, "value": value,
                       "trigger_policy": policy_names(parameters)[policy]}
                      for source, destination, policy, rule, order, value in rescheduler.listed()]}


@outcome_of("migration_select")
def migration_select(given, _):
    moving = set(given["already_migrating"])
    requests = [*((each, True) for each in given["running"]), *((each, False) for each in given["waiting"])]
    rows = [(i, each["prompt"] + each["output"], each["output"], is_running, each["id"] in moving)
            for i, (each, is_running) in enumerate(requests)]
    chosen = selected_requests(given["rule"], given["order"], given["value"], rows,
                               given["num_gpu_blocks"] * given["block_size"])
    return {"selected": [requests[i][0]["id"] for i in chosen]}


def test_a_fit_of_fewer_samples_than_the_warm_up_is_an_error():
    found = OUTCOMES["quadratic"]({"samples": [[1, 1], [2, 2]], "warmup": 3, "queries": [[1]]}, True)
    assert found == {"fit_error": True, "ready": False, "values": ["error"]}


@pytest.mark.skipif(not DEFAULTS, reason="no table of flags under ../shared/goldens/llumnix")
@pytest.mark.parametrize("parameters", [LlumnixParameters, LlumnixReschedulerParameters])
def test_defaults_are_those_of_upstream(parameters):
    expected = keys_of(DEFAULTS, parameters)
    found = {key: value for key, value in structs.asdict(parameters()).items() if key in expected}
    assert len(found) >= 10
    assert found == expected
