"""A prefix for the prompts of each play that no other play has, so that plays share no KV cache."""
import numpy as np
from msgspec.structs import replace

from simulator.domain import records
from simulator.errors import InputErrors, KeyFault
from simulator.workload.columns import Columns, Prompts
from simulator.workload.limits import MAX_TOKENS


def with_private_prefixes(columns: Columns, num_tokens: int) -> Columns:
    """Return the requests with a prefix in their prompts that only their play has.

    Source of the idea: AgentX, SemiAnalysis FAQ of ai-dynamo/aiperf, --cache-bust first_turn_prefix. There the prefix
    follows the system prompt, which replays of one recording still share.

    Raises
    ------
    InputErrors
        A prompt is too long with the prefix.
    """
    if not num_tokens:
        return columns
    count = len(columns)
    prompt_tokens = columns.prompt_tokens + num_tokens
    if prompt_tokens.max() > MAX_TOKENS:
        raise InputErrors([KeyFault(f"workload.load.private_prefix_tokens: {num_tokens} make a prompt of "
                                    f"{prompt_tokens.max()} tokens, at most {MAX_TOKENS} are possible")])
    prompts = columns.prompts or Prompts(np.zeros(count, np.int64), *np.zeros((2, 0), np.int64))
    is_own = prompts.num_segments == 0
    rows = np.arange(count)
    owner = np.concatenate([rows, rows[is_own], np.repeat(rows, prompts.num_segments)])
    plays = rows if columns.waits is None else columns.waits.plays
    is_named = prompts.streams & 3 == records.named_stream(0)
    first_free = int((prompts.streams[is_named] >> 2).max(initial=-1)) + 1
    streams = np.concatenate([
        records.named_stream(first_free + plays), records.own_stream(rows[is_own]), prompts.streams])
    tokens = np.concatenate([np.full(count, num_tokens), columns.prompt_tokens[is_own], prompts.num_tokens])
    order = np.argsort(owner, kind="stable")
    return replace(columns, prompt_tokens=prompt_tokens, prompts=Prompts(
        np.where(is_own, 2, prompts.num_segments + 1), streams[order], tokens[order]))
