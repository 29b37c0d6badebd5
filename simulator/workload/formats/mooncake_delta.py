"""`mooncake_delta`: lines as in `mooncake`, but each has only the tokens that its turn adds to its session.

Source: ai-dynamo/aisimulate, crates/core/src/replay/loadgen/types.rs, TraceFileFormat::MooncakeDelta. The prompt of a
turn is the prompt and the output of the turn before, followed by the tokens and blocks of the line.
"""
from simulator.domain import records
from simulator.workload.columns import Columns
from simulator.workload.formats.agent_graphs import extended, length_of, output_of, own_of
from simulator.workload.formats.blocks import coded_ids
from simulator.workload.formats.mooncake import Line, Mooncake, graphs_of, in_milliseconds, named
from simulator.workload.limits import MAX_TOKENS
from simulator.workload.reading.faults import Faults


class MooncakeDelta(Mooncake):
    """The reader of Mooncake traces with only new tokens."""

    scans = False

    def check(self, number: int, line: Line, faults: Faults) -> None:
        super().check(number, line, faults)
        if line.wait_for:
            faults.add(number, "wait_for: a turn adds to the one before it in its session, and waits for no other")

    def columns(self, lines: list[tuple[int, Line]], faults: Faults) -> Columns:
        notes = in_milliseconds(lines, faults)
        faults.raise_if_any()
        graphs = graphs_of(lines, faults)
        graphs.histories = self._histories(lines, faults)
        graphs.prompt_tokens = [length_of(history) for history in graphs.histories]
        return graphs.columns(**named(lines, notes))

    def _histories(self, lines: list[tuple[int, Line]], faults: Faults) -> list[list[tuple]]:
        counts, codes = coded_ids([line.hash_ids for _, line in lines])
        histories, last, begin = [], {}, 0
        for row, (number, line) in enumerate(lines):
            blocks = codes[begin:begin + counts[row]].tolist()
            begin += counts[row]
            key = row if line.session_id is None else str(line.session_id)
            history, tokens = last.get(key, ([], 0))
            tokens += line.input_length
            history = extended(history, *self._added(row, line, blocks))
            if tokens > MAX_TOKENS:
                faults.add(number, f"input_length: the prompt has {tokens} tokens by now, at most {MAX_TOKENS} are "
                                   "possible")
            histories.append(history)
            last[key] = extended(history, output_of(row, line.output_length)), tokens + line.output_length
        return histories

    def _added(self, row: int, line: Line, blocks: list[int]) -> list[tuple]:
        if not blocks:
            return [own_of(row, line.input_length)]
        block_size = self.parameters.block_size
        tokens = [block_size] * len(blocks)
        tokens[-1] = line.input_length - block_size * (len(blocks) - 1)
        return list(zip(map(records.named_stream, blocks), tokens, strict=True))
