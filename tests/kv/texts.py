"""Workloads whose prompts are given piece by piece, and the tokens these stand for."""
import numpy as np

from simulator.domain import records
from support.workloads import plain_workload


def workload_of(prompts):
    """Return a workload. A prompt is a list of (stream, tokens), or a number of tokens of its own."""
    lengths = [prompt if isinstance(prompt, int) else sum(tokens for _, tokens in prompt) for prompt in prompts]
    workload = plain_workload(np.zeros(len(prompts)), lengths, 1)
    pieces = [[] if isinstance(prompt, int) else prompt for prompt in prompts]
    workload.segments = np.array([piece for prompt in pieces for piece in prompt], records.SEGMENT)
    workload.demands["num_segments"] = [len(prompt) for prompt in pieces]
    workload.demands["segments_begin"] = np.cumsum([0, *(len(prompt) for prompt in pieces[:-1])])
    return workload


def text_of(prompts, row, num_tokens):
    """Return the first tokens of a request's text, prompt and outputs, each as (stream, offset)."""
    prompt = prompts[row]
    pieces = [(records.own_stream(row), prompt)] if isinstance(prompt, int) else prompt
    tokens = [(stream, offset) for stream, length in pieces for offset in range(length)]
    outputs = [(records.output_stream(row), offset) for offset in range(num_tokens - len(tokens))]
    return tuple((tokens + outputs)[:num_tokens])
