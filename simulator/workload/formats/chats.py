"""`sharegpt`, `wildchat`: conversations in JSON, as a list or one a line, with declared lengths.

Sources: the datasets anon8231489123/ShareGPT_Vicuna_unfiltered (conversations: from, value) and allenai/WildChat-1M
(conversation: role, content); vLLM, benchmarks/multi_turn (messages: role, content). An additional key is `num_tokens`
beside each text, since there is no tokenizer. A request is the whole text before an answer; the next one comes at the
end of the answer. The file has no start times of conversations: recorded times of messages are ignored.
"""
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.errors import InputErrors
from simulator.workload.columns import Columns
from simulator.workload.formats.agent_graphs import AgentGraphs, extended, length_of, output_of, own_of
from simulator.workload.limits import MAX_TOKENS
from simulator.workload.reading.faults import Faults, quoted
from simulator.workload.reading.files import check_text
from simulator.workload.reading.json_lines import decoded_lines, refuse

ASKING, ANSWERING = ("human", "user", "system", "tool"), ("gpt", "assistant", "chatgpt", "bing", "bard")
NEEDED = "conversations, conversation or messages"
NO_LENGTHS = ("num_tokens: is missing beside a text; there is no tokenizer here: count the tokens of each text with "
              "the model's own and write their number there, or convert to a native CSV trace with session and round")
UNANSWERED = "texts at the end of conversations of the trace, which nobody answers and which are left out"


class Message(msgspec.Struct, rename={"sender": "from"}):
    """One text."""

    sender: str | None = None
    role: str | None = None
    num_tokens: Annotated[int, Meta(ge=0, le=MAX_TOKENS)] | None = None


class Conversation(msgspec.Struct):
    """A sequence of texts."""

    id: str | int | None = None
    conversation_hash: str | None = None
    conversations: list[Message] | None = None
    conversation: list[Message] | None = None
    messages: list[Message] | None = None


class Chats:
    """The reader of conversations."""

    def __init__(self, parameters=None):
        pass

    def read(self, path: str | Path, data: bytes) -> Columns:
        """Return the requests of a file that holds `data`, conversation by conversation.

        Raises
        ------
        InputErrors
            All faults of the file; texts without a declared length.
        """
        check_text(path, data)
        faults, graphs, num_unanswered = Faults(path), AgentGraphs(), 0
        for play, (number, conversation) in enumerate(_conversations(data, faults)):
            texts = conversation.conversations or conversation.conversation or conversation.messages
            if texts is None:
                faults.add(number, f"expected a JSON object with {NEEDED}")
                continue
            name = conversation.id if conversation.id is not None else conversation.conversation_hash
            num_unanswered += _add(graphs, play, texts, number, faults)
            graphs.sessions += [str(play if name is None else name)] * (len(graphs) - len(graphs.sessions))
        faults.raise_if_any()
        if not len(graphs):
            raise InputErrors([f"{path}: there are no answered texts in it"])
        return graphs.columns(has_times=False, notes=(f"{UNANSWERED}: {num_unanswered}",) if num_unanswered else ())


def _conversations(data: bytes, faults: Faults) -> list[tuple[int, Conversation]]:
    if not data.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        return decoded_lines(data, Conversation, NEEDED, faults)
    try:
        return [(0, each) for each in msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"), type=list[Conversation])]
    except (msgspec.DecodeError, RecursionError) as error:
        refuse(0, data[:60], error, NEEDED, faults)
        return []


def _add(graphs: AgentGraphs, play: int, texts: list[Message], number: int, faults: Faults) -> int:
    """Add the requests of a conversation; return the number of texts without an answer."""
    history, new_tokens, num_new, before = [], 0, 0, None
    for place, text in enumerate(texts):
        sender = (text.sender or text.role or "").lower()
        if text.num_tokens is None:
            faults.add(number, NO_LENGTHS)
            return 0
        if sender in ASKING:
            new_tokens, num_new = new_tokens + text.num_tokens, num_new + 1
        elif sender not in ANSWERING:
            faults.add(number, f"role: expected one of {', '.join(ASKING + ANSWERING)}, found {quoted(sender)}")
            return 0
        else:
            row = len(graphs)
            history = extended(history, own_of(row, new_tokens))
            if not 1 <= length_of(history) <= MAX_TOKENS:
                faults.add(number, f"text {place} answers a prompt of {length_of(history)} tokens, 1 to {MAX_TOKENS} "
                                   "are possible")
                return 0
            graphs.histories.append(history)
            graphs.add(play, length_of(history), text.num_tokens)
            if before is not None:
                graphs.wait(before, row, 0)
            before, history, new_tokens, num_new = row, extended(history, output_of(row, text.num_tokens)), 0, 0
    return num_new
