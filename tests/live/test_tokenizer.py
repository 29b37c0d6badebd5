"""Sessions with the tokenizer of a model: ids, counts and texts are those of the package `tokenizers`."""
import asyncio
import json
import threading
from unittest.mock import Mock

import pytest

from simulator.domain.serving import Serve
from simulator.errors import InputErrors
from simulator.live.opening import tokenizer_of
from support.live_site import CHAT, COMPLETIONS, Site, events_of, post
from support.model_tokenizers import BEGIN, WORDS, trained

SMILE = "\N{GRINNING FACE}"     # four tokens
MET = f"hello {SMILE} there"


@pytest.fixture(scope="module")
def model():
    return trained()


@pytest.fixture
def site(tmp_path, model):
    """Return a function that makes a site with the tokenizer."""
    def make(**serve):
        model.save(str(tmp_path / "tokenizer.json"))
        given = {"tokenizer": tmp_path / "tokenizer.json"} | serve
        return Site(tmp_path, overrides=["topology.replicas=1", *(f'serve.{key}="{value}"'
                                                                  for key, value in given.items())])
    return make


def plain(model, text):
    return model.encode(text, add_special_tokens=False).ids


def test_ids_and_counts_are_those_of_the_package(site, model):
    async def scenario(client, admin):
        body = {"prompt": "the one two", "max_tokens": 9, "ignore_eos": True, "return_token_ids": True, "logprobs": 2,
                "prompt_logprobs": 2}
        return [await post(client, *each) for each in (
            ("/tokenize", {"prompt": MET, "return_token_strs": True}),
            ("/tokenize", {"prompt": MET, "add_special_tokens": False}),
            ("/tokenize", {"messages": [{"role": "user", "content": "hello"}]}),
            ("/detokenize", {"tokens": model.encode(MET).ids}), ("/detokenize", {"tokens": [10**12]}),
            (COMPLETIONS, body), (COMPLETIONS, body | {"prompt": plain(model, "the one two")}))]

    special, bare, chat, back, wrong, (_, answer), (_, of_ids) = site().talk(scenario)
    assert special[1]["tokens"] == model.encode(MET).ids
    assert special[1]["token_strs"] == model.encode(MET).tokens
    assert bare[1]["tokens"] == plain(model, MET)
    assert chat[1]["tokens"] == plain(model, "<|user|>\nhello\n<|assistant|>\n")
    assert back[1] == {"prompt": f"{BEGIN}{MET}"}
    assert wrong[0] == 400
    [choice] = answer["choices"]
    assert choice["token_ids"] == plain(model, choice["text"])
    assert set(choice["text"].split()) <= set(WORDS)
    assert answer["usage"]["prompt_tokens"] == 1 + of_ids["usage"]["prompt_tokens"] == 4
    assert all(model.token_to_id(name.replace(" ", "\u0120")) is not None
               for table in choice["logprobs"]["top_logprobs"] for name in table)
    assert all(model.decode([int(token)]) == entry["decoded_token"]
               for table in choice["prompt_logprobs"][1:] for token, entry in table.items())


def test_an_echo_of_characters_of_several_tokens(site, model):
    asked = {"prompt": f"{MET} one", "ignore_eos": True, "return_token_ids": True}
    talk = {"messages": [{"role": "user", "content": MET}], "ignore_eos": True, "max_tokens": 7}

    async def scenario(client, admin):
        return (await events_of(client, COMPLETIONS, asked | {"max_tokens": 12}),
                await post(client, COMPLETIONS, asked | {"max_tokens": 12, "stop": [f"{SMILE} t"]}),
                await post(client, COMPLETIONS, asked | {"max_tokens": 4}), await post(client, CHAT, talk),
                await post(client, COMPLETIONS, asked | {"max_tokens": 1, "echo": True}))

    events, (_, stopped), (_, cut), (_, chat), (_, behind) = site(text="echo").talk(scenario)
    assert "".join(event["choices"][0]["text"] for event in events) == f"{MET} one hello "
    assert [event["choices"][0]["text"] for event in events][:7] == ["hello", " ", "", "", "", SMILE, " there"]
    assert stopped["choices"][0]["text"] == "hello "
    assert stopped["choices"][0]["stop_reason"] == f"{SMILE} t"
    assert cut["choices"][0]["text"] == "hello "             # half of a character has no text
    assert cut["choices"][0]["token_ids"] == plain(model, MET)[:4]
    assert chat["choices"][0]["message"]["content"] == MET
    assert behind["choices"][0]["text"] == f"{MET} onehello"
    assert behind["choices"][0]["token_ids"] == model.encode(f"{MET} one").ids + plain(model, "hello")


def test_forms_data_sets_and_the_record(site, tmp_path, model):
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": f"it was {SMILE}"}))
    made = site(text="dataset", dataset=tmp_path / "texts.jsonl")

    async def scenario(client, admin):
        body, prompt = {"max_tokens": 13, "ignore_eos": True, "return_token_ids": True}, "one two three " * 3
        first = await post(client, COMPLETIONS, body | {"prompt": prompt})
        turn = model.encode(prompt).ids + first[1]["choices"][0]["token_ids"]
        return first, await post(client, COMPLETIONS, body | {"prompt": turn}), await post(
            client, COMPLETIONS, body | {"prompt": "so", "structured_outputs": {"choice": ["[so]"]}, "min_tokens": 9})

    (_, first), (_, second), (_, formed) = made.talk(scenario)
    assert first["choices"][0]["text"] == f"it was {SMILE} it was "
    # 11 tokens and 13 of the answer, the last of which was never computed: 5 blocks of 4
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 20
    assert formed["choices"][0]["text"].rstrip() == "[so]"
    assert formed["usage"]["completion_tokens"] == len(formed["choices"][0]["token_ids"]) == 13
    assert made.session.write(tmp_path / "out", False)["differing_rows"] == []


def test_others_are_answered_while_a_long_text_is_read(site, monkeypatch):
    made, is_answered, waited = site(), threading.Event(), []
    words = made.session.server.words

    def slow(text, with_special=False):
        if len(text) > words.most_at_once:
            waited.append(is_answered.wait(30))
        return type(words).encode(words, text, with_special)

    async def scenario(client, admin):
        long = asyncio.create_task(post(client, "/tokenize", {"prompt": "hello " * 2_000}))
        while not words.encode.called:
            await asyncio.sleep(0.001)
        short = await post(client, "/tokenize", {"prompt": "hello"})
        is_answered.set()
        return short[1]["count"], (await long)[1]["count"]

    monkeypatch.setattr(words, "encode", Mock(side_effect=slow))
    assert made.talk(scenario) == (2, 2_002)        # with the blank at the end
    assert waited == [True]


@pytest.mark.parametrize(("content", "fault"), [
    (None, "cannot be read"), ("{}", "expected a tokenizer.json"), ("words", "found no words of a to z"),
    ("small", "expected at most 20 ids, the vocabulary of the model, found")])
def test_a_tokenizer_with_faults(tmp_path, model, content, fault):
    file = tmp_path / "tokenizer.json"
    if content == "small":
        model.save(str(file))
    elif content == "words":
        trained(["12", "3"]).save(str(file))
    elif content is not None:
        file.write_text(content)
    with pytest.raises(InputErrors, match=f"serve.tokenizer: .*{fault}"):
        tokenizer_of(Serve(tokenizer=str(file)), 20)
