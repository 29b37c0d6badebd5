"""Faults, settings and results by an admin."""
import asyncio
import json

import pytest

from simulator.live.bodies import Refused
from simulator.live.faults import TYPES, Faults, Order
from support.live_site import CHAT, COMPLETIONS, HELLO, TALK, Site, aiohttp, events_of, post

STREAM = HELLO | {"stream": True, "stream_options": {"include_usage": True}}


async def heard(client, body):
    """Return status and bytes of an answer, and whether the connection broke."""
    data, answer = b"", None
    try:
        async with client.post(COMPLETIONS, json=body) as answer:
            async for part in answer.content.iter_any():
                data += part
    except aiohttp.ClientError:
        return answer and answer.status, data, True
    return answer.status, data, False


def test_errors_in_place_of_answers_are_drawn():
    faults, found = Faults(7), []
    faults.order = Order(0.4, ["rate_limit", "server_error"])
    for _ in range(1000):
        try:
            assert faults.draw() is None
        except Refused as refused:
            found.append((refused.status, refused.kind))
    assert 340 < len(found) < 460               # 400, deviation 15.5
    assert {*found} == {(429, "Too Many Requests"), (503, "Service Unavailable")}
    assert 0.4 < found.count((429, "Too Many Requests")) / len(found) < 0.6


def test_errors_and_settings_act_until_they_are_taken_back(tmp_path):
    async def scenario(client, admin):
        seen = []
        for order in ({"rate": 1}, {"rate": 1, "fault": "error_envelope_200"}, {"rate": 1, "fault": "cancelled_499"}):
            assert (await post(admin, "/admin/faults", order))[0] == 200
            status, answer = await post(client, COMPLETIONS, HELLO)
            seen.append((status, answer["error"]["code"]))
        await post(admin, "/admin/faults", {"rate": 0})
        assert (await post(client, COMPLETIONS, HELLO))[0] == 200
        for key, value in (("serve.stream_interval", 4), ("serve.default_max_tokens", 2), ("serve.tool_calls", "never"),
                           ("serve.metrics", "routing"), ("serve.limits.requests_per_s", 9.0)):
            assert (await post(admin, "/admin/set", {"key": key, "value": value}))[0] == 200
        events = await events_of(client, COMPLETIONS, HELLO)
        short = (await post(client, CHAT, {"messages": TALK["messages"], "ignore_eos": True}))[1]
        tool = await post(client, CHAT, TALK | {"tool_choice": "required", "tools": [
            {"type": "function", "function": {"name": "f"}}]})
        async with client.get("/metrics") as answer:
            page = await answer.text()
        limited = [(await post(client, COMPLETIONS, HELLO))[0] for _ in range(4)]
        async with admin.get("/admin/results") as answer:
            results = await answer.json()
        return seen, len(events), short["usage"]["completion_tokens"], tool[0], page, limited, results

    site = Site(tmp_path)
    site.session.server.second = lambda: 7
    seen, num_events, tokens, tool, page, limited, results = site.talk(scenario)
    assert seen[1:] == [(200, 500), (499, 499)]
    assert seen[0] in {(status, status) for status, _, _ in TYPES.values()}
    assert (num_events, tokens, tool) == (2, 2, 501)
    assert "vllm:e2e_request_latency" not in page
    assert limited[-1] == 429
    assert results["requests"]["completed"] == site.session.fleet.count
    assert results["ttft_ms"]["mean"] > 0
    report = site.session.write(tmp_path / "out", False)
    assert (report["differing_rows"], report["requests"]) == ([], site.session.fleet.count)
    assert (tmp_path / "out/session/actions.csv").read_text().count(",set,") == 5


@pytest.mark.parametrize(("fault", "ends"), [
    ("cut_between_frames", None), ("cut_mid_frame", None), ("reset", None), ("error_400_in_sse", False),
    ("no_done", False), ("no_usage", False)])
def test_streams_that_break(tmp_path, fault, ends):
    async def scenario(client, admin):
        await post(admin, "/admin/faults", {"rate": 1, "fault": fault, "after": 2})
        found = await heard(client, STREAM)
        await post(admin, "/admin/faults", {"rate": 0})
        return found, await heard(client, STREAM)

    site = Site(tmp_path, overrides=["topology.replicas=1"])
    (status, data, is_broken), (_, whole, _) = site.talk(scenario)
    assert (status, is_broken) == (200, ends is None)
    frames, complete = data.split(b"\n\n"), whole.split(b"\n\n")
    assert len(complete) == 6 + 3               # tokens; usage, [DONE], nothing
    if fault in ("cut_between_frames", "cut_mid_frame"):
        assert len(frames) == 3
        assert (frames[2] == b"") == (fault == "cut_between_frames")
    elif fault == "error_400_in_sse":
        assert json.loads(frames[2].removeprefix(b"data: "))["error"]["code"] == 400
    elif fault != "reset":
        assert len(frames) == 8
        assert (b"[DONE]" in data, b'"choices":[]' in data) == (fault == "no_usage", fault == "no_done")
    assert site.session.write(tmp_path / "out", False)["differing_rows"] == []


def test_answers_that_break_or_stall(tmp_path):
    async def scenario(client, admin):
        await post(admin, "/admin/faults", {"rate": 1, "fault": "reset"})
        found = await heard(client, HELLO)
        await post(admin, "/admin/faults", {"rate": 1, "fault": "stall", "after": 1})
        for body in (HELLO, STREAM):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(heard(client, body), 0.1)
        return found

    assert Site(tmp_path).talk(scenario) == (None, b"", True)


@pytest.mark.parametrize(("path", "body", "status", "reason"), [
    ("faults", {"rate": 2}, 400, "rate"), ("faults", {"rate": 1, "types": ["x"]}, 400, "Invalid enum value 'x'"),
    ("faults", {"rate": 1, "types": ["rate_limit"], "fault": "stall"}, 400, "either types or a fault"),
    ("faults", {"rate": 1, "after": 3}, 400, "without a fault"),
    ("set", {"key": "serve.stream_interval", "value": 0}, 400, ">= 1"),
    ("set", {"key": "serve.limits.body_bytes", "value": 5000}, 409, "only serve.default_max_tokens"),
    ("set", {"key": "autoscaling.max_replicas", "value": 5}, 409, "/admin/scale"),
    ("set", {"key": "failures[0].mtbf_s", "value": 5}, 409, "/admin/kill"),
    ("set", {"key": "engine.max_num_seqs", "value": 5}, 409, "one value for the whole session")])
def test_orders_that_are_refused(site_of_refusals, path, body, status, reason):
    found, answer = site_of_refusals[path, json.dumps(body)]
    assert found == status
    assert reason in answer["error"]["message"]


@pytest.fixture(scope="module")
def site_of_refusals(tmp_path_factory):
    asked = next(mark for mark in test_orders_that_are_refused.pytestmark if mark.name == "parametrize").args[1]

    async def scenario(client, admin):
        return {(path, json.dumps(body)): await post(admin, f"/admin/{path}", body) for path, body, _, _ in asked}

    return Site(tmp_path_factory.mktemp("admin")).talk(scenario)
