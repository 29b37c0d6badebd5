"""Requests of a workload as a server of OpenAI's interface takes them."""
from typing import NamedTuple

import msgspec
import numpy as np

from simulator.study.observe.client import Order
from simulator.study.observe.prompts import Pace, Prompts
from simulator.workload.base import Workload

PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}


class Manner(NamedTuple):
    """The form in which requests are sent.

    model : name on the server. api : one of PATHS. streams : answers are streamed. timeout_s : per request.
    pace : tokens per word, for chat.
    """

    model: str
    api: str
    streams: bool
    timeout_s: float
    pace: Pace | None = None


class Orders:
    """Makes the orders of a workload."""

    def __init__(self, workload: Workload, prompts: Prompts, manner: Manner):
        self._prompts, self._manner, self._demands = prompts, manner, workload.demands
        self._adapters = list(workload.labels.get("adapter", ()))
        self._answers = {}
        self.output_tokens = outputs_of(workload)
        """int64 (n,), requested number of tokens of each answer."""

    def keeps(self, row: int) -> bool:
        """Return whether a later prompt repeats the answer."""
        return row in self._prompts.repeated

    def learn(self, row: int, text: list[str], token_ids: list[int]) -> None:
        """Store an answer for prompts that repeat it."""
        if self._manner.api == "chat":
            self._answers[row] = "".join(text)
        else:
            self._answers[row] = token_ids

    def order(self, row: int, due_ns: int) -> Order:
        """Return a request.

        due_ns : when it is sent; a client that gives up at an instant of the workload's clock waits until then.
        """
        manner, timeout_s, deadline_ns = self._manner, self._manner.timeout_s, int(self._demands["deadline_ns"][row])
        left_s = (deadline_ns - due_ns) / 1e9 if deadline_ns >= 0 else timeout_s
        if manner.api == "chat":
            body = {"messages": self._prompts.messages(row, self._answers, manner.pace)}
        else:
            body = {"prompt": self._prompts.token_ids(row, self._answers)}
        asked = body | limits_of(int(self.output_tokens[row]), manner.streams) | {"model": self._model(row)}
        if priority := int(self._demands["priority"][row]):
            asked["priority"] = priority
        if self.keeps(row) and manner.api != "chat":
            asked["return_token_ids"] = True
        waits_s = max(min(timeout_s, left_s), 0.0)
        return Order(PATHS[manner.api], msgspec.json.encode(asked), waits_s, left_s < timeout_s)

    def _model(self, row: int) -> str:
        code = int(self._demands["adapter"][row])
        return self._manner.model if code < 0 else str(self._adapters[code])


def limits_of(output_tokens: int, streams: bool) -> dict:
    """Return the keys for an answer of exactly this length, with or without streaming.

    Source of the keys: vllm-project/vllm, vllm/entrypoints/openai/protocol.py; greedy, as in its benchmark
    (vllm/benchmarks/lib/endpoint_request_func.py at 02cfb534).
    """
    asked = {"max_tokens": output_tokens, "min_tokens": output_tokens, "ignore_eos": True, "temperature": 0.0,
             "stream": streams}
    if streams:
        asked["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    return asked


def outputs_of(workload: Workload) -> np.ndarray:
    """Return the number of tokens of each answer in the workload, int64 (n,)."""
    return np.clip(workload.outcomes["output_tokens"], 1, workload.demands["max_tokens"]).astype(np.int64)
