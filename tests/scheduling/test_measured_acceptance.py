"""Published acceptance: figures as published, names, sources, and what a run says about them."""
import msgspec
import pytest

import simulator
from simulator.config.describe import describe_text, list_text
from simulator.domain import facts
from simulator.domain.measured_acceptance import MEASURED, method_of, published, text_of
from simulator.errors import InputErrors
from simulator.scheduling.acceptance_table import AcceptanceTable
from simulator.scheduling.drafters import METHODS
from simulator.scheduling.speculative import SpeculativeParameters

REDHAT, MAVERICK = "llama-3.1-8b/eagle3-redhat/mt-bench", "llama-4-maverick/eagle3-nvidia/humaneval"


def mean_length(name, num_tokens):
    weights = AcceptanceTable(measured=name).weights(num_tokens)
    return sum((1 + i) * weight for i, weight in enumerate(weights))


def test_each_measurement_gives_its_published_length():
    for name, measured in MEASURED.items():
        assert mean_length(name, measured.num_tokens or 4096) == pytest.approx(measured.mean_length, rel=1e-6), name


def test_lengths_of_each_number_of_drafts_are_those_of_the_model_card():
    # RedHatAI/Llama4-Maverick-17B-128E-Instruct-speculator.eagle3, coding, one to seven drafts
    found = [mean_length(MAVERICK, count) for count in range(1, 8)]
    assert found == pytest.approx([1.83, 2.45, 2.94, 3.26, 3.47, 3.57, 3.62])


def test_lengths_by_hand():
    # two drafts of rate a: 1 + a + a^2 = 2.0; and 1 - 1 / 1.73 where no number of drafts is the limit
    assert mean_length("qwen3-8b/eagle3-angelslim/gsm8k", 1) == pytest.approx((1 + 5**0.5) / 2)
    assert mean_length("vicuna-7b/ngram/spec-bench", 1) == pytest.approx(2 - 1 / 1.73)
    assert mean_length(REDHAT, 3) == pytest.approx(2.6049)


def test_names_are_models_of_the_catalogue_with_a_method_and_a_source():
    known = facts.names("model")
    for name, measured in MEASURED.items():
        model = name.split("/")[0]
        assert model.startswith("vicuna-") or any(each.startswith(model) for each in known), name
        assert method_of(name) in METHODS
        assert len(measured.source) > 20
        assert measured.shares is None or len(measured.shares) == measured.num_tokens


def test_names_are_listed_and_described():
    names = list_text("acceptance", "kimi-k2.6").splitlines()
    assert len(names) == 17 and set(names) < set(MEASURED)
    assert "source: vLLM's tests," in describe_text("acceptance", REDHAT)
    assert "accepted shares, by position: 0.7296, 0.5208, 0.3545" in text_of(REDHAT)
    with pytest.raises(InputErrors, match="did you mean deepseek-v3/mtp/mt-bench"):
        describe_text("acceptance", "deepseek-v3/mtp/mtbench")


@pytest.mark.parametrize(("keys", "message"), [
    ({"acceptance": {"measured": "llama-3.1-8b/eagle3-redhat/mt_bench"}}, f"did you mean {REDHAT}"),
    ({"acceptance": {"measured": REDHAT, "mean_length": 2.0}}, "found mean_length and measured"),
    ({"acceptance": {"measured": REDHAT}, "method": "mtp"}, 'is of method "eagle3", found method = "mtp"'),
    ({"by_text": [{"label": "tenant", "name": "a", "acceptance": {"measured": REDHAT}}], "method": "mtp"},
     'by_text: a: measured: .* is of method "eagle3"')])
def test_what_does_not_go_together_is_refused(keys, message):
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert({"num_tokens": 3} | keys, SpeculativeParameters)


@pytest.mark.parametrize(("name", "num_tokens", "words"), [
    (REDHAT, 3, "2.605 tokens a step with 3 drafts (vLLM's tests"),
    (REDHAT, 4, "with 3 drafts; the drafts behind these are taken to be accepted alike ("),
    ("kimi-k2.6/eagle3-nvidia/mt-bench", 2, "all drafts are taken to be accepted alike, and here 2 are made"),
    ("deepseek-v3/mtp/mt-bench", 1, "1.882 tokens a step with 1 draft (")])
def test_a_run_names_figures_and_source(name, num_tokens, words):
    table = AcceptanceTable(measured=name)
    (note,) = SpeculativeParameters(num_tokens=num_tokens, acceptance=table).notes
    assert words in note


def test_a_command_line_takes_the_measurement_of_its_model_and_drafter():
    assert published("llama-3.1-8b", "eagle3", "RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3") == REDHAT
    assert published("qwen3-8b", "eagle3", "AngelSlim/Qwen3-8B_eagle3") == "qwen3-8b/eagle3-angelslim/mt-bench"
    assert published("deepseek-v4-flash-nvfp4", "mtp", "nvidia/x") == "deepseek-v4-flash/mtp/mt-bench"
    assert published("llama-4-maverick", "eagle3", "nvidia/Llama-4-Maverick-17B-128E-Eagle3") == (
        "llama-4-maverick/eagle3-nvidia/cnn-dailymail")
    assert published("deepseek-v3.2", "mtp", "x") is None
    assert published("qwen3-8b", "eagle3", "Tengyunw/qwen3_8b_eagle3") is None


def test_a_run_that_takes_over_others_figures_names_those_of_its_model(tmp_path):
    (tmp_path / "a.toml").write_text("""
model = {name = "qwen3-8b"}
hardware = {name = "h100-sxm-80gb"}
latency = {backend = "roofline"}
workload = {type = "trace", path = "t.csv"}
[engine]
max_model_len = 2048
num_gpu_blocks = 200
[engine.speculative]
num_tokens = 3
method = "eagle3"
""")
    (tmp_path / "t.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,50,20\n")
    said = {key: simulator.run(tmp_path / "a.toml", overrides=given).summary["diagnosis"] for key, given in (
        ("others", {}), ("own", {"engine.speculative.acceptance.measured": "qwen3-8b/eagle3-redhat/mt-bench"}))}
    assert any("may name figures of qwen3-8b: qwen3-8b/eagle3-redhat/mt-bench, " in note for note in said["others"])
    assert not any("may name figures" in note for note in said["own"])
    assert any("2.255 tokens a step with 3 drafts (vLLM's tests" in note for note in said["own"])


def test_suffix_decoding_looks_up_and_has_no_measured_acceptance():
    keys = {"num_tokens": 4, "method": "suffix", "drafter_per_sequence_us": 30.0}
    found = msgspec.convert(keys | {"acceptance": {"mean_length": 2.5}}, SpeculativeParameters)
    assert found.num_lookahead_tokens == 0
    assert any("each step verifies 4 drafts" in note for note in found.notes)
    for fewer, message in (("acceptance", "acceptance: missing; expected a cycle"), (
            "drafter_per_sequence_us", "drafter_per_sequence_us: missing; expected a number")):
        with pytest.raises(msgspec.ValidationError, match=message):
            msgspec.convert({key: value for key, value in (keys | {"acceptance": [1]}).items() if key != fewer},
                            SpeculativeParameters)
