"""`vllm_multi_turn`: conversations sent as by vLLM's multi-turn benchmark.

Source: vllm-project/vllm, benchmarks/multi_turn/benchmark_serving_multi_turn.py, commit 00d39539. Differences: a
client takes all its first conversations before the next client does; after a warm-up the conversations keep their
order, while there they are in the order in which first turns ended, and clients do not sleep in between; sleep times
are drawn from one distribution, not equal; the tokens of a chat template do not count; a failed request is not retried.
"""
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from simulator.core.random_streams import RandomStreams
from simulator.domain import records
from simulator.domain.load import Count, Load, TimeChoice, Warmup
from simulator.domain.sessions import Histories
from simulator.errors import InputErrors, KeyFault
from simulator.workload.column_options import DEFAULT_OPTIONS, ColumnOptions
from simulator.workload.columns import Columns, Prompts, Waits, first_rows, reordered
from simulator.workload.drawing.conversations import Turns, draw_turns, read_settings
from simulator.workload.drawing.times import ExponentialParameters
from simulator.workload.formats.chats import Chats
from simulator.workload.history import composed
from simulator.workload.limits import MAX_TIME_NS, MAX_TOKENS
from simulator.workload.presets.base import only
from simulator.workload.reading.files import check_text, read_bytes

SECONDS_PER_TOKEN = 0.2         # of max_tokens: the time-out of a request, if that is longer than request_timeout_s


class VllmMultiTurnParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the tool, by their names; closed loop and warm-up follow from them."""

    path: Annotated[str, Meta(extra={"path": True}, description=(
        "JSON: settings of generated conversations (filetype generate_conversations), or a list of conversations with "
        "num_tokens beside each text"))]
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1, description=(
        "of generated conversations; the tool's seed, which does not change with the experiment's"))] = 0
    least_user_tokens: Annotated[int, Meta(ge=1, le=MAX_TOKENS, description=(
        "of generated conversations: length of the tool's text in each user text, \"ID is a nice number... Please "
        "rewrite the following text and add more content: \", by the model's tokenizer; least length of a user text"),
        extra={"unit": "tokens"})] = 1
    num_clients: Annotated[Count, Meta(description="number of clients; each has one request in flight")] = 1
    max_active_conversations: Annotated[Count | None, Meta(description=(
        "of all clients together; each has an equal number; default: num_clients"))] = None
    max_num_requests: Annotated[Count | None, Meta(description=(
        "of all clients together; each sends an equal number; absent: no end"))] = None
    max_turns: Annotated[Count | None, Meta(description=(
        "texts of a conversation, answers included; absent: all"))] = None
    request_rate_per_s: Annotated[Annotated[float, Meta(ge=1e-6, le=1e9)] | None, Meta(description=(
        "of each client: after a request it sleeps for an exponential time with mean one over the rate, less the time "
        "that the request took; absent: not at all"))] = None
    warmup_step: Annotated[bool, Meta(description="the first turns of all conversations are sent as a warm-up")] = False
    early_stop: Annotated[bool, Meta(description=(
        "when a client finds no new conversation, has sent its requests, or gave up waiting, all others stop, too"
        ))] = True
    conversation_sampling: Annotated[Literal["round_robin", "random"], Meta(description=(
        "order of a client's conversations; random is refused: it would be drawn while requests are served"
        ))] = "round_robin"
    request_timeout_s: Annotated[Annotated[float, Meta(gt=0, le=MAX_TIME_NS / 1e9)], Meta(description=(
        f"a client gives up after this time, or {SECONDS_PER_TOKEN} s for each token of max_tokens, if that is longer"
        ))] = 120.0

    def __post_init__(self):
        if self.conversation_sampling == "random":
            raise ValueError('conversation_sampling = "random": which conversation is next would have to be drawn '
                             'while requests are served; only "round_robin" is done')
        if self.active_per_client < 1:
            raise ValueError(f"max_active_conversations = {self.max_active_conversations}: expected num_clients, "
                             f"{self.num_clients}, at least")
        if self.requests_per_client == 0:
            raise ValueError(f"max_num_requests = {self.max_num_requests}: expected num_clients, {self.num_clients}, "
                             "at least")

    @property
    def active_per_client(self) -> int:
        """The conversations that each client has at once."""
        return (self.max_active_conversations or self.num_clients) // self.num_clients

    @property
    def requests_per_client(self) -> int | None:
        """The requests that each client sends; None: no end."""
        return None if self.max_num_requests is None else self.max_num_requests // self.num_clients

    @property
    def filled_by(self) -> str:
        """The key that fills in other keys, for messages."""
        return 'type = "vllm_multi_turn"'

    def fill_load(self, given: Load) -> Load:
        """Return the closed loop of the tool's clients."""
        sleeps = {}
        if self.request_rate_per_s is not None:
            exponential = ExponentialParameters(mean=1 / self.request_rate_per_s)
            sleeps = {"think_time_from": "arrival_mean",
                      "think_time_s": TimeChoice(distribution="exponential", parameters=exponential)}
        return only(
            given, mode="concurrency", concurrency=self.num_clients, unit="session",
            sessions_per_slot=self.active_per_client, requests_per_slot=self.requests_per_client,
            ends_with="first_slot" if self.early_stop else "each_slot",
            private_prefix_tokens=given.private_prefix_tokens, **sleeps)

    def fill_warmup(self, given: Warmup) -> Warmup:
        """Return the warm-up step of the tool."""
        return Warmup(primers="first_turn" if self.warmup_step else "none")


class VllmMultiTurn:
    """Conversations of the tool, from lengths alone."""

    Parameters = VllmMultiTurnParameters

    def __init__(self, parameters: VllmMultiTurnParameters):
        self.parameters = parameters

    def columns(self, streams: RandomStreams, options: ColumnOptions = DEFAULT_OPTIONS) -> Columns:
        """Return the turns, conversation by conversation.

        Raises
        ------
        InputErrors
            Faults of the file; too few conversations for the clients.
        """
        given = self.parameters
        data = read_bytes(given.path)
        check_text(given.path, data)
        if data.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
            self._refuse_of_generated()
            columns = Chats().read(given.path, data)
        else:
            turns = draw_turns(read_settings(given.path, data), given.seed, given.least_user_tokens)
            columns = composed(_columns_of(turns), Histories(), options.longest_text and options.longest_text())
        columns = self._sent(columns)
        longest_s = np.floor(SECONDS_PER_TOKEN * np.maximum(columns.output_tokens, 1))
        timeout_s = np.maximum(given.request_timeout_s, longest_s)
        return replace(columns, timeout_ns=np.rint(timeout_s * 1e9).astype(np.int64), has_times=False)

    def _refuse_of_generated(self) -> None:
        given = self.parameters
        faults = [KeyFault(f"workload.{key}: {given.path} holds conversations, which are not generated; leave it out")
                  for key, usual in (("seed", 0), ("least_user_tokens", 1)) if getattr(given, key) != usual]
        if faults:
            raise InputErrors(faults)

    def _sent(self, columns: Columns) -> Columns:
        """Return the turns that the tool may send: the first of long conversations, and only warmed-up ones."""
        given = self.parameters
        plays = np.arange(len(columns)) if columns.waits is None else columns.waits.plays
        conversation = np.unique(plays, return_inverse=True)[1].reshape(-1)
        turn = np.arange(len(columns)) - np.searchsorted(conversation, conversation)
        is_sent = np.ones(len(columns), bool)
        if given.max_turns is not None:
            # After a warm-up a conversation goes on with its second turn, and is only then found to be long enough.
            is_sent &= turn < max(-(-given.max_turns // 2), 1 + given.warmup_step)
        if given.warmup_step and given.max_num_requests is not None:
            is_sent &= conversation < given.requests_per_client * given.num_clients
        needed = given.active_per_client * given.num_clients
        if (found := len(np.unique(conversation[is_sent]))) < needed:
            raise InputErrors([KeyFault(f"workload.max_active_conversations: {given.num_clients} clients need {needed} "
                                        f"conversations, {given.path} has {found} for them")])
        if is_sent.all():
            return columns
        rows = np.concatenate([np.flatnonzero(is_sent), np.flatnonzero(~is_sent)])
        return first_rows(replace(reordered(columns, rows), most=int(is_sent.sum())))


def _columns_of(turns: Turns) -> Columns:
    """Return turns with the tokens that each one adds."""
    count = len(turns.conversation)
    rows, is_first = np.arange(count), np.append(True, turns.conversation[1:] != turns.conversation[:-1])
    has_common = is_first & (turns.common_tokens > 0)
    streams = np.stack([np.full(count, records.named_stream(0)), records.own_stream(rows)], axis=1)
    common = np.where(has_common, turns.common_tokens, 0)
    num_tokens = np.stack([common, turns.new_tokens - common], axis=1)
    targets = np.flatnonzero(~is_first)
    return Columns(
        np.zeros(count, np.int64), turns.new_tokens, turns.output_tokens,
        labels={"session": (turns.conversation, [f"CONV_ID_{k}" for k in range(int(turns.conversation[-1]) + 1)])},
        prompts=Prompts((num_tokens > 0).sum(axis=1), streams[num_tokens > 0], num_tokens[num_tokens > 0]),
        adds_to=np.where(is_first, -1, rows - 1),
        waits=Waits(turns.conversation, targets - 1, targets, np.zeros(len(targets), np.int64),
                    np.zeros(len(targets), bool)))
