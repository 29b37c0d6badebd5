"""The server on a port of this machine, and a client of it; time is fast, so that nothing waits."""
import asyncio
import errno
import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile

import pytest

from simulator import cli
from simulator.domain import records
from simulator.domain.serving import ServeLimits
from simulator.errors import OutputError
from simulator.live import opening
from simulator.live.settings import LOOPBACK
from support.live_sessions import EXPERIMENT
from support.live_site import CHAT, COMPLETIONS, HELLO, TALK, Site, events_of, post

aiohttp = pytest.importorskip("aiohttp")
JSON = {"Content-Type": "application/json"}


def test_a_completion(tmp_path):
    status, answer = Site(tmp_path).ask(COMPLETIONS, HELLO)
    assert status == 200
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    [choice] = answer["choices"]
    assert len(choice["text"].split(" ")) == 6
    assert (choice["index"], choice["finish_reason"], choice["stop_reason"]) == (0, "length", None)
    assert answer["usage"] == {"prompt_tokens": 7, "total_tokens": 13, "completion_tokens": 6,
                               "prompt_tokens_details": {"cached_tokens": 0}}


def test_a_stream_has_the_same_text_as_a_whole_answer(tmp_path):
    options = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    whole = Site(tmp_path).ask(COMPLETIONS, HELLO)[1]

    async def scenario(client, admin):
        return await events_of(client, COMPLETIONS, HELLO | options)

    *events, usage = Site(tmp_path).talk(scenario)
    assert "".join(event["choices"][0]["text"] for event in events) == whole["choices"][0]["text"]
    assert [event["choices"][0]["finish_reason"] for event in events] == [None] * 5 + ["length"]
    assert [event["usage"]["completion_tokens"] for event in events] == [1, 2, 3, 4, 5, 6]
    assert usage["choices"] == []
    assert usage["usage"] == whole["usage"]


def test_a_completion_behind_its_prompt(tmp_path):
    asked = {"prompt": ["one two", "three"], "n": 2, "max_tokens": 3, "ignore_eos": True, "return_token_ids": True}

    async def scenario(client, admin):
        plain, (_, whole), (_, shown) = [await post(client, COMPLETIONS, asked | more) for more in (
            {}, {"echo": True}, {"echo": True, "logprobs": 1})]
        prompts = [(await post(client, "/tokenize", {"prompt": text}))[1]["tokens"] for text in asked["prompt"]]
        return plain[1], whole, shown, prompts, await events_of(client, COMPLETIONS, asked | {
            "prompt": "one two", "n": 1, "echo": True, "stream_options": {"include_usage": True}})

    plain, whole, shown, prompts, (*events, usage) = Site(tmp_path).talk(scenario)
    for choice, prompt, text in zip(whole["choices"], [prompts[0]] * 2 + [prompts[1]] * 2,
                                    ["one two"] * 2 + ["three"] * 2, strict=True):
        assert choice["text"].startswith(text) and choice["token_ids"][:len(prompt)] == prompt
        assert len(choice["token_ids"]) == len(prompt) + 3
    assert whole["usage"] == plain["usage"]
    logprobs = shown["choices"][0]["logprobs"]
    assert logprobs["token_logprobs"] == [None] + [-0.1] * 4
    assert logprobs["top_logprobs"][0] is None and logprobs["text_offset"][:3] == [0, 3, 7]
    assert shown["choices"][0]["prompt_logprobs"][0] is None and len(shown["choices"][0]["prompt_logprobs"]) == 2
    assert events[0]["choices"][0]["text"].startswith("one two") and len(events) == 3
    assert "".join(event["choices"][0]["text"] for event in events).count("one two") == 1
    assert usage["usage"]["completion_tokens"] == 3


def test_a_stream_interval(tmp_path):
    async def scenario(client, admin):
        return await events_of(client, COMPLETIONS, HELLO | {"stream_interval": 4})

    events = Site(tmp_path).talk(scenario)
    assert [len(event["choices"][0]["text"].split()) for event in events] == [4, 2]


def test_a_chat_and_its_next_turn(tmp_path):
    async def scenario(client, admin):
        events = await events_of(client, CHAT, TALK)
        text = "".join(event["choices"][0]["delta"]["content"] for event in events)
        turn = TALK["messages"] + [{"role": "assistant", "content": text},
                                   {"role": "user", "content": [{"type": "text", "text": "And then?"}]}]
        return events, await post(client, CHAT, TALK | {"messages": turn})

    site = Site(tmp_path, overrides=["topology.replicas=1"])
    events, (status, answer) = site.talk(scenario)
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert events[0]["object"] == "chat.completion.chunk"
    assert len(events) == 5
    assert events[-1]["choices"][0]["finish_reason"] == "length"
    assert status == 200
    assert answer["object"] == "chat.completion"
    assert len(answer["choices"][0]["message"]["content"].split()) == 4
    # the first turn has 13 tokens and 4 of the answer, the last of which was never computed: 4 blocks of 4
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 16


def test_several_prompts_and_answers(tmp_path):
    status, answer = Site(tmp_path).ask(COMPLETIONS, {"prompt": ["one two", "three"], "n": 2, "max_tokens": 3,
                                                      "ignore_eos": True, "return_token_ids": True})
    assert status == 200
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert all(len(choice["token_ids"]) == 3 for choice in answer["choices"])
    assert answer["usage"]["prompt_tokens"] == 3
    assert answer["usage"]["completion_tokens"] == 12
    assert len({choice["text"] for choice in answer["choices"]}) > 1


def test_a_stop_text_ends_the_answer(tmp_path):
    async def scenario(client, admin):
        whole = (await post(client, COMPLETIONS, HELLO))[1]["choices"][0]["text"]
        first, second = whole.split(" ")[:2]
        return first, second

    first, second = Site(tmp_path).talk(scenario)
    asked = HELLO | {"stop": [second[-2:]]}
    [choice] = Site(tmp_path).ask(COMPLETIONS, asked)[1]["choices"]
    assert choice["text"] == f"{first} {second[:-2]}"
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", second[-2:])
    [choice] = Site(tmp_path).ask(COMPLETIONS, asked | {"include_stop_str_in_output": True})[1]["choices"]
    assert choice["text"] == f"{first} {second}"
    [choice] = Site(tmp_path).ask(COMPLETIONS, asked | {"min_tokens": 6, "stop": first})[1]["choices"]
    assert choice["finish_reason"] == "length"


@pytest.mark.parametrize(("path", "change", "status", "kind", "param"), [
    (COMPLETIONS, {"model": "other"}, 404, "NotFoundError", "model"),
    (COMPLETIONS, {"prompt": ""}, 400, "BadRequestError", "prompt"),
    (COMPLETIONS, {"prompt": []}, 400, "BadRequestError", "prompt"),
    (COMPLETIONS, {"prompt": [5, 10**9]}, 400, "BadRequestError", "prompt"),
    (COMPLETIONS, {"prompt": "word " * 300}, 400, "BadRequestError", "input_tokens"),
    (COMPLETIONS, {"min_tokens": 7}, 400, "BadRequestError", "min_tokens"),
    (COMPLETIONS, {"max_tokens": 0}, 400, "BadRequestError", "max_tokens"),
    (COMPLETIONS, {"n": "two"}, 400, "Bad Request", "n"),
    (COMPLETIONS, {"stream_options": {"include_usage": True}}, 400, "Bad Request", "stream_options"),
    (COMPLETIONS, {"temperature": -1}, 400, "BadRequestError", "temperature"),
    (COMPLETIONS, {"cache_salt": ""}, 400, "Bad Request", "cache_salt"),
    (COMPLETIONS, {"use_beam_search": True}, 501, "NotImplementedError", "use_beam_search"),
    (COMPLETIONS, {"suffix": "a"}, 501, "NotImplementedError", "suffix"),
    (CHAT, {"messages": []}, 400, "BadRequestError", "messages"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "BadRequestError", "messages"),
    (CHAT, {"response_format": {"type": "json_schema"}}, 400, "Bad Request", "response_format")])
def test_refusals(tmp_path, path, change, status, kind, param):
    found, answer = Site(tmp_path).ask(path, (HELLO if path == COMPLETIONS else TALK) | change)
    assert found == status
    assert {name: answer["error"][name] for name in ("type", "param", "code")} == {
        "type": kind, "param": param, "code": status}


def test_the_token_that_is_out_of_the_vocabulary_is_named(tmp_path):
    answer = Site(tmp_path).ask(COMPLETIONS, HELLO | {"prompt": [5, -3, 10**9]})[1]
    assert answer["error"]["message"] == "Token id -3 is out of vocabulary"


def test_bodies_that_are_no_requests(tmp_path):
    async def scenario(client, admin):
        found = []
        for data in (b"", b"{", b"[]", b"\xff\xfe", b'{"prompt": ' + b"[" * 100_000, b"x" * 2000):
            async with client.post(COMPLETIONS, data=data, headers=JSON) as answer:
                found.append(answer.status)
        return found, (await post(client, COMPLETIONS, HELLO))[0]

    found, after = Site(tmp_path).talk(scenario, ServeLimits(body_bytes=150_000))
    assert found == [400] * 6
    assert after == 200

    async def too_long(client, admin):
        async with client.post(COMPLETIONS, data=b"x" * 2000, headers=JSON) as answer:
            return answer.status
    assert Site(tmp_path).talk(too_long, ServeLimits(body_bytes=1000)) == 413


def test_bodies_that_are_not_read_as_json(tmp_path):
    async def scenario(client, admin):
        found = []
        for headers in ({"Content-Type": "text/plain"}, JSON | {"Content-Encoding": "gzip"},
                        JSON | {"Content-Encoding": "br"}):
            async with client.post(COMPLETIONS, data=gzip.compress(b"{}"), headers=headers) as answer:
                found.append((answer.status, (await answer.json())["error"]["type"]))
        for path in ("/v1/other", "/version"):
            async with client.post(path, json={}) as answer:
                found.append((answer.status, await answer.json()))
        return found

    assert Site(tmp_path).talk(scenario) == [
        *[(400, "Bad Request")] * 3, (404, {"detail": "Not Found"}), (405, {"detail": "Method Not Allowed"})]


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_alone_is_echoed(tmp_path, stream):
    asked = HELLO | {"prompt": "one two three", "echo": True, "max_tokens": 0, "logprobs": 1}
    if stream:
        async def scenario(client, admin):
            async with client.post(COMPLETIONS, json=asked | {"stream": True, "stream_options": {}}) as answer:
                return await answer.text()

        lines = Site(tmp_path).talk(scenario).splitlines()
        chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        [choice], usage = chunks[0]["choices"], chunks[-1]["usage"]
    else:
        answer = Site(tmp_path).ask(COMPLETIONS, asked)[1]
        [choice], usage = answer["choices"], answer["usage"]
    assert (choice["text"], choice["finish_reason"]) == ("one two three", "length")
    assert choice["logprobs"]["tokens"] == ["one", " two", " three"]
    assert choice["logprobs"]["token_logprobs"] == [None, -0.1, -0.1]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (3, 1)


def test_a_full_session_and_a_key(tmp_path):
    async def scenario(client, admin):
        bare = (await client.post(COMPLETIONS, json=HELLO)).status
        client.headers["Authorization"] = "Bearer secret"
        return bare, (await client.get("/health")).status, [
            (await post(client, COMPLETIONS, HELLO))[0] for _ in range(3)]

    assert Site(tmp_path, key="secret", most_requests=2).talk(scenario) == (401, 200, [200, 200, 503])


def test_the_other_routes(tmp_path):
    async def scenario(client, admin):
        async def get(path):
            async with client.get(path) as answer:
                assert answer.status == 200
                return await answer.read()
        tokens = (await post(client, "/tokenize", {"prompt": HELLO["prompt"], "return_token_strs": True}))[1]
        text = (await post(client, "/detokenize", {"tokens": tokens["tokens"]}))[1]["prompt"]
        await post(client, COMPLETIONS, HELLO | {"unheard_of": 1})
        return (tokens, text, json.loads(await get("/v1/models")), await get("/health"), await get("/ping"),
                json.loads(await get("/version")), json.loads(await get("/load")),
                json.loads(await get("/v1/replicas")), (await get("/metrics")).decode())

    tokens, text, models, health, ping, version, load, replicas, page = Site(tmp_path).talk(scenario)
    assert tokens["count"] == 7
    assert "".join(tokens["token_strs"]) == text == HELLO["prompt"]
    assert (models["data"][0]["id"], models["data"][0]["max_model_len"]) == ("served", 180)
    assert health == ping == b""
    assert version["version"].endswith(".0")
    assert load == {"server_load": 0}
    assert [each["running"] + each["waiting"] for each in replicas] == [0, 0]
    lines = page.splitlines()
    labels = 'model_name="served",engine="0"'
    for line in (f"vllm:num_requests_running{{{labels}}} 0.0", f"vllm:prompt_tokens_total{{{labels}}} 7.0",
                 f"vllm:generation_tokens_total{{{labels}}} 6.0",
                 f'vllm:request_success_total{{{labels},finished_reason="length"}} 1.0',
                 f"vllm:inter_token_latency_seconds_count{{{labels}}} 5",
                 f'vllm:request_generation_tokens_bucket{{{labels},le="5.0"}} 0',
                 f'vllm:request_generation_tokens_bucket{{{labels},le="10.0"}} 1',
                 'simulator:ignored_fields_total{field="unheard_of"} 1.0'):
        assert line in lines


def test_metrics_of_siblings_steps_and_adapters(tmp_path):
    # Two answers of 6 tokens to a prompt of 7: 14 tokens of prompts and 12 generated ones, in shared steps.
    async def scenario(client, admin):
        await post(client, COMPLETIONS, HELLO | {"n": 2, "model": "l1"})
        await post(client, COMPLETIONS, HELLO | {"max_tokens": 1})
        long = asyncio.create_task(post(client, COMPLETIONS, HELLO | {"max_tokens": 60, "model": "l2"}))
        while not site.session.fleet.num_open:
            await asyncio.sleep(0.001)
        async with client.get("/metrics") as answer:
            page = await answer.text()
        await long
        return page.splitlines()

    site = Site(tmp_path, speed=0.5, overrides=[
        "topology.replicas=1", 'workload.adapters={names=["l1","l2"]}',
        "engine.lora={max_loras=1,rank=16,adapter_mb=50.0,disk_gb_per_s=2.0,h2d_gb_per_s=25.0}"])
    lines = site.talk(scenario)
    values = {line.rpartition(" ")[0].partition("{")[0]: float(line.split()[-1]) for line in lines if line[0] != "#"}
    assert (values["vllm:request_params_n_sum"], values["vllm:request_params_n_count"]) == (3, 2)
    assert values["vllm:request_max_num_generation_tokens_sum"] == 6 + 1
    assert values["vllm:iteration_tokens_total_sum"] == 2 * 7 + 2 * 6 + 7 + 1
    [info] = [line for line in lines if line.startswith("vllm:lora_requests_info{")]
    assert 'max_lora="1"' in info
    assert ('running_lora_adapters="l2"' in info) != ('waiting_lora_adapters="l2"' in info)


def test_a_client_that_hangs_up(tmp_path):
    async def scenario(client, admin):
        async with client.post(COMPLETIONS, json=HELLO | {"max_tokens": 200, "stream": True}) as answer:
            await answer.content.readline()
            answer.close()
        while site.session.fleet.num_open:
            await asyncio.sleep(0.001)

    site = Site(tmp_path, speed=0.5)
    site.talk(scenario)
    assert 1 <= site.requests["output_tokens"][0] < 200
    report = site.session.write(tmp_path / "out", False)
    assert report["differing_rows"] == []
    assert json.loads((tmp_path / "out/results/summary.json").read_text())["requests"]["timed_out"] == 1


def test_a_client_that_is_gone_when_its_stream_is_written(tmp_path, caplog, monkeypatch):
    async def gone(*_):
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")

    async def scenario(client, admin):
        with pytest.raises(aiohttp.ClientError):
            async with client.post(COMPLETIONS, json=HELLO | {"max_tokens": 200, "stream": True}) as answer:
                await answer.read()
        while site.session.fleet.num_open:
            await asyncio.sleep(0.001)

    site = Site(tmp_path, speed=0.5)
    with monkeypatch.context() as context:
        context.setattr(aiohttp.web.StreamResponse, "write", gone)
        context.setattr(aiohttp.web.StreamResponse, "write_eof", gone)
        site.talk(scenario)
    assert site.session.fleet.served().requests["status"].tolist() == [records.TIMED_OUT]
    assert "Traceback" not in caplog.text


def test_a_port_for_each_replica(tmp_path):
    async def scenario(client, admin):
        for _ in range(3):
            await post(client, COMPLETIONS, HELLO)
        async with client.post(f"http://{LOOPBACK}:{site.ports[1]}{COMPLETIONS}", json=HELLO) as other:
            pod = other.headers["x-inference-pod"]
        async with client.get("/metrics") as answer:
            return pod, (await answer.text()).splitlines()

    site = Site(tmp_path, has_doors=True)
    pod, page = site.talk(scenario)
    assert pod == "replica-1"
    assert site.requests["replica"][:4].tolist() == [0, 0, 0, 1]
    assert 'vllm:generation_tokens_total{model_name="served",engine="0"} 18.0' in page
    assert not any('engine="1"' in line for line in page)
    assert site.session.write(tmp_path / "out", False)["differing_rows"] == []


def test_metrics_of_a_port_are_of_all_ranks_behind_it(tmp_path):
    async def scenario(client, admin):
        async with client.post(f"http://{LOOPBACK}:{site.ports[1]}{COMPLETIONS}", json=HELLO):
            pass
        pages = []
        for port in site.ports[:2]:
            async with client.get(f"http://{LOOPBACK}:{port}/metrics") as answer:
                pages.append((await answer.text()).splitlines())
        return pages

    site = Site(tmp_path, overrides=["topology.data_parallel=2"], has_doors=True)
    tokens = [[line.split()[-1] for line in page if line.startswith("vllm:generation_tokens_total")] for page in
              site.talk(scenario)]
    assert [len(each) for each in tokens] == [2, 2]
    assert [sum(map(float, each)) for each in tokens] == [0.0, 6.0]


def test_names_of_requests(tmp_path):
    headers = {"x-gateway-inference-fairness-id": "team", "X-Session-ID": "talk",
               "x-llm-d-inference-objective": "batch"}

    async def scenario(client, admin):
        for change in ({"model": "french"}, {"user": "me", "session_id": "s2"}):
            async with client.post(COMPLETIONS, json=HELLO | change, headers=headers if "user" not in change else {}):
                pass
        async with client.get("/v1/models") as answer:
            return [(each["id"], each["parent"]) for each in (await answer.json())["data"]]

    site = Site(tmp_path, overrides=["engine.lora={max_loras=1,rank=16,adapter_mb=50.0,disk_gb_per_s=2.0,"
                                     "h2d_gb_per_s=25.0}", 'workload.adapters={names=["french"]}'])
    assert site.talk(scenario) == [("served", None), ("french", "served")]
    served = site.session.fleet.served()
    assert (served.labels["tenant"], served.labels["session"]) == (["team", "me"], ["talk", "s2"])
    assert [served.labels["slo_class"][code] for code in served.demands["slo_class"].tolist()[:1]] == ["batch"]
    assert served.demands["adapter"].tolist() == [0, -1]


def test_a_gateway_that_admits_no_more(tmp_path):
    async def scenario(client, admin):
        async with client.post(COMPLETIONS, json=HELLO) as answer:
            return answer.status, answer.headers["Retry-After"], (await answer.json())["error"]["type"]

    bucket = 'cluster.admission={policy="token_bucket",capacity_tokens=3,refill_tokens_per_s=1.0}'
    assert Site(tmp_path, overrides=[bucket]).talk(scenario) == (429, "1", "Too Many Requests")


def test_an_engine_that_fails(tmp_path):
    async def scenario(client, admin):
        def fail(until_ns):
            raise RuntimeError("broken")
        site.session.fleet.advance = fail
        assert (await post(client, COMPLETIONS, HELLO))[0] == 500

    site = Site(tmp_path)
    with pytest.raises(RuntimeError, match="broken"):
        site.talk(scenario)
    assert site.session.server.statuses[500] == 1


def test_the_switches_of_the_clock(tmp_path):
    async def scenario(client, admin):
        paused = (await post(admin, "/admin/pause", None))[1]
        asked = asyncio.create_task(post(client, COMPLETIONS, HELLO))
        while site.session.fleet.count == 0:
            await asyncio.sleep(0.001)
        stands = (await (await admin.get("/admin/status")).json())["simulated_ns"]
        faults = [(await post(admin, "/admin/speed", body))[0] for body in ({"speed": 0}, {"speed": None}, {}, 5)]
        faster = (await post(admin, "/admin/speed", {"speed": 1000}))[1]
        assert not asked.done()
        await post(admin, "/admin/resume", None)
        return paused, stands, faults, faster, (await asked)[0], (await post(admin, "/admin/other", None))[0]

    site = Site(tmp_path, speed=1)
    paused, stands, faults, faster, status, other = site.talk(scenario)
    assert paused["paused"] is True
    assert paused["simulated_ns"] == stands
    assert faults == [400] * 4
    assert faster["speed"] == 1000
    assert (status, other) == (200, 404)


def test_an_admin_of_replicas(tmp_path):
    async def scenario(client, admin):
        async def act(verb, method="post", **body):
            async with getattr(admin, method)(f"/admin/{verb}", json=body) as answer:
                return answer.status, await answer.json()
        paths = (await act("kill", replica=5), await act("kill", replica="x"), await act("restore", replica=0),
                 await act("slow", replica=1, factor=3.0, for_s=0.01), await act("kill", replica=0),
                 await act("kill", replica=0), await act("scale", "put", replicas=4), await act("add", pool="none"))
        lost = (await post(client, COMPLETIONS, HELLO))[0]
        emptied = [(await act("reset_cache", **body))[0] for body in ({"replica": 1}, {}, {"replica": 9})]
        assert emptied == [200, 200, 409]
        await act("drain", replica=0)
        await act("restore", replica=0)
        return paths, lost, (await post(client, COMPLETIONS, HELLO))[0], (await act("status", "get"))[1]

    site = Site(tmp_path, speed=1000, overrides=['autoscaling={policy="schedule",max_replicas=4}'])
    paths, lost, status, state = site.talk(scenario)
    assert [code for code, _ in paths] == [409, 400, 409, 200, 200, 409, 200, 409]
    assert "expected a replica from 0 to 3, found 5" in paths[0][1]["error"]["message"]
    assert paths[5][1]["error"]["message"] == "replica 0 is down already"
    assert paths[4][1]["last_action"]["on_failure"] == "lost"
    assert (lost, status) == (200, 200)         # by the other replicas
    assert state["replicas"].count("up") >= 3
    assert site.session.write(tmp_path / "out", False)["differing_rows"] == []


def test_a_reset_empties_the_caches_that_no_request_uses(tmp_path):
    async def scenario(client, admin):
        async def reset(query=""):
            async with client.post(f"/reset_prefix_cache{query}") as answer:
                return answer.status, await answer.read()

        async def hits(**changes):
            usage = (await post(client, COMPLETIONS, HELLO | changes))[1]["usage"]
            return usage["prompt_tokens_details"]["cached_tokens"]

        found = [await hits(), await hits(), await reset(), await hits()]
        long = asyncio.create_task(hits(max_tokens=60))
        while not site.session.fleet.num_open:
            await asyncio.sleep(0.001)
        return found, await reset(), await long, await hits(), (await reset("?reset_running_requests=true"))[0]

    site = Site(tmp_path, speed=0.5, overrides=["topology.replicas=1"])
    found, busy, during, after, refused = site.talk(scenario)
    assert found == [0, 4, (200, b""), 0]
    assert (busy, during, after, refused) == ((200, b""), 4, 4, 501)
    assert site.session.write(tmp_path / "out", False)["differing_rows"] == []


def test_replicas_that_cannot_change(tmp_path):
    async def scenario(client, admin):
        async with admin.put("/admin/scale", json={"replicas": 3}) as answer:
            return (await answer.json())["error"]["message"]

    assert Site(tmp_path).talk(scenario).startswith(
        'the number of replicas changes by [autoscaling] policy = "schedule" alone, found no [autoscaling]')


def test_the_command_ends_with_a_signal_and_writes_the_session(tmp_path):
    (tmp_path / "served.toml").write_text(EXPERIMENT)
    command = [sys.executable, "-m", "simulator", "serve", "served.toml", "--port", "0", "--speed", "fast"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}) as process:
        address = process.stdout.readline().split(" at ")[1].split("/v1")[0]

        async def ask():
            async with aiohttp.ClientSession(address) as client:
                return await post(client, COMPLETIONS, HELLO)
        assert asyncio.run(ask())[0] == 200
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    out = tmp_path / "results/served-served"
    report = json.loads((out / "serve.json").read_text())
    assert (report["requests"], report["differing_rows"], report["statuses"]) == (1, [], {"200": 1})
    assert (out / "session/arrivals.csv").read_text().startswith("request_id,arrived_at,")
    assert (out / "results/results.h5").exists()


def test_a_port_that_is_taken(tmp_path, capsys):
    (tmp_path / "served.toml").write_text(EXPERIMENT)
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        for option in ("--port", "--admin-port"):
            command = ["serve", str(tmp_path / "served.toml"), "--out", str(tmp_path / "out"), "--port", "0", option,
                       str(port)]
            assert cli.main(command) == 2
            assert f"port {port} at 127.0.0.1: cannot listen there: Address already in use" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_record_is_kept_where_the_session_cannot_be_written(tmp_path, capsys, monkeypatch):
    def full(out, *_):
        raise OutputError(out, OSError(errno.ENOSPC, "?"))

    (tmp_path / "served.toml").write_text(EXPERIMENT)
    (tmp_path / "kept").mkdir()
    monkeypatch.setattr(opening, "staged", full)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "kept"))
    assert cli.main(["serve", str(tmp_path / "served.toml"), "--out", str(tmp_path / "out"), "--port", "0",
                     "--duration", "0.01"]) == 1
    [record] = (tmp_path / "kept").glob("served-served-*/experiment.toml")
    errors = capsys.readouterr().err
    assert f"`python -m simulator run {record}`" in errors
    assert "out: cannot be written: No space left on device" in errors
