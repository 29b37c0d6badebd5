"""The wire of a live session, [serve]: time, texts, lengths and limits of `python -m simulator serve`."""
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

FAST = "fast"
TEXTS, LENGTHS = ("filler", "echo", "dataset"), ("workload", "max_tokens", "dataset")
LOCAL = r"tcp://(127\.[0-9.]+|localhost|\[::1\]):"        # endpoints that no other machine reaches
Endpoint = Annotated[str, Meta(pattern=r"^tcp://[^/\s]+:[0-9]{1,5}$")]
Bytes = Annotated[int, Meta(ge=1024, le=2**30)]


class OutputChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lengths of answers; the keys of the distribution are in the same table."""

    distribution: Annotated[str, Meta(description="distribution of the lengths")]
    parameters: Annotated[Any, Meta(extra={"kind": "length_distribution"})]


class ServeLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of connections, [serve.limits]."""

    body_bytes: Annotated[Bytes, Meta(description="longest body of a request")] = 8 * 2**20
    header_bytes: Annotated[Bytes, Meta(description="longest line of the head of a request")] = 2**16
    connections: Annotated[int, Meta(ge=1, le=2**20, description="connections at once")] = 10_000
    idle_s: Annotated[float, Meta(gt=0, le=1e6, description=(
        "time for which a connection may stay without a request"))] = 75.0
    requests_per_s: Annotated[float, Meta(ge=0, le=1e9, description=(
        "requests for texts, in a second of the wall; more are answered by 429; 0: any number"))] = 0.0


class KvEvents(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """KV events of each replica's prefix cache over ZeroMQ, [serve.kv_events].

    Names and limits are vLLM's.
    """

    endpoint: Annotated[Endpoint, Meta(description=(
        "tcp://HOST:PORT of the publisher. With *, or an address of this machine, replicas listen from PORT on, a port "
        "each, 0: any; another host is connected to, by each data-parallel rank at a port of its own"
        ))] = "tcp://127.0.0.1:5557"
    replay_endpoint: Annotated[Endpoint | None, Meta(description=(
        "tcp://HOST:PORT at which replicas listen, a port each, for requests for earlier messages; default: none"
        ))] = None
    topic: Annotated[str | None, Meta(description=(
        "topic of all messages; default: kv@ADDRESS:PORT@MODEL of the replica"))] = None
    buffer_steps: Annotated[int, Meta(ge=1, le=2**24, extra={"unit": "messages"}, description=(
        "last messages of each replica that are kept for replay"))] = 10_000
    hwm: Annotated[int, Meta(ge=1, le=2**30, extra={"unit": "messages"}, description=(
        "messages that wait for a slow subscriber; further ones are lost for it"))] = 100_000


class Serve(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The wire of a live session, [serve].

    The command `serve` reads this table; options of the command override it. A run of the experiment does not depend
    on it.
    """

    speed: Annotated[Annotated[float, Meta(ge=0.01, le=10_000)] | Literal["fast"], Meta(
        extra={"unit": "simulated s/s"}, description=(
            "simulated seconds a second of the wall; fast: time jumps to the next event"))] = 1.0
    like: Annotated[Literal["vllm", "sglang"] | None, Meta(description=(
        "paths and metrics as of this engine; default: sglang, if all pools have its scheduler, else vllm"
        ))] = None
    tokenizer: Annotated[str | None, Meta(extra={"path": True}, description=(
        "tokenizer.json of the model, as Hugging Face's package tokenizers writes it, for the ids that a real server "
        "would have; default: a token is a word, another character, or a run of white space"))] = None
    chat_template: Annotated[str | None, Meta(extra={"path": True}, description=(
        "text of a chat: a file with the model's Jinja template, or its tokenizer_config.json; default: role and "
        "content of each message, each on a line"))] = None
    text: Annotated[Literal["filler", "echo", "dataset"], Meta(description=(
        "texts of answers. filler: words; echo: the prompt, or the last message of the user, again and again; dataset: "
        "a line of the file `dataset`"))] = "filler"
    dataset: Annotated[str | None, Meta(extra={"path": True}, description=(
        'JSON Lines of {"text": ...}, and "prompt_sha256" of the prompt that the text answers, of its UTF-8, in hex '
        "digits; other prompts get a line by a hash"))] = None
    output_tokens: Annotated[Literal["workload", "max_tokens", "dataset"] | OutputChoice, Meta(description=(
        "lengths at which answers end by themselves. workload: those of the requests of [workload]; max_tokens: none, "
        "so that the limit of each request is its length; dataset: that of the text; or a distribution"))] = "workload"
    default_max_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1, description=(
        "limit of an answer whose request has none; 0: as vLLM, 16 for completions, and the rest of the context for "
        "chats"))] = 0
    stream_interval: Annotated[int, Meta(ge=1, le=2**20, extra={"unit": "tokens"}, description=(
        "fewest tokens of an event of a stream; a request's own field overrides it"))] = 1
    tool_calls: Annotated[Literal["never", "required", "always"], Meta(description=(
        "calls of tools. never: requests that demand one are refused; required: where tool_choice is required or names "
        "a tool; always: wherever tools are given and tool_choice is not none"))] = "required"
    metrics: Annotated[Literal["full", "routing"], Meta(description=(
        "page /metrics. full: all families; routing: those that gateways read, unless it is asked for as "
        "/metrics?full=1"))] = "full"
    metrics_clock: Annotated[Literal["simulated", "wall"], Meta(description=(
        "seconds of the histograms of /metrics: simulated, or divided by the speed"))] = "simulated"
    on_overrun: Annotated[Literal["late", "stretch"], Meta(description=(
        "more than 5 ms behind the wall. late: answers are late; stretch: simulated time waits, and the time lost is "
        "counted"))] = "late"
    kv_events: Annotated[KvEvents | None, Meta(description=(
        "KV events of prefix caches over ZeroMQ; default: none"))] = None
    kv_event_encoding: Annotated[Literal["map", "array"], Meta(description=(
        "events as maps, as vLLM 0.33 writes them, or as arrays, as versions before it"))] = "map"
    spans: Annotated[bool, Meta(description=(
        "a span of each request that completes, as vLLM's traces have it, in spans.jsonl of the session: OTLP JSON"
        ))] = False
    limits: Annotated[ServeLimits, Meta(description="limits of connections")] = ServeLimits()

    def __post_init__(self):
        if self.kv_event_encoding != "map" and self.kv_events is None:
            raise ValueError('kv_event_encoding = "array" takes [serve.kv_events]')
        if (self.text == "dataset") != (self.dataset is not None):
            raise ValueError('text = "dataset" and the file dataset go together')
        if self.output_tokens == "dataset" and self.text != "dataset":
            raise ValueError('output_tokens = "dataset" takes text = "dataset"')
        if self.on_overrun == "stretch" and self.speed == FAST:
            raise ValueError('on_overrun = "stretch" takes a number as speed: at speed "fast" nothing is late')
        if self.metrics_clock == "wall" and self.spans:
            raise ValueError('spans = true takes metrics_clock = "simulated": spans have simulated times')
        if self.metrics_clock == "wall" and self.speed == FAST:
            raise ValueError('metrics_clock = "wall" takes a number as speed')
