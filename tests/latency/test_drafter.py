"""What a drafter adds to iterations, by hand and in experiments."""
import msgspec
import numpy as np
import pytest

from simulator.assembly.latency import latency_model
from simulator.assembly.site import Site
from simulator.config.load import load_experiment
from simulator.domain.facts import load_accelerator, load_model
from simulator.errors import InputErrors
from simulator.latency.linear import Linear
from simulator.latency.overheads.adapters import Adapters
from simulator.latency.overheads.drafter import Drafter
from simulator.scheduling.drafters import METHODS, acceptance_of, layer_share, num_modules
from simulator.scheduling.speculative import SpeculativeParameters
from simulator.scheduling.vllm import VllmParameters
from simulator.scheduling.vllm_overheads import around
from support.engine import record
from support.small_models import deploy
from support.workloads import plain_workload

PRICES = {"base_us": 1000.0, "per_sequence_us": 10.0, "per_prefill_token_us": 2.0, "per_decode_token_us": 3.0,
          "per_context_token_us": 0.5}
TEXT = """
model.name = "deepseek-v3"
hardware.name = "h100-sxm-80gb"
topology = {tensor_parallel = 8}
engine = {num_gpu_blocks = 100, max_model_len = 1000}
workload = {type = "trace", path = "trace.csv"}
[latency]
backend = "linear"
"""


def linear():
    return Linear(Linear.Parameters(**PRICES))


def speculative(**keys):
    return msgspec.convert(keys, SpeculativeParameters)


@pytest.fixture
def load(tmp_path):
    (tmp_path / "a.toml").write_text(TEXT)
    (tmp_path / "trace.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,10,10\n")

    def loaded(**keys):
        return load_experiment(tmp_path / "a.toml", {"engine": {"speculative": keys}})

    return loaded


def us(model, *batch):
    return 1e6 * model.predict(*batch)


def test_forward_passes_by_hand():
    # Two decode four tokens each: 1000 + 2 x 10 + 8 x 3 + 0.5 x 300 us; then two passes of one token each: 18 us less.
    whole, one = 1194.0, 1176.0
    assert us(linear(), [], [100, 200], 4) == pytest.approx(whole)
    drafter = Drafter(linear(), 3, 0.1, 7.0, 2.0)
    drafting = 0.1 * (whole + 2 * one) + 3 * 7.0 + 2 * 2.0
    assert drafter.drafting_us([], [100, 200], 4) == pytest.approx(drafting)
    assert us(drafter, [], [100, 200], 4) == pytest.approx(whole + drafting)


def test_passes_of_a_draft_model_by_hand():
    # Of two sequences it computes four tokens each and the one sampled last, 1000 + 2 x 10 + 10 x 3 + 0.5 x 302 us;
    # then twice a token each: 1000 + 20 + 6 + 151.
    drafter = Drafter(linear(), 3, 0.0, 7.0, 2.0, drafter=linear())
    assert drafter.drafting_us([], [100, 200], 4) == pytest.approx(1201.0 + 2 * 1177.0 + 3 * 7.0 + 2 * 2.0)


def test_prompts_are_drafted_for_too():
    # A chunk of 50 tokens after 30 is 1000 + 10 + 100 us; then the sequence decodes with a context of 80.
    drafter = Drafter(linear(), 2, 0.5, 0.0, 0.0)
    assert us(linear(), [(50, 30)], []) == pytest.approx(1110.0)
    assert drafter.drafting_us([(50, 30)], []) == pytest.approx(0.5 * (1110.0 + us(linear(), [], [80])))


def test_no_drafts_while_no_sequence_samples():
    # The first 30 of 80 tokens of a prompt; all of them, beside them one that decodes.
    drafter = Drafter(linear(), 2, 0.5, 3.0, 2.0)
    drafter.skips = True
    assert drafter.drafting_us([(30, 0, 80)], []) == 0
    for batch in ([(30, 50, 80)], []), ([(30, 0, 80)], [100]):
        assert drafter.drafting_us(*batch) == Drafter(linear(), 2, 0.5, 3.0, 2.0).drafting_us(*batch) > 0
    assert drafter.least_iteration_ns == linear().least_iteration_ns


@pytest.mark.parametrize(("method", "version", "skips"), [
    ("eagle", "0.32", False), ("eagle", "0.33", True), ("draft_model", "0.33", True), ("ngram", "0.33", False),
    ("medusa", "0.33", False)])
def test_drafters_with_passes_are_skipped_from_033_on(method, version, skips):
    price = {"drafter_per_sequence_us": 5.0} if method == "ngram" else {"drafter_forward_us": 100.0}
    parameters = VllmParameters(vllm_version=version, speculative=speculative(method=method, num_tokens=2, **price))
    model = linear()
    for go_around in around(parameters, None):
        model = go_around(model)

    assert (model.drafting_us([(30, 0, 80)], []) == 0) == skips


def test_what_the_engine_adds_is_not_the_drafters():
    model, wrapped = linear(), Adapters(linear(), 1.5, 100.0, 0.0, 0.0)
    assert Drafter(wrapped, 2, 0.3, 0.0, 0.0).drafting_us([], [10], 3) == pytest.approx(
        Drafter(model, 2, 0.3, 0.0, 0.0).drafting_us([], [10], 3))


def test_a_look_up_takes_host_time_alone():
    drafter = Drafter(linear(), 5, 0.0, 0.0, 4.0)
    assert drafter.drafting_us([(20, 0)], [100, 200], 6) == pytest.approx(3 * 4.0)


def test_modules_that_draft_in_turn_compute_all_tokens_each():
    chain, turns = (Drafter(linear(), 3, 0.5, 0.0, 0.0) for _ in range(2))
    turns.is_whole = True
    batch = [(20, 0)], [100, 200], 4
    alone = us(linear(), *batch)
    assert turns.drafting_us(*batch) == pytest.approx(3 * 0.5 * alone)
    assert chain.drafting_us(*batch) < turns.drafting_us(*batch)


@pytest.mark.parametrize(("keys", "masks"), [
    ({"method": "dflash"}, 3), ({"method": "dspark"}, 2), ({"method": "eagle3", "parallel_drafting": True}, 2)])
def test_one_pass_makes_all_drafts(keys, masks):
    # Two decode four tokens each, and the pass computes masks besides: 3 us a token, 0.5 us a token of context.
    given = speculative(num_tokens=3, drafter_share=0.5, drafter_forward_us=70.0, acceptance=[1], **keys)
    *_, go_around = around(VllmParameters(speculative=given), None)
    model = go_around(linear())
    alone = us(linear(), [], [100, 200], 4)

    assert model.drafting_us([], [100, 200], 4) == pytest.approx(70 + 0.5 * (alone + 2 * masks * (3 + 0.5)))


@pytest.mark.parametrize(("keys", "message"), [
    ({"method": "dflash", "drafter_share": 0.1}, "acceptance: missing; expected a cycle or a table, since no measured"),
    ({"method": "dflash", "acceptance": [1]}, "drafter_share: missing; expected a number, or drafter_forward_us: what"),
    ({"method": "eagle3", "parallel_drafting": True}, "acceptance: missing; .* no measured acceptance of drafts from"),
    ({"method": "mtp", "parallel_drafting": True}, "parallel_drafting: expected false, or one of draft_model, eagle,"),
    ({"parallel_drafting": True}, "found method = none")])
def test_what_one_pass_needs(keys, message):
    with pytest.raises(msgspec.ValidationError, match=message):
        speculative(num_tokens=3, **keys)


def test_a_drafter_in_one_pass_reserves_its_block_and_has_no_known_memory(load, tmp_path):
    keys = {"method": "dflash", "num_tokens": 3, "drafter_share": 0.1, "acceptance": [1]}
    assert speculative(**keys).num_lookahead_tokens == 4
    assert speculative(**keys | {"method": "dspark"}).num_lookahead_tokens == 3
    assert Site(load(**keys)).check().num_gpu_blocks == 100
    (tmp_path / "b.toml").write_text(TEXT.replace("num_gpu_blocks = 100, ", "").replace("deepseek-v3", "qwen3-8b"))
    with pytest.raises(InputErrors, match=r"engine\.num_gpu_blocks: missing; .* a drafter by dflash hold"):
        Site(load_experiment(tmp_path / "b.toml", {"engine": {"speculative": keys}})).check()


@pytest.mark.parametrize(("name", "drafts", "modules"), [
    ("step-3.7-flash", 1, 1), ("step-3.7-flash", 2, 2), ("step-3.7-flash", 3, 3), ("step-3.7-flash", 6, 3),
    ("deepseek-v3", 5, 1), ("llama-3.1-8b", 5, 1)])
def test_as_many_modules_draft_in_turn_as_there_are_drafts_for(name, drafts, modules):
    assert num_modules(load_model(name), "mtp", drafts) == modules
    assert num_modules(load_model(name), "eagle", drafts) == 1


def test_drafts_that_no_turn_of_modules_ends_are_refused():
    with pytest.raises(ValueError, match=r"num_tokens: expected at most 3, or a multiple, found 4: step-3\.7-flash"):
        num_modules(load_model("step-3.7-flash"), "mtp", 4)


def test_the_share_of_a_dense_module_beside_experts_is_small():
    # MiMo-V2-Flash: a module has no experts, the last layer has 256; shares of 309e9 weights
    module, head = (layer_share(load_model("mimo-v2-flash"), method) for method in ("mtp", "eagle"))
    assert module == pytest.approx(0.94e9 / 309e9, rel=0.1)
    assert head > 7 * module


def test_the_last_stage_drafts():
    model = linear()
    model.set_stages([3, 1])
    drafter = Drafter(model, 2, 0.2, 1.0, 0.0)
    alone, both = (each.predict_stages_ns([], [100], 3) for each in (model, drafter))
    assert both[0] == alone[0]
    assert both[1] - alone[1] == pytest.approx(1e3 * drafter.drafting_us([], [100], 3), abs=1)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_has_slots_and_measured_acceptance(method):
    costs = {"draft_model": {"drafter_share": 0.1}, "ngram": {"drafter_per_sequence_us": 5.0}}.get(method, {})
    found = speculative(num_tokens=2, method=method, **costs)
    assert found.num_lookahead_tokens == (0 if method in ("medusa", "ngram") else 2)
    assert found.acceptance == acceptance_of(method, 2)
    assert len(found.weights) == 3
    given = speculative(num_tokens=2, method=method, acceptance=[1], num_lookahead_tokens=1, **costs)
    assert (given.acceptance, given.num_lookahead_tokens) == ((1,), 1)


@pytest.mark.parametrize(("method", "num_tokens", "length"), [
    ("eagle", 4, 2.08), ("eagle3", 3, 2.60), ("mtp", 1, 1.882), ("medusa", 64, 2.32)])
def test_measured_acceptance_has_the_published_length(method, num_tokens, length):
    weights = acceptance_of(method, num_tokens).weights(num_tokens)
    assert 1 + sum(i * weight for i, weight in enumerate(weights)) == pytest.approx(length, abs=0.006)   # as printed


@pytest.mark.parametrize(("keys", "message"), [
    ({"drafter_share": 0.1}, "drafter_share: expected none without method"),
    ({"method": "ngram"}, "drafter_per_sequence_us: missing; expected a number"),
    ({"method": "ngram", "drafter_per_sequence_us": 1.0, "drafter_share": 0.1}, "drafter_share: expected none"),
    ({"method": "medusa", "drafter_share": 0.1}, "drafter_share: expected none, Medusa's heads make no pass"),
    ({"method": "draft_model"}, "drafter_share: missing; expected a number, or drafter_forward_us")])
def test_what_a_method_lacks_is_said(keys, message):
    with pytest.raises(msgspec.ValidationError, match=message):
        speculative(num_tokens=2, **keys)


def test_without_a_model_the_drafter_has_to_be_priced():
    parameters = VllmParameters(speculative=speculative(num_tokens=2, method="eagle3"))
    (*_, go_around) = around(parameters, None)
    with pytest.raises(ValueError, match="drafter_share: missing; expected a number, or drafter_forward_us, since"):
        go_around(linear())


def test_heads_of_medusa_are_read_once_a_step():
    # 4096 x (4096 + 128,256) weights of 2 bytes at 3.35 TB/s, whatever the batch; two ranks share the words.
    parameters = VllmParameters(speculative=speculative(num_tokens=3, method="medusa"))
    model = load_model("llama-3.1-8b")
    for ranks in (1, 2):
        deployment = deploy(model, accelerator=load_accelerator("h100-sxm-80gb"), tensor_parallel=ranks)
        drafter = around(parameters, deployment)[-1](linear())
        head_us = 2e6 * 4096 * (4096 + 128_256 / ranks) / 3.35e12
        for batch in ({"decode": [100]}, {"prefill": [(900, 0)], "decode": [7] * 9}):
            assert drafter.drafting_us(**batch) == pytest.approx(3 * head_us)
    with pytest.raises(ValueError, match="drafter_forward_us: missing; expected a number"):
        around(parameters, None)[-1](linear())


OLD = {"vllm_version": "0.32"}


@pytest.mark.parametrize(("name", "method", "keys", "is_told"), [
    ("gpt-oss-20b", "eagle3", OLD, True), ("gpt-oss-20b", "eagle3", OLD | {"disable_hybrid_kv_cache_manager": True},
                                           False),
    ("gpt-oss-20b", "draft_model", OLD, False), ("llama-3.1-8b", "eagle3", OLD, False),
    ("gpt-oss-20b", "eagle3", {"vllm_version": "0.33"}, False)])
def test_hits_of_layers_of_several_kinds_are_told_to_be_too_long(name, method, keys, is_told):
    parameters = VllmParameters(speculative=speculative(num_tokens=2, method=method, drafter_share=0.1), **keys)
    deployment = deploy(load_model(name), accelerator=load_accelerator("h100-sxm-80gb"))
    told = [warning for warning in around(parameters, deployment)[-1](linear()).warnings() if "prefix hit" in warning]

    assert len(told) == is_told


def test_runs_ahead_and_groups_change_nothing():
    parameters = VllmParameters(speculative=speculative(num_tokens=2, method="eagle3", drafter_share=0.05))
    one, other = (record(
        plain_workload([0] * 8, 100, 50), parameters, around(parameters, None)[-1](linear()), details=False,
        num_gpu_blocks=1000, block_size=16, max_model_len=1000, fast_forward=fast) for fast in (True, False))
    np.testing.assert_array_equal(one.requests, other.requests)
    free = record(plain_workload([0] * 8, 100, 50), parameters, linear(), details=False,
                  num_gpu_blocks=1000, block_size=16, max_model_len=1000)
    assert (free.requests["completed_ns"] < one.requests["completed_ns"]).all()


def test_a_layer_of_the_model_drafts(load):
    experiment = load(num_tokens=2, method="mtp")
    site = Site(experiment).check()
    model = latency_model(site)
    share = layer_share(site.deployment.model, "mtp")
    assert 1 / 61 < share < 2 / 61          # a layer and the head, of 61 layers
    assert model.drafting_us([], [100] * 4, 3) == pytest.approx(share * (
        us(model.model, [], [100] * 4, 3) + us(model.model, [], [100] * 4)))
    note, published = model.warnings()
    assert "may name figures of deepseek-v3: deepseek-v3/mtp/mt-bench" in published
    assert "1.882" in note
    assert "only 1 drafts were measured" in note
