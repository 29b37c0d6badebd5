"""Formats of importable files, and their readers; files are recognised by content, not by name."""
from collections.abc import Callable
from typing import NamedTuple

from simulator.errors import InputErrors
from simulator.study.measured import (
    aiperf,
    forward_pass,
    guidellm,
    inference_perf,
    llmservingsim,
    observed,
    requests_csv,
    sglang_log,
    step_log,
    tracev2,
    vllm_bench,
    vllm_forward,
)
from simulator.study.measured.record import Measured
from simulator.study.measured.source import Source


class Format(NamedTuple):
    """A format.

    recognises : returns whether a file has the format. read : returns its data sets.
    """

    name: str
    recognises: Callable[[Source], bool]
    read: Callable[[Source], list[Measured]]


def _steps_alone(source: Source) -> list[Measured]:
    return [Measured(source.stem, [], observed.read_steps(source))]


FORMATS = (
    *(Format(module.NAME, module.recognises, module.read) for module in (
        vllm_bench, guidellm, inference_perf, aiperf, llmservingsim, requests_csv, tracev2, observed, step_log,
        vllm_forward, forward_pass)),
    Format(observed.STEPS_NAME, observed.recognises_steps, _steps_alone),
    Format(step_log.PRINTED_NAME, step_log.recognises_printed, step_log.read_printed),
    Format(sglang_log.NAME, sglang_log.recognises, sglang_log.read))


def read(source: Source) -> list[Measured]:
    """Return the data sets of a file.

    Raises
    ------
    InputErrors
        The file has no known format, has faults, or is empty.
    """
    found = format_of(source).read(source)
    if not all(each.requests or each.steps for each in found):
        raise InputErrors([f"{source.path}: there are neither requests nor iterations in it"])
    return found


def format_of(source: Source) -> Format:
    """Return the format of a file.

    Raises
    ------
    InputErrors
        No known format fits.
    """
    found = next((each for each in FORMATS if each.recognises(source)), None)
    if found is None:
        known = ", ".join(each.name for each in FORMATS)
        raise InputErrors([f"{source.path}: no format that is known: neither {known}"])
    return found
