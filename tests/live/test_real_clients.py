"""Clients and gateways from the package index, in front of the server; each is skipped where it is not installed."""
import asyncio
import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest

from simulator.live.settings import LOOPBACK
from support.live_site import COMPLETIONS, HELLO, TALK, Site, post

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}


def test_openai(tmp_path):
    openai = pytest.importorskip("openai")

    async def scenario(client, admin):
        async with openai.AsyncOpenAI(base_url=f"http://{LOOPBACK}:{site.ports[0]}/v1", api_key="k") as real:
            names = [each.id async for each in real.models.list()]
            whole = await real.chat.completions.create(model="served", messages=TALK["messages"], max_tokens=4,
                                                       logprobs=True, top_logprobs=2)
            stream = await real.completions.create(model="served", prompt="say it", max_tokens=5, stream=True,
                                                   stream_options={"include_usage": True})
            events = [event async for event in stream]
            called = await real.chat.completions.create(model="served", messages=TALK["messages"], tools=[TOOL],
                                                        tool_choice="required")
            with pytest.raises(openai.NotFoundError):
                await real.completions.create(model="other", prompt="x")
            with pytest.raises(openai.BadRequestError):
                await real.completions.create(model="served", prompt="x", n=0)
            return names, whole, events, called

    site = Site(tmp_path)
    names, whole, events, called = site.talk(scenario)
    assert names == ["served"]
    assert whole.usage.completion_tokens == len(whole.choices[0].logprobs.content)
    assert len(whole.choices[0].logprobs.content[0].top_logprobs) == 2
    assert events[-1].choices == []
    assert events[-1].usage.completion_tokens == len(events) - 1
    [call] = called.choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("weather", '{"city":""}')


@pytest.mark.parametrize("like", ["vllm", "sglang"])
def test_the_parser_of_prometheus(tmp_path, like):
    parser = pytest.importorskip("prometheus_client.parser")

    async def scenario(client, admin):
        await post(client, COMPLETIONS, HELLO)
        async with client.get("/metrics") as answer:
            return await answer.text()

    page = Site(tmp_path, overrides=[f"serve.like={like}", "topology.replicas=1"]).talk(scenario)
    families = {family.name: family for family in parser.text_string_to_metric_families(page)}
    assert families[f"{like}:generation_tokens"].samples[0].value == 6
    latency = families[f"{like}:e2e_request_latency_seconds"]
    assert latency.type == "histogram"
    assert [each.value for each in latency.samples if each.name.endswith("_count")] == [1]


def test_litellm(tmp_path, monkeypatch):
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")      # nothing is fetched
    litellm = pytest.importorskip("litellm")

    async def scenario(client, admin):
        return await litellm.acompletion(model="openai/served", messages=TALK["messages"], max_tokens=4, api_key="k",
                                         api_base=f"http://{LOOPBACK}:{site.ports[0]}/v1")

    site = Site(tmp_path)
    answer = site.talk(scenario)
    assert answer.usage.prompt_tokens == 14
    assert answer.choices[0].message.content


def test_the_router_of_sglang(tmp_path):
    pytest.importorskip("sglang_router")

    async def scenario(client, admin):
        port = free_port()
        workers = [f"http://{LOOPBACK}:{each}" for each in site.ports]
        command = [sys.executable, "-m", "sglang_router.launch_router", "--worker-urls", *workers, "--policy",
                   "round_robin", "--host", LOOPBACK, "--port", str(port)]
        with ExitStack() as stack:
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.DEVNULL,
                                                           stderr=subprocess.STDOUT))
            stack.callback(process.kill)
            found, asked = [], {"text": "one two", "sampling_params": {"max_new_tokens": 3, "ignore_eos": True}}
            for _ in range(200):
                await asyncio.sleep(0.1)
                try:
                    status, answer = await post(client, f"http://{LOOPBACK}:{port}/generate", asked)
                except OSError:
                    continue
                found += [answer["meta_info"]["completion_tokens"]] if status == 200 else []
                if len(found) == 6:
                    return found
        raise AssertionError("the router did not answer")

    site = Site(tmp_path, overrides=["serve.like=sglang"], has_doors=True)
    assert site.talk(scenario) == [3] * 6
    replicas = site.requests["replica"][:site.session.fleet.count].tolist()
    assert (replicas.count(0), replicas.count(1)) == (3, 3)


def free_port():
    with socket.socket() as found:
        found.bind((LOOPBACK, 0))
        return found.getsockname()[1]
