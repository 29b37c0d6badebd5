"""KV events: their bytes, and the cache that a subscriber builds of them."""
import asyncio
import socket

import msgspec
import pytest

from simulator import cli
from simulator.domain.serving import KvEvents
from simulator.errors import InputErrors, MissingExtra
from simulator.live import refusals
from simulator.live.cache_events import CacheEvents
from simulator.live.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, as_array, as_map
from support.live_sessions import EXPERIMENT, Session, fleet_of
from support.live_site import COMPLETIONS, HELLO, Site, post

# specs/serve.md, section 9: made with the structs of vLLM 0.33.0.
GOLDEN = ("93cb3ff800000000000093de0008a474797065ab426c6f636b53746f726564ac626c6f636b5f686173686573920b0cb170617265"
          "6e745f626c6f636b5f68617368c0a9746f6b656e5f6964739401020304aa626c6f636b5f73697a6502a76c6f72615f6964c0a66d"
          "656469756da3475055a96c6f72615f6e616d65c083a474797065ac426c6f636b52656d6f766564ac626c6f636b5f686173686573"
          "910ba66d656469756da347505581a474797065b0416c6c426c6f636b73436c656172656400")
ANY = "tcp://127.0.0.1:0"
EVENTS = [BlockStored([11, 12], None, [1, 2, 3, 4], 2, None, "GPU", None), BlockRemoved([11], "GPU"),
          AllBlocksCleared()]


def test_the_bytes_of_a_message():
    assert as_map(1.5, EVENTS, 0).hex() == GOLDEN


class Subscriber:
    """The cache of each replica, by the events alone: hash -> (text with all before it, adapter)."""

    def __init__(self):
        self.views, self.times_ns, self.kinds = {}, {}, set()

    def __call__(self, index, time_ns, events):
        assert self.times_ns.setdefault(index, -1) <= time_ns
        self.times_ns[index] = time_ns
        view = self.views.setdefault(index, {})
        for event in events:
            self.kinds.add(type(event))
            if isinstance(event, BlockStored):
                self.store(view, event)
            elif isinstance(event, BlockRemoved):
                for found in event.block_hashes:
                    del view[found]
            else:
                view.clear()

    def store(self, view, event):
        size, parent = event.block_size, event.parent_block_hash
        text = () if parent is None else view[parent][0] if parent in view else None
        assert len(event.token_ids) == size * len(event.block_hashes)
        for i, found in enumerate(event.block_hashes):
            assert found not in view
            text = None if text is None else text + tuple(event.token_ids[i * size:(i + 1) * size])
            view[found] = text, event.lora_name


SCENES = {
    "evictions": ["engine.num_gpu_blocks=46"],
    "kvaware_router": ["cluster.routing.policy=kvaware", "engine.num_gpu_blocks=46"],
    "async": ["engine.async_scheduling=true"],
    "ranks": ["topology.data_parallel=2"],
    "stops": ['failures=[{kind="stop",mtbf_s=0.3,mttr_s=0.1}]', "cluster.retry={}"],
    "prefill_decode": ['pools=[{name="p",replicas=1,role="prefill"},{name="d",replicas=1,role="decode"}]',
                       "kv_transfer={kv_bytes_per_token=10000,bandwidth_gb_per_s=1.0}"],
    "adapters": ["engine.lora={max_loras=1,rank=16,adapter_mb=50.0,disk_gb_per_s=2.0,h2d_gb_per_s=25.0}",
                 'workload.adapters={names=["l1","l2"]}', "engine.num_gpu_blocks=150"],
}


@pytest.mark.parametrize("scene", SCENES)
def test_a_subscriber_has_the_cache_of_each_replica(tmp_path, scene):
    _, fleet = fleet_of(tmp_path, SCENES[scene])
    subscriber = Subscriber()
    fleet.events = CacheEvents(fleet, subscriber)
    session = Session(fleet, 3, labels={"adapter": ["l2", "l1", ""]} if scene == "adapters" else {}).play()
    fleet.advance(session.now_ns + 10**8)

    known = {tuple(text[:end].tolist()) for text in session.known for end in range(4, len(text) + 1, 4)}
    for index, replica in enumerate(fleet.cluster.replicas):
        view = subscriber.views.get(index, {})
        assert len(view) == replica.rank.kv.num_cached_hashes
        assert {text for text, _ in view.values()} <= known | {None}
    views = subscriber.views.values()
    names = {name for view in views for _, name in view.values()}
    assert names >= ({"l1", "l2", None} if scene == "adapters" else {None})
    assert subscriber.kinds == {BlockStored, BlockRemoved} | ({AllBlocksCleared} if scene == "stops" else set())
    held = {found for view in views for found in view}
    assert set(fleet.events.texts.blocks) == held       # ended requests are forgotten


def test_over_zeromq_with_replay(tmp_path):
    zmq, sockets = pytest.importorskip("zmq"), pytest.importorskip("zmq.asyncio")

    async def scenario(client, admin):
        async with client.get("/kv_event_sources") as answer:
            [source] = await answer.json()
        with sockets.Context() as context, context.socket(zmq.SUB) as listener, \
                context.socket(zmq.DEALER) as asker:
            listener.subscribe("kv@")
            listener.connect(source["endpoint"])
            asker.connect(source["replay_endpoint"])
            while not await listener.poll(20):          # a subscription takes some time
                await post(client, COMPLETIONS, HELLO)
            heard = await listener.recv_multipart()
            await post(client, COMPLETIONS, HELLO | {
                "prompt": "quite another prompt, of some more words " * 4, "cache_salt": "s"})
            await asker.send_multipart((b"", b"too short"))
            await asker.send_multipart((b"", bytes(8)))
            replayed = []
            while not replayed or replayed[-1][2] != b"\xff" * 8:
                replayed.append(await asker.recv_multipart())
        return source, heard, replayed

    site = Site(tmp_path, overrides=["topology.replicas=1", "serve.kv_event_encoding=array", "serve.kv_events={"
                f"endpoint='{ANY}',replay_endpoint='{ANY}'}}"])
    source, heard, replayed = site.talk(scenario)
    assert source["topic"] == f"kv@127.0.0.1:{site.ports[0]}@served"
    assert replayed.pop()[1:] == [b"", b"\xff" * 8, b""]
    assert [int.from_bytes(number, "big") for _, _, number, _ in replayed] == list(range(len(replayed)))
    assert heard in [frames[1:] for frames in replayed]
    stored = set()
    for _, _, _, payload in replayed:
        _, events, rank = msgspec.msgpack.decode(payload)
        assert rank == 0
        for name, hashes, _, tokens, size, lora_id, medium, lora_name in events:
            assert (name, lora_id, medium, lora_name) == ("BlockStored", None, "GPU", None)
            assert len(tokens) == size * len(hashes)
            stored |= {*hashes}
    assert len(stored) == site.session.fleet.cluster.replicas[0].rank.kv.num_cached_hashes > 8


def test_a_replay_has_the_last_messages():
    zmq, sockets = pytest.importorskip("zmq"), pytest.importorskip("zmq.asyncio")
    from simulator.live.publishers import Publishers, Source

    async def scenario():
        settings = KvEvents(endpoint=ANY, replay_endpoint=ANY, topic="t", buffer_steps=2, hwm=7)
        publishers = Publishers(settings, "map", [Source(0, "m"), Source(1, "m")])
        publishers.open("host", [8000])
        for _ in range(5):
            publishers.publish(1, EVENTS)
        with sockets.Context() as context, context.socket(zmq.DEALER) as asker:
            asker.connect(publishers.table()[1]["replay_endpoint"])
            await asker.send_multipart((b"", bytes(8)))
            found = [(await asker.recv_multipart())[1:3] for _ in range(3)]
        ends = [socket.get(zmq.SNDHWM) for socket in publishers.sockets]
        publishers.close()
        return found, ends

    found, ends = asyncio.run(scenario())
    assert found == [[b"t", bytes(7) + b"\3"], [b"t", bytes(7) + b"\4"], [b"", b"\xff" * 8]]
    assert ends == [7, 7]


def test_older_arrays():
    assert msgspec.msgpack.decode(as_array(1.5, EVENTS, 3)) == [
        1.5, [["BlockStored", [11, 12], None, [1, 2, 3, 4], 2, None, "GPU", None], ["BlockRemoved", [11], "GPU"],
              ["AllBlocksCleared"]], 3]


@pytest.mark.parametrize(("overrides", "faults"), [
    (["engine.scheduler=sarathi", "engine.enable_prefix_caching=false"], ["engine.scheduler", "enable_prefix_caching"]),
    (['engine.speculative={method="eagle",num_tokens=2,drafter_share=0.1,acceptance={mean_length=1.9}}'],
     ["engine.speculative.method"])])
def test_caches_that_have_no_events_are_refused(tmp_path, overrides, faults):
    experiment, fleet = fleet_of(tmp_path, overrides)
    with pytest.raises(InputErrors) as caught:
        refusals.check_kv_events(fleet, experiment)
    assert len(caught.value.faults) == len(faults)
    assert all(name in fault for name, fault in zip(faults, caught.value.faults, strict=True))


def test_no_events_without_the_library(tmp_path, monkeypatch):
    monkeypatch.setattr("simulator.live.opening.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="needs pyzmq"):
        Site(tmp_path, overrides=["serve.kv_events={}"])


def test_other_machines_get_no_events_unless_told(tmp_path, monkeypatch, capsys):
    (tmp_path / "served.toml").write_text(EXPERIMENT)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["serve", "served.toml", "--kv-events", "tcp://*:5557"]) == 2
    assert 'endpoint: expected an address of this machine, found "tcp://*:5557"' in capsys.readouterr().err


def test_an_endpoint_that_is_taken(tmp_path, capsys):
    pytest.importorskip("zmq")
    pytest.importorskip("aiohttp")
    (tmp_path / "served.toml").write_text(EXPERIMENT)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert cli.main(["serve", str(tmp_path / "served.toml"), "--out", str(tmp_path / "out"), "--port", "0",
                         "--kv-events", f"tcp://127.0.0.1:{port}"]) == 2
    assert f"serve.kv_events: KV events cannot be published at 127.0.0.1:{port}: " in capsys.readouterr().err
