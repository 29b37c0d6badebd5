"""`support` says what is measured for models and accelerators, and what stands in where nothing is."""
import json

import pytest

from simulator import cli
from simulator.domain.facts import load_accelerator, names
from simulator.domain.vllm_versions import NEWEST
from simulator.study.planning.question import model_named
from simulator.study.support import card_facts, pair_facts


@pytest.fixture
def support(capsys):
    """Run `support --json`; return the exit status, and what it printed."""
    def run(*words):
        status = cli.main(["support", *words, "--json"])
        printed = capsys.readouterr()
        return status, json.loads(printed.out) if printed.out else printed.err

    return run


def test_the_summary_has_every_card_and_fits_a_screen(support, capsys):
    status, told = support()

    assert status == 0 and [each["hardware"] for each in told["hardware"]] == names("hardware")
    assert {each["laws"] for each in told["hardware"]} == {"own", "generation", "joint"}
    assert "qwen3-32b" in told["models"]
    assert cli.main(["support"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_a_card_has_its_tables_and_errors(support):
    _, told = support("h100")
    card = told["hardware"]

    assert (card["hardware"], card["laws"], card["tables"]) == ("h100-sxm-80gb", "own", "h100_sxm")
    # hardware/efficiency/roofline_errors.toml: products bfloat16 on h100_sxm, by the laws in use
    assert card["errors"]["products bfloat16"]["mean_error"] == 0.111
    assert {row["model"] for row in card["compared"]} == {"gpt-oss-120b", "qwen3-32b"}


def test_a_card_without_tables_names_what_stands_in(support, capsys):
    _, told = support("mi300x")

    assert (told["hardware"]["laws"], told["hardware"]["tables"], told["hardware"]["compared"]) == ("joint", None, [])
    assert not told["hardware"]["engine_defaults"]              # those of NVIDIA alone are known
    cli.main(["support", "mi300x"])
    assert "no tables of its own: joint laws of other generations" in capsys.readouterr().out


def test_a_pair_has_a_source_for_each_operator(support):
    _, told = support("meta-llama/Llama-3.1-8B-Instruct", "h100")
    prices = {each["backend"]: each for each in told["prices"]}

    assert told["model"]["model"] == "llama-3.1-8b"
    assert prices["roofline"]["refusal"] is None
    assert prices["roofline"]["sources"]["dense"] == "roofline by laws, products bfloat16, h100_sxm"
    assert {row["hardware"] for row in told["model"]["compared"]} == {"rtx-pro-6000-server"}


def test_replaced_prices_are_named(support):
    _, told = support("gpt-oss-120b", "h100")
    notes = next(each["notes"] for each in told["prices"] if each["backend"] == "roofline")

    assert any("products of fp4 weights are priced as bfloat16" in note for note in notes)


def test_recorded_runs_are_told_by_version(support):
    engines = {(each["engine"], each["version"]): each for each in support("h100")[1]["engines"]}

    assert engines["vLLM", NEWEST]["is_default"] and engines["vLLM", "0.32"]["compared"] >= 417
    assert engines["vLLM", "0.10"]["recorded"] == 0 and engines["TensorRT-LLM", "1.2"]["recorded"] == 0
    assert engines["SGLang", "0.5.23"]["compared"] == 147


@pytest.mark.parametrize(("words", "said"), [
    (("llama-3.1-9b",), "its shape is not known here; did you mean"),
    (("llama-3.1-8b", "h1000"), "h1000"),
    (("a100",), '"a100" names 4 accelerators'),
    (("nonsense", "nonsense"), "nonsense"),
    (("--config", "/nowhere"), "--config"),
])
def test_unknown_names_are_refused(support, words, said):
    status, message = support(*words)

    assert status == 2 and said in message


@pytest.mark.parametrize("words", [("h100",), ("llama-3.1-8b", "h100")])
def test_a_short_name_says_which_cards_it_may_mean(capsys, words):
    assert cli.main(["support", *words, "--json"]) == 0
    printed = capsys.readouterr()

    assert printed.err == ("h100 is taken as h100-sxm-80gb; there are also h100-nvl-94gb, h100-pcie-80gb, "
                           "h100-sxm-96gb-gh200\n")
    assert json.loads(printed.out)["hardware"]["hardware"] == "h100-sxm-80gb"


@pytest.mark.parametrize("name", names("hardware"))
def test_every_card_has_facts(name):
    found = card_facts(name)

    assert found["title"] == load_accelerator(name).title and all(
        0 < each["mean_error"] < 1 for each in found["errors"].values())


@pytest.mark.slow
@pytest.mark.parametrize("name", names("model"))
def test_every_model_is_priced_on_a_large_card(name):
    by_roofline = pair_facts(*model_named(name, None), "b300-sxm-288gb")[1]

    assert by_roofline["refusal"] is None, by_roofline["refusal"]
