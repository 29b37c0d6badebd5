"""Conversations as vLLM's multi-turn benchmark generates them."""
import json

import numpy as np
import pytest

from simulator.errors import InputErrors
from simulator.workload.drawing.conversations import draw_turns, read_settings


def given(**keys):
    """Return a file of the tool; `turns`, `prefix`, `common`, `asked`, `answered` instead of its long names."""
    constant = {"distribution": "constant", "value": 4}
    prompt = {"num_turns": keys.pop("turns", constant), "prefix_num_tokens": keys.pop("prefix", constant),
              "num_tokens": keys.pop("asked", constant)}
    if "common" in keys:
        prompt["common_prefix_num_tokens"] = keys.pop("common")
    return {"filetype": "generate_conversations", "num_conversations": 3, "text_files": ["a.txt"],
            "prompt_input": prompt, "prompt_output": {"num_tokens": keys.pop("answered", constant)}} | keys


def drawn(content, seed=0, least=1):
    return draw_turns(read_settings("g.json", json.dumps(content).encode()), seed, least)


def of(name, **keys):
    return {"distribution": name, **keys}


def test_constant_conversations():
    values = {"common": 10, "prefix": 7, "asked": 20}
    turns = drawn(given(**{name: of("constant", value=value) for name, value in values.items()}))

    assert turns.conversation.tolist() == [0, 0, 1, 1, 2, 2]
    assert turns.new_tokens.tolist() == [27, 20] * 3        # the common prefix is part of the 20, the other is not
    assert turns.output_tokens.tolist() == [4] * 6
    assert turns.common_tokens == 10


def test_texts_are_as_long_as_what_the_tool_says_in_them():
    turns = drawn(given(common=of("constant", value=30), prefix=of("constant", value=0), asked=of("constant", value=5)),
                  least=12)

    assert turns.new_tokens.tolist() == [42, 12] * 3


@pytest.mark.parametrize(("texts", "requests"), [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2), (7, 4)])
def test_each_user_text_has_an_answer(texts, requests):
    assert len(drawn(given(turns=of("constant", value=texts), num_conversations=1)).new_tokens) == requests


def test_answers_have_a_token_at_least():
    assert drawn(given(answered=of("constant", value=0))).output_tokens.tolist() == [1] * 6


def tool_sample(draw, conf, size):
    """Draw as the tool's distributions say, from NumPy's global generator."""
    if conf["distribution"] == "constant":
        return np.full(size, conf["value"])
    if conf["distribution"] == "uniform":
        return draw.randint(conf["min"], conf["max"] + 1, size=size)
    if conf["distribution"] == "lognormal":
        mean, sigma = conf.get("mean"), conf.get("sigma")
        if "average" in conf:
            ratio = conf.get("median_ratio", 0.85)
            mean, sigma = np.log(conf["average"] * ratio), np.sqrt(2 * np.log(1 / ratio))
        samples = draw.lognormal(mean, sigma, size)
        if "average" in conf:
            samples = samples * (conf["average"] / samples.mean())
    else:
        samples = getattr(draw, conf["distribution"])(conf["alpha"], size=size)
    return np.round(np.minimum(samples, conf.get("max", np.inf))).astype(int)


LENGTHS = [of("uniform", min=2, max=90), of("zipf", alpha=1.5, max=60), of("poisson", alpha=20), of(
    "poisson", alpha=30.5, max=31), of("lognormal", mean=3.0, sigma=0.5, max=50), of("lognormal", average=40), of(
        "lognormal", average=100, median_ratio=0.5, max=150), of("constant", value=17)]


@pytest.mark.parametrize("seed", range(24))
def test_numbers_are_those_of_numpys_global_generator(seed):
    pick = np.random.default_rng(seed)
    confs = {name: LENGTHS[pick.integers(len(LENGTHS))] for name in ("prefix", "common", "asked", "answered")}
    turns_of = [of("uniform", min=2, max=9), of("poisson", alpha=4, max=8), of("zipf", alpha=2.0, max=7)][seed % 3]
    turns = drawn(given(turns=turns_of, num_conversations=9, **confs), seed, 3)

    draw = np.random.RandomState(seed)      # as np.random.seed(seed) leaves the global one
    texts = [max(count, 2) + max(count, 2) % 2 for count in tool_sample(draw, turns_of, 9).tolist()]
    prefixes, common = tool_sample(draw, confs["prefix"], 9), int(tool_sample(draw, confs["common"], 1)[0])
    asked, answered = [], []
    for count, prefix in zip(texts, prefixes.tolist(), strict=True):
        user, answer = (tool_sample(draw, confs[name], count).tolist() for name in ("asked", "answered"))
        asked += [max(user[k], common + 3 if k == 0 else 3) + (prefix if k == 0 else 0) for k in range(0, count, 2)]
        answered += [max(answer[k], 1) for k in range(1, count, 2)]
    assert turns.new_tokens.tolist() == asked
    assert turns.output_tokens.tolist() == answered
    assert turns.common_tokens == common


def test_an_average_is_that_of_each_draw():
    # 1000 prefixes at once have it exactly, but for rounding.
    content = given(turns=of("constant", value=2), prefix=of("lognormal", average=500), asked=of("constant", value=1),
                    num_conversations=1000)
    assert drawn(content).new_tokens.mean() - 1 == pytest.approx(500, abs=0.05)


@pytest.mark.parametrize(("content", "faults"), [
    ("[", ["g.json: Input data was truncated"]),
    ({"filetype": "other"}, ['g.json: filetype: expected "generate_conversations", or a list of conversations instead '
                             "of the file"]),
    ({"filetype": "generate_conversations"}, [
        "g.json: num_conversations: missing", "g.json: text_files: missing", "g.json: prompt_input: missing",
        "g.json: prompt_output: missing"]),
    (given(num_conversation=1, num_conversations=0, text_files=[]), [
        "g.json: num_conversation: unknown key; did you mean num_conversations?",
        "g.json: num_conversations: Expected `int` >= 1", "g.json: text_files: Expected `array` of length >= 1"]),
    (given(turns=of("uniform", min=5, max=2), prefix=of("zipf", alpha=1.0), asked=of("poisson"), answered=of("x")), [
        "g.json: prompt_input.num_turns: min 5 is above max 2",
        "g.json: prompt_input.prefix_num_tokens: alpha: Expected `float` > 1.0",
        "g.json: prompt_input.num_tokens: Object missing required field `alpha`",
        "g.json: prompt_output.num_tokens: distribution: Invalid value 'x'"]),
    (given(turns=of("lognormal", mean=1.0), prefix=of("lognormal", average=9, sigma=1.0), asked=of(
        "constant", value=1.5), answered=of("constant", value=1, max=3)), [
            "g.json: prompt_input.num_turns: give either mean and sigma, or average and, if need be, median_ratio",
            "g.json: prompt_input.prefix_num_tokens: give either mean and sigma, or average",
            "g.json: prompt_input.num_tokens: value: Expected `int`, got `float`",
            "g.json: prompt_output.num_tokens: Object contains unknown field `max`"]),
])
def test_a_file_that_cannot_be_is_refused_with_all_its_faults(content, faults):
    with pytest.raises(InputErrors) as caught:
        read_settings("g.json", (content if isinstance(content, str) else json.dumps(content)).encode())
    assert list(caught.value.faults) == faults


def test_texts_that_are_too_long_are_refused():
    with pytest.raises(InputErrors, match="a text of 4294967294 tokens, at most 2147483647 are possible; give a max"):
        drawn(given(prefix=of("constant", value=2**31 - 1), asked=of("constant", value=2**31 - 1)))
