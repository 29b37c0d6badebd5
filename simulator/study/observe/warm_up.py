"""Requests before the measured load: probes for the tokens per word, and warm-ups of the server."""
import asyncio
from collections.abc import Callable

import msgspec

from simulator.errors import InputErrors
from simulator.study.observe.answer import OK, Answer
from simulator.study.observe.client import Client, Order
from simulator.study.observe.clock import Clock
from simulator.study.observe.orders import PATHS, Orders, limits_of
from simulator.study.observe.prompts import Pace, Prompts
from simulator.study.observe.sender import STOP_LOOK_S
from simulator.workload.base import Workload

PROBE_WORDS = 256
SIDE_BY_SIDE = 8                # warm-ups at once


async def pace_of(client: Client, model: str, prompts: Prompts, timeout_s: float) -> Pace:
    """Measure the tokens per word on a server: of one word and of many, since the template adds some to each text.

    Raises
    ------
    InputErrors
        The server does not report it.
    """
    counts = []
    for num_words in (1, PROBE_WORDS):
        turns = [{"role": "user", "content": prompts.words(0, num_words)}]
        asked = {"model": model, "messages": turns} | limits_of(1, streams=False)
        answer = Answer()
        await client.exchange(Order(PATHS["chat"], msgspec.json.encode(asked), timeout_s), answer)
        if answer.status != OK or answer.input_tokens is None:
            why = answer.error or "the answer tells no usage.prompt_tokens"
            raise InputErrors([f"--api chat: a probe of {num_words} words does not tell how many tokens they are: "
                               f"{why}"])
        counts.append(answer.input_tokens)
    tokens_per_word = (counts[1] - counts[0]) / (PROBE_WORDS - 1)
    if tokens_per_word <= 0:
        raise InputErrors([f"--api chat: a probe of {PROBE_WORDS} words has no more tokens than one of a word "
                           f"({counts[0]})"])
    return Pace(tokens_per_word, counts[0] - tokens_per_word)


async def prewarm(client: Client, clock: Clock, workload: Workload, orders: Orders, duration_s: float,
                  stops: Callable[[], bool]) -> dict:
    """Send requests like those of a workload for some seconds, `SIDE_BY_SIDE` at once.

    orders : of prompts that share nothing with measured ones. stops : returns whether to stop earlier.

    Returns
    -------
    dict
        Number of requests, and number of failures.
    """
    end_ns, rows = clock.now_ns() + round(duration_s * 1e9), iter(range(1 << 62))
    statuses = []

    async def lane() -> None:
        while clock.now_ns() < end_ns:
            row, answer = next(rows) % len(workload), Answer()
            order = orders.order(row, clock.now_ns())
            left_s = (end_ns - clock.now_ns()) / 1e9
            await client.exchange(order._replace(timeout_s=min(order.timeout_s, max(left_s, 0.001))), answer)
            statuses.append(answer.status)

    lanes = {asyncio.create_task(lane()) for _ in range(SIDE_BY_SIDE)}
    pending = lanes
    while pending:
        _, pending = await asyncio.wait(pending, timeout=STOP_LOOK_S)
        if stops():
            for each in pending:
                each.cancel()
    for each in lanes:
        if not each.cancelled():
            each.result()       # a fault of the program is raised here
    failed = [status for status in statuses if status not in (OK, "timeout", "gave_up")]
    return {"duration_s": duration_s, "requests": len(statuses), "failed": len(failed)}
