"""`vllm_burstgpt`: the dataset `burstgpt` of `vllm bench serve`: lengths of drawn rows, with arrivals of the tool.

Source: vllm-project/vllm, vllm/benchmarks/datasets/datasets.py, BurstGPTDataset, commit 003cf029. It takes lengths from
the third and fourth column; here they are found by name, so that all versions of the file can be read.
"""
from typing import Annotated

import numpy as np
from msgspec import Meta

from simulator.workload.formats.burstgpt import Burstgpt, BurstgptParameters
from simulator.workload.presets.base import Drawn
from simulator.workload.presets.vllm_bench import VllmBench, VllmBenchParameters
from simulator.workload.reading.files import read_pieces


class VllmBurstgptParameters(VllmBenchParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows of GPT-4 that were answered, drawn at random."""

    path: Annotated[str, Meta(extra={"path": True}, description="a CSV file of BurstGPT, plain or .gz")]


class VllmBurstgpt(VllmBench):
    """`vllm_burstgpt`: drawn as by pandas, repeated only if rows are too few."""

    Parameters = VllmBurstgptParameters

    def draw(self, streams, count):
        """Return the requests; no prompts are shared."""
        given = self._parameters
        reader = Burstgpt(BurstgptParameters(model_filter="GPT-4"))
        columns = reader.read_pieces(given.path, read_pieces(given.path))
        total = len(columns)
        rows = np.random.RandomState(given.seed).choice(total, count, replace=count > total)
        return Drawn(columns.prompt_tokens[rows], columns.output_tokens[rows])
