"""A session: from the experiment to a server, and from its requests to files."""
import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

from msgspec.structs import replace

from simulator import __version__
from simulator.api import run_experiment
from simulator.assembly.assemble import prepare
from simulator.assembly.requests import vocabulary_of
from simulator.config.experiment import Experiment
from simulator.config.load import load_experiment
from simulator.domain.serving import Serve
from simulator.errors import InputErrors, KeyFault, MissingExtra
from simulator.live import refusals
from simulator.live.answers import Answers
from simulator.live.bodies import chat_text
from simulator.live.clock import Clock
from simulator.live.doors import with_doors
from simulator.live.fleet import LiveFleet
from simulator.live.service import Service
from simulator.live.session import differing_rows, write_session
from simulator.live.settings import Settings
from simulator.live.spans import Spans
from simulator.live.texts import Writer
from simulator.live.words import FIRST_ID, Words
from simulator.results.directory import Contents, staged

VOCABULARY = 128_000            # without a model
LEAST_VOCABULARY = 2 * FIRST_ID
BUSY_CORES = 0.5                # used by a process that may be too slow by itself
FILES = {"session", "results", "serve.json", "spans.jsonl"}
CONTENTS = Contents("serve", FILES.__contains__, frozenset(("serve.json",)),
                    lambda _: "an earlier session exists")


def check_installed() -> None:
    """Raise MissingExtra without aiohttp."""
    if find_spec("aiohttp") is None:
        raise MissingExtra(["serve needs aiohttp: install it with pip install 'simulator[serve]'"])


class Session:
    """One session of an experiment's fleet.

    speed : as `clock.Clock` takes it. most_requests : until its end. model : its name for clients; None: the model's,
    else the experiment's. key : that clients must give; "": none. has_doors : each replica has a port.

    Raises InputErrors: the experiment cannot be served.
    """

    def __init__(self, experiment: Experiment, speed: float | str, most_requests: int, model: str | None = None,
                 key: str = "", has_doors: bool = False):
        from simulator.live.pages import tally_of
        from simulator.live.server import Facts, Server  # need an extra
        refusals.check(experiment)
        doors = ()
        if has_doors:
            experiment, doors = with_doors(experiment)
        prepared = prepare(experiment)
        natural = prepared.workload.outcomes["output_tokens"].copy()
        if len(natural) == 0:
            raise InputErrors([KeyFault("workload: expected some requests: their answers give the lengths of answers")])
        named = experiment.model.name if experiment.model is not None else None
        serve = settled(replace(experiment.serve or Serve(), speed=speed), experiment)
        words, vocabulary = tokenizer_of(serve, vocabulary_of(experiment))
        template = None if serve.chat_template is None else _template(serve.chat_template)
        facts = Facts(model or named or experiment.name, _version(experiment), vocabulary, key, serve)
        self.experiment, self._began_s = experiment, time.time()
        self.fleet = LiveFleet(prepared, most_requests, doors)
        refusals.check_blocks(self.fleet)
        self.service = Service(self.fleet, Clock(speed, time.monotonic_ns), stretches=serve.on_overrun == "stretch")
        tally = tally_of(self.service, serve)
        self.service.observer = tally.note
        answers = Answers(self.fleet, words, Writer(serve, words, natural), experiment.seed)
        self.server = Server(self.service, answers, words, facts, tally)
        self.server.template = template or chat_text
        if serve.spans:
            refusals.check_spans(serve)
            self.server.spans = Spans(self.service.clock, experiment.seed)
        if serve.kv_events is not None:
            refusals.check_kv_events(self.fleet, experiment)
            self.server.publishers = _publishers(self.fleet, serve, facts.model)
        self._ended_by: int | None = None

    def serve(self, settings: Settings, announce: Callable[[list[int], int | None], None]) -> None:
        """Serve until the session ends.

        announce : called with the ports that listen.
        """
        from simulator.live.hosting import Host
        host = Host(self.service, self.server, settings, announce)
        asyncio.run(host.serve())
        self._ended_by = host.signal_number

    @property
    def num_replicas(self) -> int:
        """Number of replicas that serve."""
        return len(self.fleet.cluster.replicas)

    def banner(self, host: str, ports: list[int], admin_port: int | None, scheme: str = "http") -> Iterator[str]:
        """Yield the lines to print when the ports listen.

        scheme : http or https.
        """
        clock, places = self.service.clock, self.num_replicas
        further = f", ..., {scheme}://{host}:{ports[-1]}/v1, a port each" if len(ports) > 1 else ""
        yield (f"serving {self.server.facts.model} by {places} simulated replica{'s' * (places > 1)} at "
               f"{scheme}://{host}:{ports[0]}/v1{further}; Ctrl-C ends the session")
        if admin_port is not None:
            yield f"admin at http://127.0.0.1:{admin_port}/admin"
        if clock.is_fast:
            yield "speed fast: time jumps to what is due next; waits of clients take no simulated time"
        elif clock.speed != 1:
            yield (f"speed {clock.speed:g}: intervals of clients and controllers are not scaled: 1 s of theirs is "
                   f"{clock.speed:g} s here")

    def rescue(self) -> Path | None:
        """Write the record alone into a temporary folder; return its experiment file.

        None: that is not possible either.
        """
        try:
            folder = Path(tempfile.mkdtemp(prefix=f"{self.experiment.name}-served-"))
            actions = self.fleet.actions
            return write_session(actions.recorded(self.experiment), self.fleet.served(), folder, actions.taken)
        except OSError:
            return None

    def write(self, out: Path, overwrite: bool) -> dict:
        """Write the session into a folder; return the content of serve.json.

        The folder holds the record, the results of its run, and serve.json.
        """
        served = self.fleet.served()
        with staged(out, overwrite, CONTENTS) as folder:
            actions = self.fleet.actions
            file = write_session(actions.recorded(self.experiment), served, folder / "session", actions.taken)
            differing = []
            if len(served):
                result = run_experiment(load_experiment(file), folder / "results", quiet=True)
                differing = differing_rows(served, result.requests)
            report = self._report(len(served), differing)
            if self.server.spans is not None:
                (folder / "spans.jsonl").write_bytes(b"".join(self.server.spans.lines(
                    served, self.server.facts.serve.like)))
            text = json.dumps(report, indent=2) + "\n"
            (folder / "serve.json").write_text(text, encoding="utf-8", newline="\n")
        return report

    def warnings(self, report: dict) -> Iterator[str]:
        """Yield warnings."""
        if report["differing_rows"]:
            yield (f"the run of the record differs from what was served in {len(report['differing_rows'])} requests, "
                   f"the first is {report['differing_rows'][0]}: please report this")
        if report["stopped"]:
            yield "the engine could not go on: see the diagnosis in results/summary.json"
        if report["kept_up"] is False:
            yield (f"answers were late, by {report['lag']['most_ms']:.1f} ms at most: clients measured that besides; "
                   f"{report['cause']}")

    def _report(self, count: int, differing: list[int]) -> dict:
        service, server, clock = self.service, self.server, self.service.clock
        shares = {"engine": service.engine_ns / 1e9, "writing answers": server.http_ns / 1e9,
                  "metrics": server.metrics_ns / 1e9}
        wall_s = time.time() - self._began_s
        return {"version": __version__, "requests": count, "differing_rows": differing,
                "stopped": self.fleet.is_stopped, "ended_by": self._ended_by,
                "simulated_s": clock.now_ns() / 1e9, "wall_s": wall_s,
                "speeds": [{"wall_ns": wall_ns - clock.changes[0][0], "simulated_ns": simulated_ns, "speed": speed}
                           for wall_ns, simulated_ns, speed in clock.changes],
                "kept_up": None if clock.is_fast else service.lag.kept_up, "lag": service.lag.table(),
                "stretched_s": service.stretched_ns / 1e9,
                "cpu_s": shares,
                "cause": _cause(shares, time.process_time() / wall_s),
                "statuses": {str(status): count for status, count in sorted(server.statuses.items())},
                "ignored_fields": dict(server.ignored)}


def _publishers(fleet: LiveFleet, serve: Serve, model: str):
    """Return the publishers of a fleet's KV events, which have no sockets yet."""
    if find_spec("zmq") is None:
        raise MissingExtra(["serve.kv_events needs pyzmq: install it with pip install 'simulator[serve]'"])
    from simulator.live.cache_events import CacheEvents
    from simulator.live.publishers import Publishers, Source  # needs an extra
    publishers = Publishers(serve.kv_events, serve.kv_event_encoding, [
        Source(replica.index - replica.first_sibling, model) for replica in fleet.cluster.replicas])
    fleet.events = CacheEvents(fleet, lambda index, _, events: publishers.publish(index, events))
    return publishers


def tokenizer_of(serve: Serve, vocabulary: int | None):
    """Return the tokenizer of a session, and the number of its ids.

    vocabulary : of the model; None: there is no model.

    Raises InputErrors: the file is no tokenizer, or has more ids than the model.
    """
    if serve.tokenizer is None:
        size = max(vocabulary or VOCABULARY, LEAST_VOCABULARY)
        return Words(size), size
    _need("tokenizers", "serve.tokenizer")
    from simulator.live.model_tokenizer import ModelTokenizer  # needs an extra
    tokenizer = ModelTokenizer(serve.tokenizer)
    if vocabulary is not None and tokenizer.size > vocabulary:
        raise InputErrors([KeyFault(f"serve.tokenizer: {serve.tokenizer}: expected at most {vocabulary} ids, the "
                                    f"vocabulary of the model, found {tokenizer.size}")])
    return tokenizer, vocabulary or tokenizer.size


def _template(path: str):
    _need("jinja2", "serve.chat_template")
    from simulator.live.templates import Template  # needs an extra
    return Template(path)


def _need(package: str, key: str) -> None:
    if find_spec(package) is None:
        raise MissingExtra([f"{key} needs {package}: install it with pip install 'simulator[tokenizers]'"])


def _version(experiment: Experiment) -> str:
    """Return the version for clients: vLLM's, or the simulator's."""
    found = getattr(experiment.all_pools()[0].engine.parameters, "vllm_version", None)
    return __version__ if found is None else f"{found}.0"


def settled(serve: Serve, experiment: Experiment) -> Serve:
    """Return the table with the engine that the server is like."""
    names = {pool.engine.scheduler for pool in experiment.all_pools()}
    return replace(serve, like=serve.like or ("sglang" if names == {"sglang"} else "vllm"))


def _cause(shares: dict[str, float], load: float) -> str:
    """Return the likely cause of lag; load : cores that the process has used."""
    if load < BUSY_CORES:
        return f"this process used {100 * load:.0f} % of a core: other processes, or waits for clients, delayed it"
    first = max(shares, key=shares.get)
    return f"{100 * shares[first] / max(sum(shares.values()), 1e-9):.0f} % of the CPU time counted went into {first}"
