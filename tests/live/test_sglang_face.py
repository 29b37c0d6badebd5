"""The server like SGLang's: its own paths, and its metrics."""
import asyncio
import json
from itertools import pairwise

from support.live_site import COMPLETIONS, HELLO, Site, post

ASKED = {"text": "one two three", "sampling_params": {"max_new_tokens": 4, "ignore_eos": True}}
SGLANG = ["engine.scheduler=sglang", "engine.num_gpu_blocks=200", "engine.block_size=1",
          "engine.max_running_requests=5"]


async def get(client, path):
    async with client.get(path) as answer:
        assert answer.status == 200
        return await answer.read()


def test_texts_and_ids_are_answered(tmp_path):
    async def scenario(client, admin):
        whole = (await post(client, "/generate", ASKED | {"rid": "mine"}))[1]
        ids = (await post(client, "/tokenize", {"prompt": ASKED["text"]}))[1]["tokens"]
        several = (await post(client, "/generate", ASKED | {"text": None, "input_ids": [ids, ids[:2]]}))[1]
        async with client.post("/generate", json=ASKED | {"stream": True}) as answer:
            lines = (await answer.read()).decode().split("\n\n")
        form = {"max_new_tokens": 9, "json_schema": '{"type": "object"}'}
        formed = (await post(client, "/generate", ASKED | {"sampling_params": form}))[1]
        wrong = [(await post(client, "/generate", body))[0] for body in (
            {}, ASKED | {"input_ids": [5]}, {"text": ""}, {"text": [], "sampling_params": {}},
            ASKED | {"sampling_params": {"max_new_tokens": 0}})]
        return whole, several, [json.loads(line.removeprefix("data: ")) for line in lines[:-2]], formed, wrong

    whole, several, events, formed, wrong = Site(tmp_path, overrides=[*SGLANG, "topology.replicas=1"]).talk(scenario)
    assert len(whole["text"].split()) == len(whole["output_ids"]) == 4
    assert whole["meta_info"] == {"id": "mine", "finish_reason": {"type": "length", "length": 4}, "prompt_tokens": 3,
                                  "completion_tokens": 4, "cached_tokens": 0, "weight_version": "default"}
    assert [each["meta_info"]["prompt_tokens"] for each in several] == [3, 2]
    assert several[0]["meta_info"]["cached_tokens"] == 2        # all but the last token of the prompt
    texts = [event["text"] for event in events]
    assert [len(text.split()) for text in texts] == [1, 2, 3, 4]
    assert all(after.startswith(before) for before, after in pairwise(texts))
    assert (formed["text"], formed["meta_info"]["finish_reason"]) == ("{}", {"type": "stop", "matched": None})
    assert wrong == [400] * 5


def test_pages_that_routers_read(tmp_path):
    async def scenario(client, admin):
        await post(client, COMPLETIONS, {"prompt": "one two three", "max_tokens": 5, "ignore_eos": True})
        pages = [json.loads(await get(client, path)) for path in ("/get_load", "/server_info", "/model_info",
                                                                  "/v1/models")]
        metrics = (await get(client, "/metrics")).decode()
        assert await get(client, "/health_generate") == await get(client, "/health") == b""
        site.session.service.pause()
        asked = [asyncio.create_task(post(client, "/generate", ASKED)) for _ in range(3)]
        await asyncio.wait(asked, timeout=0.1)
        busy = json.loads(await get(client, "/get_load"))
        site.session.service.resume()
        await asyncio.gather(*asked)
        return *pages, metrics, busy

    site = Site(tmp_path, overrides=[*SGLANG, "cluster.routing.policy=round_robin"], has_doors=False)
    load, server, model, models, metrics, busy = site.talk(scenario)
    assert [(each["dp_rank"], each["num_reqs"], each["num_tokens"]) for each in load] == [(0, 0, 0), (1, 0, 0)]
    assert sum(each["num_pending_tokens"] for each in busy) <= 9
    assert (server["max_total_num_tokens"], server["dp_size"], server["max_running_requests"]) == (200, 2, 5)
    assert (model["is_generation"], models["data"][0]["owned_by"]) == (True, "sglang")
    labels = 'model_name="served",engine_type="unified",dp_rank="0"'
    for line in (f"sglang:num_running_reqs{{{labels}}} 0.0", f"sglang:prompt_tokens_total{{{labels}}} 3.0",
                 f"sglang:generation_tokens_total{{{labels}}} 5.0", f"sglang:num_requests_total{{{labels}}} 1.0",
                 f"sglang:inter_token_latency_seconds_count{{{labels}}} 4",
                 f'sglang:cache_config_info{{{labels},page_size="1",num_pages="200"}} 1.0',
                 f'sglang:num_retractions_bucket{{{labels},le="0.0"}} 1'):
        assert line in metrics.splitlines()


def test_caches_are_flushed_while_no_request_runs(tmp_path):
    async def scenario(client, admin):
        async def flushed(method="post", query=""):
            async with getattr(client, method)(f"/flush_cache{query}") as answer:
                return answer.status, await answer.text()

        async def hits():
            return (await post(client, "/generate", ASKED))[1]["meta_info"]["cached_tokens"]

        found = [await hits(), await hits(), await flushed("get"), await hits()]
        long = asyncio.create_task(post(client, "/generate", ASKED | {"sampling_params": {
            "max_new_tokens": 60, "ignore_eos": True}}))
        while not site.session.fleet.num_open:
            await asyncio.sleep(0.001)
        return found, await flushed(), await flushed(query="?timeout=x"), await flushed(query="?timeout=60"), (
            await long)[0], await hits()

    site = Site(tmp_path, speed=0.5, overrides=[*SGLANG, "topology.replicas=1"])
    (first, second, (status, text), third), busy, wrong, later, long, last = site.talk(scenario)
    assert (first, second, third) == (0, 2, 0)
    assert (status, text[:15]) == (200, "Cache flushed.\n")
    assert busy == (400, "Flush cache failed.\n")
    assert (wrong[0], later[0], long, last) == (422, 200, 200, 0)
    assert site.session.write(tmp_path / "out", False)["differing_rows"] == []


def test_requests_are_aborted_by_their_id(tmp_path):
    site = Site(tmp_path, speed=0.1, overrides=[*SGLANG, "topology.replicas=1", "engine.max_running_requests=1"])

    async def scenario(client, admin):
        async def begun(name, path, body, least=1):
            """Return the answer to come of a request that has so many tokens at least."""
            asked = asyncio.create_task(post(client, path, body))
            while not any(each.head.id == name and each.choices[0].made >= least
                          for each in site.session.server.open.values()):
                await asyncio.sleep(0.005)
            return asked

        async def abort(**body):
            async with client.post("/abort_request", json=body) as answer:
                return answer.status, await answer.read()

        long = ASKED | {"sampling_params": {"max_new_tokens": 150, "ignore_eos": True}}
        runs = await begun("runs", "/generate", long | {"rid": "runs"})
        waits = await begun("waits", "/generate", long | {"rid": "waits"}, 0)
        answers = [await abort(rid=rid) for rid in ("other", "waits", "runs")]
        last = await begun("cmpl-last", COMPLETIONS, {"prompt": "one", "max_tokens": 150, "ignore_eos": True,
                                                      "request_id": "last"})
        await abort(abort_all=True)
        return answers, (await runs)[1], (await waits)[1], (await last)[1]

    answers, runs, waits, last = site.talk(scenario)
    assert answers == [(200, b"")] * 3
    assert runs["meta_info"]["finish_reason"]["message"] == "Aborted"
    assert 0 < runs["meta_info"]["completion_tokens"] == len(runs["text"].split()) < 150
    assert waits["meta_info"]["finish_reason"] == {"type": "abort", "message": "Abort in waiting queue"}
    assert waits["text"] == "" and waits["output_ids"] == []
    assert last["choices"][0]["finish_reason"] == "abort"
    assert site.session.write(tmp_path / "out", False)["differing_rows"] == []


def test_errors_are_those_of_sglang(tmp_path):
    async def scenario(client, admin):
        found = []
        for path, body in (("/generate", {"text": "a", "sampling_params": {"n": 0}}),
                           (COMPLETIONS, HELLO | {"temperature": -1}), ("/v1/other", {})):
            async with client.post(path, json=body) as answer:
                found.append((answer.status, await answer.json()))
        return found

    own, open_ais, absent = Site(tmp_path, overrides=[*SGLANG, "topology.replicas=1"]).talk(scenario)
    assert own == (400, {"error": {"message": "Expected `int` >= 1 - at `$.sampling_params.n`"}})
    assert open_ais == (400, {"object": "error", "message": "Expected `float` >= 0.0 - at `$.temperature`",
                              "type": "BadRequestError", "param": "temperature", "code": 400})
    assert absent == (404, {"detail": "Not Found"})
