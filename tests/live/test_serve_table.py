"""[serve]: texts, lengths, limits and metrics of a live session."""
import json
from hashlib import sha256

import pytest

from simulator import cli
from simulator.config.load import load_experiment
from simulator.domain.serving import ServeLimits
from simulator.errors import InputErrors, MissingExtra
from simulator.live.clock import Clock
from simulator.live.fleet import LiveRequest
from simulator.live.service import Service
from support.live_sessions import EXPERIMENT, fleet_of
from support.live_site import CHAT, COMPLETIONS, HELLO, TALK, Site, events_of, post

MS = 1_000_000
ASKED = {"prompt": "one two three", "max_tokens": 7, "ignore_eos": True}


async def texts_of(client, *bodies):
    """Return text and reason of the first choice of each answer."""
    found = []
    for path, body in bodies:
        status, answer = await post(client, path, body)
        assert status == 200, answer
        choice = answer["choices"][0]
        found.append((choice["text"] if path == COMPLETIONS else choice["message"]["content"],
                      choice["finish_reason"]))
    return found


def texts(site, *bodies):
    """Return text and reason of the first choice of the answer to each body, (path, body)."""
    return site.talk(lambda client, admin: texts_of(client, *bodies))


def test_an_echo_repeats_the_prompt_or_the_last_message_of_the_user(tmp_path):
    talk = {"messages": [{"role": "user", "content": "no"}, {"role": "assistant", "content": "so"},
                         {"role": "user", "content": "say it"}], "max_tokens": 5, "ignore_eos": True}
    assert texts(Site(tmp_path, overrides=["serve.text=echo"]), (COMPLETIONS, ASKED), (CHAT, talk)) == [
        ("one two three one two three one", "length"), ("say it say it say", "length")]


def test_a_data_set_has_texts_and_lengths(tmp_path):
    known = {"prompt_sha256": sha256(b"one two three").hexdigest(), "text": "the known answer"}
    (tmp_path / "texts.jsonl").write_text(json.dumps(known) + "\n\n" + json.dumps({"text": "other words"}))
    site = Site(tmp_path, overrides=[f"serve={{text='dataset',dataset='{tmp_path}/texts.jsonl',"
                                     "output_tokens='dataset'}"])
    short, cut, *others = texts(site, *((COMPLETIONS, body) for body in (
        {"prompt": "one two three"}, ASKED | {"max_tokens": 2}, *({"prompt": f"prompt {i}"} for i in range(8)))))
    assert short == ("the known answer", "stop")
    assert cut == ("the known", "length")
    assert {text for text, _ in others} == {"the known answer", "other words"}


@pytest.mark.parametrize(("lines", "fault"), [
    ('{"text": "a"}\n{"words": 1}\n{"text": ""}', "texts.jsonl:2: expected"), ("\n", "has no line")])
def test_a_data_set_with_faults(tmp_path, lines, fault):
    (tmp_path / "texts.jsonl").write_text(lines)
    with pytest.raises(InputErrors) as caught:
        Site(tmp_path, overrides=[f"serve={{text='dataset',dataset='{tmp_path}/texts.jsonl'}}"])
    assert fault in str(caught.value)
    assert len(caught.value.faults) == (2 if "words" in lines else 1)


def test_lengths_from_the_request_or_a_distribution(tmp_path):
    free = ASKED | {"ignore_eos": False}
    site = Site(tmp_path, overrides=["serve.output_tokens=max_tokens"])
    [(text, reason)] = texts(site, (COMPLETIONS, free))
    assert (len(text.split()), reason) == (7, "length")
    site = Site(tmp_path, overrides=["serve.output_tokens={distribution='uniform',min=2,max=5}",
                                     "serve.default_max_tokens=4"])
    found = texts(site, *[(COMPLETIONS, free)] * 20, *[(CHAT, {"messages": TALK["messages"]})] * 20)
    assert {len(text.split()) for text, _ in found[:20]} == {2, 3, 4, 5}
    assert {len(text.split()) for text, _ in found[20:]} == {2, 3, 4}
    assert found == texts(Site(tmp_path, overrides=["serve.output_tokens={distribution='uniform',min=2,max=5}",
                                                    "serve.default_max_tokens=4"]),
                          *[(COMPLETIONS, free)] * 20, *[(CHAT, {"messages": TALK["messages"]})] * 20)


def test_stream_interval_and_requests_a_second(tmp_path):
    async def scenario(client, admin):
        events = await events_of(client, COMPLETIONS, HELLO)
        own = await events_of(client, COMPLETIONS, HELLO | {"stream_interval": 1})
        return len(events), len(own), [(await post(client, COMPLETIONS, HELLO))[0] for _ in range(3)]

    site = Site(tmp_path, overrides=["serve={stream_interval=3,limits={requests_per_s=4}}"])
    site.session.server.second = lambda: 7
    assert site.talk(scenario) == (2, 6, [200, 200, 429])


def test_metrics_for_routing_and_by_the_clock_of_the_wall(tmp_path):
    async def scenario(client, admin):
        await post(client, COMPLETIONS, HELLO)
        pages = []
        for path in ("/metrics", "/metrics?full=1"):
            async with client.get(path) as answer:
                pages.append(await answer.text())
        return pages

    sums = []
    for clock in ("simulated", "wall"):
        site = Site(tmp_path, speed=500.0, overrides=[f"serve={{metrics='routing',metrics_clock='{clock}'}}"])
        routing, full = site.talk(scenario)
        families = {line.split()[2] for line in routing.splitlines() if line.startswith("# TYPE")}
        assert families == {"vllm:" + name for name in (
            "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "cache_config_info",
            "prefix_cache_queries_total", "prefix_cache_hits_total", "num_preemptions_total")}
        assert "vllm:e2e_request_latency_seconds_count" in full
        [line] = [line for line in full.splitlines() if line.startswith("vllm:time_to_first_token_seconds_sum")][:1]
        sums.append(float(line.split()[-1]))
    assert sums[0] == pytest.approx(500 * sums[1])


class Wall:
    """A wall clock that is set by hand."""

    now_ns = 0

    def __call__(self):
        return self.now_ns


@pytest.mark.parametrize("stretches", [False, True])
def test_time_that_is_behind_waits_if_it_may(tmp_path, stretches):
    _, fleet = fleet_of(tmp_path, ["topology.replicas=1", "latency.base_us=8000.0", "latency.per_sequence_us=0.0",
                                   "latency.per_prefill_token_us=1000.0", "latency.per_context_token_us=0.0"])
    wall, news = Wall(), []
    service = Service(fleet, Clock(2, wall), stretches=stretches)
    service.submit(LiveRequest(30, 5, 5), lambda message, due_ns: news.append((message.time_ns, due_ns)))
    wall.now_ns = service.turn()
    assert wall.now_ns == 19 * MS           # 38 ms at speed 2
    wall.now_ns += 100 * MS                 # the machine was busy
    service.turn()
    first = (38 * MS, (119 if stretches else 19) * MS)
    assert news == ([first] if stretches else [first, *((time * MS, time * MS // 2) for time in (46, 54, 62, 70, 70))])
    assert service.stretched_ns == 100 * MS * stretches
    if stretches:
        wall.now_ns = service.turn()
        service.turn()
        assert news[1:] == [(46 * MS, 123 * MS)]
        assert fleet.submit(LiveRequest(30, 5, 5), service.clock.now_ns()) == 1
        assert fleet.workload.requests["arrival_ns"][1] > 46 * MS


@pytest.mark.parametrize(("table", "fault"), [
    ("speed=0", "serve.speed: expected a number from 0.01 to 10000"), ("text='dataset'", "go together"),
    ("output_tokens='dataset'", 'takes text = "dataset"'), ("output_tokens='all'", "serve.output_tokens: expected"),
    ("speed='fast',on_overrun='stretch'", "takes a number as speed"),
    ("speed='fast',metrics_clock='wall'", "takes a number as speed"), ("like='other'", "serve.like"),
    ("tool_calls='some'", "serve.tool_calls"), ("limits={connections=0,header_bytes=5,idle_s=0}", "connections"),
    ("directives=true", "unknown key")])
def test_faults_of_the_table(tmp_path, table, fault):
    (tmp_path / "served.toml").write_text(EXPERIMENT)
    with pytest.raises(InputErrors) as caught:
        load_experiment(tmp_path / "served.toml", [f"serve={{{table}}}"])
    assert fault in str(caught.value)
    assert len(caught.value.faults) == (3 if "idle_s" in table else 1)


def test_limits_are_those_of_the_table_or_the_options(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("simulator.live.opening.Session.serve", lambda self, settings, announce: seen.append(
        (settings.limits, self.service.clock.speed, self.server.facts.serve.like)))
    (tmp_path / "served.toml").write_text(EXPERIMENT + "[serve]\nspeed = 3\nlike = 'sglang'\n[serve.limits]\n"
                                                       "body_bytes = 2048\nheader_bytes = 4096\nidle_s = 9.0\n")
    monkeypatch.chdir(tmp_path)
    for options in ([], ["--speed", "2.5", "--body-bytes", "4096", "--connections", "3", "--like", "vllm"]):
        assert cli.main(["serve", "served.toml", "--overwrite", "--quiet", *options]) == 0
    first = ServeLimits(body_bytes=2048, header_bytes=4096, idle_s=9.0)
    assert seen == [(first, 3, "sglang"), (ServeLimits(body_bytes=4096, header_bytes=4096, idle_s=9.0, connections=3),
                                           2.5, "vllm")]


@pytest.mark.parametrize(("key", "package"), [("tokenizer", "tokenizers"), ("chat_template", "jinja2")])
def test_packages_of_the_extra_tokenizers_are_named(tmp_path, monkeypatch, key, package):
    monkeypatch.setattr("simulator.live.opening.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=rf"serve\.{key} needs {package}: .*simulator\[tokenizers\]"):
        Site(tmp_path, overrides=[f"serve.{key}=none.json"])
