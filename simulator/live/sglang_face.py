"""SGLang's own paths: POST /generate, and the pages that its router reads.

Sources: sgl-project/sglang 44cedc2b, srt/entrypoints/http_server.py and managers/io_struct.py: paths, fields and
defaults; managers/schedule_batch.py and tokenizer_manager.py: reasons of aborts; the requests of sglang-router 0.3.2 to
its workers. num_tokens, by which its policy power_of_two goes, counts the tokens in use and those of waiting prompts.
"""
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
from aiohttp import web

from simulator.live.bodies import CompletionBody, Natural, Positive, Refused, StructuredOutputs
from simulator.live.exchange import ABORT, GENERATE, Choice, Exchange, encode
from simulator.live.metrics import loads

DEFAULT_NEW_TOKENS = 128


class SamplingParams(msgspec.Struct):
    """Field `sampling_params`."""

    max_new_tokens: Positive | None = DEFAULT_NEW_TOKENS
    min_new_tokens: Natural = 0
    ignore_eos: bool = False
    n: Positive = 1
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    json_schema: str | None = None
    regex: str | None = None
    temperature: float = 1.0


class GenerateBody(msgspec.Struct, kw_only=True):
    """Body of POST /generate."""

    model: str | None = None
    text: str | list[str] | None = None
    input_ids: list[int | list[int]] | None = None     # of one prompt, or of several
    sampling_params: SamplingParams = msgspec.field(default_factory=SamplingParams)
    rid: str | None = None
    stream: bool = False
    priority: int | None = None

    def __post_init__(self):
        if (self.text is None) == (self.input_ids is None):
            raise ValueError("Either text or input_ids should be provided.")
        if len({type(each) for each in self.input_ids or ()}) > 1:
            raise ValueError("input_ids: expected those of one prompt, or a list of such lists")

    def completion(self, is_list: bool) -> CompletionBody:
        """Return the fields as those of a completion.

        is_list : the answer is a list, too.
        """
        asked = self.sampling_params
        form = None
        if asked.json_schema is not None or asked.regex is not None:
            form = StructuredOutputs(json=asked.json_schema, regex=asked.regex)
        return CompletionBody(
            model=self.model, prompt=[] if is_list else "", max_tokens=asked.max_new_tokens,
            min_tokens=asked.min_new_tokens, ignore_eos=asked.ignore_eos, n=asked.n, stop=asked.stop,
            stop_token_ids=asked.stop_token_ids, structured_outputs=form, request_id=self.rid, stream=self.stream,
            priority=self.priority or 0)


class AbortBody(msgspec.Struct, kw_only=True):
    """Body of POST /abort_request."""

    model: str | None = None
    rid: str = ""
    abort_all: bool = False


class Generated(Exchange):
    """The answers to POST /generate; each event of a stream has the whole text so far."""

    def events(self) -> Iterator[bytes]:
        """Yield the events that are due."""
        for choice in self.choices:
            if not choice.is_written and (choice.is_over or choice.made - choice.written >= self.interval):
                choice.is_written = choice.is_over
                yield b"data: %b\n\n" % encode(self._part(choice, choice.is_over) | {"index": choice.index})

    def whole(self) -> bytes:
        """Return the body of an answer that is no stream."""
        parts = [self._part(choice, True) for choice in self.choices]
        return encode(parts if isinstance(self.body.prompt, list) or len(parts) > 1 else parts[0])

    def _part(self, choice: Choice, is_last: bool) -> dict:
        choice.new_text()
        tokens, answer = choice.new_tokens(), choice.answer
        text = "".join(answer.pieces)[:choice.sent]
        reason = None
        if is_last:
            reason = self._reason(choice)
        return {"text": text, "output_ids": answer.ids[:tokens.stop], "meta_info": {
            "id": self.head.id, "finish_reason": reason, "prompt_tokens": choice.prompt_tokens,
            "completion_tokens": choice.made, "cached_tokens": choice.cached_tokens, "weight_version": "default"}}


    @staticmethod
    def _reason(choice: Choice) -> dict:
        """Return why an answer has ended."""
        if choice.answer.finish_reason == ABORT:
            if choice.made == 0:                # the request has not run yet
                return {"type": "abort", "message": "Abort in waiting queue"}
            return {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
        if choice.answer.finish_reason == "length":
            return {"type": "length", "length": choice.made}
        return {"type": "stop", "matched": choice.answer.stop_reason}


class SglangFace:
    """Routes of SGLang's own paths, beside OpenAI's.

    server : which serves requests.
    """

    def __init__(self, server: Any):
        self._server = server
        server.exchanges[GENERATE] = Generated

    def routes(self) -> dict[tuple[str, str], Callable]:
        """Return the handlers by method and path."""
        return {("POST", "/generate"): self._generate, ("POST", "/abort_request"): self._abort,
                ("GET", "/get_load"): self._get_load,
                ("GET", "/server_info"): self._server_info, ("GET", "/get_server_info"): self._server_info,
                ("GET", "/model_info"): self._model_info, ("GET", "/get_model_info"): self._model_info}

    async def _generate(self, request: web.BaseRequest, door: int) -> web.StreamResponse:
        body = await self._server.body_of(request, GenerateBody)
        given = body.text if body.text is not None else body.input_ids
        if not given:
            raise Refused(400, "The prompt is empty: it must have at least one token.", param="text")
        is_list = isinstance(given, list) and not isinstance(given[0], int)
        prompts = [await self._server.prompt_of(each) for each in (given if is_list else [given])]
        return await self._server.serve(request, door, GENERATE, body.completion(is_list), prompts,
                                        body.sampling_params.max_new_tokens)

    async def _abort(self, request: web.BaseRequest, door: int) -> web.Response:
        body = await self._server.body_of(request, AbortBody)
        for exchange in [*self._server.open.values()]:
            if body.abort_all or exchange.head.id == body.rid:
                self._server.abort(exchange)
        return web.Response()

    async def _get_load(self, request: web.BaseRequest, door: int) -> web.Response:
        fleet = self._server.service.fleet
        rows = fleet.workload.requests[fleet.open_rows()]
        found, now_s = [], time.perf_counter()
        for place, (replica, state) in enumerate(zip(fleet.cluster.replicas, loads(fleet), strict=True)):
            kv = replica.rank.kv
            is_waiting = (rows["replica"] == place) & (rows["scheduled_ns"] < 0)
            pending = int(np.sum(rows["prompt_tokens"][is_waiting], dtype=np.int64))
            found.append({"num_reqs": state["running"] + state["waiting"], "num_waiting_reqs": state["waiting"],
                          "num_tokens": (kv.num_blocks - kv.free_blocks) * kv.block_size + pending,
                          "num_pending_tokens": pending, "ts_tic": now_s})
        shown = found if door < 0 else found[door:door + 1]
        return _json([{"dp_rank": rank} | each for rank, each in enumerate(shown)])

    async def _server_info(self, request: web.BaseRequest, door: int) -> web.Response:
        fleet, facts = self._server.service.fleet, self._server.facts
        replicas = fleet.cluster.replicas if door < 0 else fleet.cluster.replicas[door:door + 1]
        tokens = [each.rank.kv.num_blocks * each.rank.kv.block_size for each in replicas]
        return _json({
            "model_path": facts.model, "tokenizer_path": facts.model, "served_model_name": facts.model,
            "version": facts.version, "max_total_num_tokens": tokens[0], "dp_size": len(replicas),
            "max_running_requests": replicas[0].rank.scheduler.max_running, "context_length": fleet.max_model_len,
            "page_size": replicas[0].rank.kv.block_size, "disaggregation_mode": "null", "status": "ready",
            "internal_states": [{"max_total_num_tokens": each} for each in tokens]})

    async def _model_info(self, request: web.BaseRequest, door: int) -> web.Response:
        name = self._server.facts.model
        return _json({"model_path": name, "tokenizer_path": name, "is_generation": True, "weight_version": "default",
                      "preferred_sampling_params": None, "has_image_understanding": False,
                      "has_audio_understanding": False})


def _json(value: Any) -> web.Response:
    return web.Response(body=encode(value), content_type="application/json")
