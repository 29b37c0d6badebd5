"""`vllm_sharegpt`: the dataset `sharegpt` of `vllm bench serve`, from lengths instead of texts.

Source: vllm-project/vllm, vllm/benchmarks/datasets/datasets.py, ShareGPTDataset, commit 003cf029.
"""
import random
from typing import Annotated

import numpy as np
from msgspec import Meta

from simulator.domain import records
from simulator.errors import InputErrors
from simulator.workload.columns import Prompts
from simulator.workload.limits import MAX_TOKENS
from simulator.workload.presets.base import Drawn
from simulator.workload.presets.vllm_bench import VllmBench, VllmBenchParameters
from simulator.workload.reading.csv_scan import Column, Kind
from simulator.workload.reading.faults import Faults
from simulator.workload.reading.files import read_bytes
from simulator.workload.reading.tables import scan_columns

COLUMNS = {name: Column(Kind.INTEGER, 0, required=True) for name in ("num_prefill_tokens", "num_decode_tokens")}
LEAST, MOST_PROMPT, MOST_BOTH = 4, 1024, 2048       # tokens

Length = Annotated[int, Meta(ge=1, le=MAX_TOKENS, extra={"unit": "tokens"})]


class VllmSharegptParameters(VllmBenchParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """First turns and their answers, shuffled, without pairs of unusual lengths."""

    path: Annotated[str, Meta(extra={"path": True}, description=(
        "CSV file with num_prefill_tokens and num_decode_tokens of turns 0 and 1 of each conversation that has both, "
        "in the order of the JSON file"))]
    output_len: Annotated[Length | None, Meta(description="output length of all, not the answers'")] = None


class VllmSharegpt(VllmBench):
    """`vllm_sharegpt`: the requested number; if the file has too few, some repeat."""

    Parameters = VllmSharegptParameters

    def draw(self, streams, count):
        """Return the requests; repeated ones share their whole prompt."""
        given = self._parameters
        prompts, outputs = self._lengths()
        order = list(range(len(prompts)))
        random.Random(given.seed).shuffle(order)
        valid = (prompts >= LEAST) & (prompts <= MOST_PROMPT) & (prompts + outputs <= MOST_BOTH)
        if given.output_len is None:
            valid &= outputs >= LEAST
        rows = [row for row in order if valid[row]][:count]
        if not rows:
            raise InputErrors([f"{given.path}: no conversation has the lengths that the tool takes"])
        missing = count - len(rows)
        if not missing:
            return Drawn(prompts[rows], outputs[rows])
        rows += random.Random(given.seed).choices(rows, k=missing)
        note = f"{given.path}: {missing} of {count} requests repeat others, as in vllm bench serve; it has too few."
        return Drawn(prompts[rows], outputs[rows], Prompts(
            np.ones(count, np.int64), records.named_stream(np.array(rows)), prompts[rows]), (note,))

    def _lengths(self) -> tuple[np.ndarray, np.ndarray]:
        given = self._parameters
        data = read_bytes(given.path)
        if data.lstrip()[:1] in (b"[", b"{"):
            raise InputErrors([
                f"{given.path}: this is text, and nothing here counts its tokens; write a CSV file with the columns "
                "num_prefill_tokens and num_decode_tokens: for each conversation of two turns or more, in the file's "
                "order, len(tokenizer(turn 0).input_ids) and that of turn 1"])
        faults = Faults(given.path)
        scan = scan_columns(given.path, data, COLUMNS, tuple(COLUMNS), faults)
        faults.raise_if_any()
        prompts, outputs = (scan.values[name] for name in COLUMNS)
        return prompts, outputs if given.output_len is None else np.full(len(prompts), given.output_len)
