"""Lines scanned into columns: as when each is decoded, and decoded where a scan gives up."""
import json

import numpy as np
import pytest
from msgspec.structs import asdict

from simulator.errors import InputErrors
from simulator.workload.formats.bailian import Bailian, BailianParameters
from simulator.workload.formats.mooncake import Line, Mooncake, MooncakeParameters
from simulator.workload.formats.timed_trace import TimedTrace, TimedTraceParameters
from simulator.workload.reading.json_lines import keys_of
from simulator.workload.reading.json_scan import JsonKey, JsonKind, scan_lines

NUMBERS = {"x": JsonKey(JsonKind.NUMBER, 0, 1e300)}
INTEGERS = {"x": JsonKey(JsonKind.INTEGER, -5, 10**17)}


def request(rng, **keys):
    blocks = int(rng.integers(1, 5))
    return {"timestamp": round(float(rng.random()) * 1e4, int(rng.integers(0, 6))), "input_length": blocks * 16 - 3,
            "output_length": int(rng.integers(0, 9)), "hash_ids": rng.integers(-3, 10, blocks).tolist()} | keys


def mooncake(rng, count):
    plain = [request(rng) for _ in range(count)]
    del plain[1]["hash_ids"]
    yield plain
    yield [each | {"timestamp": each["timestamp"] + 1.7e12} for each in plain]
    yield [{"created_time": each["timestamp"], "input_tokens": each["input_length"], "output_tokens": 3,
            "request_id": row if row % 2 else f"r{row}", "priority": row - 2, "strict_priority": row % 3,
            "policy_class": ["a", "b", None][row % 3], "unknown": {"a": [1, {}, "b", -0.5e3], "c": []}}
           for row, each in enumerate(plain)]
    later = sorted(plain, key=lambda each: each["timestamp"])
    yield [each | {"session_id": [7, "7", "x", None][row % 4]} for row, each in enumerate(later)]
    yield [each if row < 2 else {key: each[key] for key in ("input_length", "output_length")}
           | {"session_id": row % 2, "delay": 0.37 * row} for row, each in enumerate(
               each | {"session_id": row % 2} for row, each in enumerate(plain))]
    yield [{key: each[key] for key in each if key != "input_length"} for each in plain if "hash_ids" in each]


def bailian(rng, count):
    yield [request(rng, chat_id=10 * row, parent_chat_id=-1 if row % 3 == 0 else 10 * (row - 1), type="text", turn=1)
           for row in range(count)]
    yield [request(rng, chat_id=row, parent_chat_id=row + 5 if row % 2 else -1) for row in range(count)]


def timed(rng, count):
    yield [request(rng) for _ in range(count)]


CASES = [(Mooncake, MooncakeParameters(block_size=16), mooncake),
         (Bailian, BailianParameters(), bailian),
         (Bailian, BailianParameters(mode="sessions"), bailian),
         (TimedTrace, TimedTraceParameters(timestamp_unit_s=0.01), timed)]


def text_of(lines):
    return "\r\n\n".join(json.dumps(line) for line in lines).encode()


def line_by_line(kind, parameters):
    reader = kind(parameters)
    reader.scans = False
    return reader


def plain(value):
    """Return a value of columns without arrays, each with its type."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tolist()
    if hasattr(value, "__struct_fields__"):
        return plain(asdict(value))
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, tuple) else value


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("kind", "parameters", "traces"), CASES)
def test_scanned_lines_are_the_lines_decoded_one_by_one(kind, parameters, traces, seed):
    for lines in traces(np.random.default_rng(seed), 9):
        data = text_of(lines)
        reader = kind(parameters)
        scan = scan_lines(data, keys_of(kind.kind))

        columns = reader.scanned("t.jsonl", scan)

        assert columns is not None
        assert plain(columns) == plain(line_by_line(kind, parameters).read("t.jsonl", data))
        assert plain(columns) == plain(reader.read("t.jsonl", data))


@pytest.mark.parametrize("change", [
    {"timestamp": -1}, {"timestamp": "1"}, {"input_length": 0}, {"input_length": 2**31}, {"output_length": None},
    {"hash_ids": [1]}, {"hash_ids": [1, 2**63, 3, 4]}, {"hash_ids": [True, 1, 2, 3]}, {"delay": 1}, {"session_id": 1.5},
    {"policy_class": 3}, {"priority": -2**31}, {"wait_for": ["nobody"]}, {"timestamp": 1e19}])
def test_a_line_that_is_refused_has_the_message_of_a_decoded_line(change):
    lines = [request(np.random.default_rng(row), hash_ids=[1, 2, 3, 4], input_length=64) for row in range(3)]
    lines[1] |= change
    messages = []
    parameters = MooncakeParameters(block_size=16)
    for reader in (Mooncake(parameters), line_by_line(Mooncake, parameters)):
        with pytest.raises(InputErrors) as caught:
            reader.read("t.jsonl", text_of(lines))
        messages.append(caught.value.faults)

    assert messages[0] == messages[1]
    assert messages[0][0].startswith("t.jsonl:3: ")


@pytest.mark.parametrize("text", [
    "0", "7", "10.5", "1e3", "2E-2", "1.7976e299", "0.1", "123456789012345", "1234567890123456", "9007199254740993",
    "1696948800123.4567", "0.30000000000000004", "5e-324", "3.1415926535897932384626433832795"])
def test_a_number_is_the_nearest_double(text):
    scan = scan_lines(f'{{"x": {text}}}'.encode(), NUMBERS)

    assert scan.values["x"].tolist() == [float(text)]


@pytest.mark.parametrize("text", ["01", "1.", ".5", "+1", "1e", "-1", "NaN", "1e999", "1 2", "true", '"1"', "[1]", ""])
def test_what_is_no_such_number_ends_the_scan(text):
    assert scan_lines(f'{{"x": {text}}}'.encode(), NUMBERS) is None


@pytest.mark.parametrize(("text", "value"), [("-5", -5), ("0", 0), ("100000000000000000", 10**17), ("-6", None),
                                             ("100000000000000001", None), ("1.0", None), ("1e1", None), ("00", None),
                                             ("1234567890123456789", None), ("-", None)])
def test_an_integer_is_exact_and_within_its_bounds(text, value):
    scan = scan_lines(f'{{"x":{text}}}'.encode(), INTEGERS)

    assert (scan and scan.values["x"].tolist()) == (None if value is None else [value])


@pytest.mark.parametrize("line", [
    '{"x": 1, "x": 2}', '{"x": 1, "x": null}', '{"x": 1', '{"x": 1}}', '{"x": 1} 2', '{"x": 1,}', "{}", "[]", '{"x" 1}',
    '{"\\u0078": 1}', '{"x": 1, "y": "a\\n"}', '{"x": 1, "y": [1,]}', '{"x": 1, "y": {"z"}}', '{"x": 1, "y": tru}',
    '{"x": 1, "y": ' + 40 * "[" + 40 * "]" + "}", '{"x":\n1}', '{x: 1}', '{"x": 1, "y": "'])
def test_other_forms_end_the_scan(line):
    assert scan_lines(line.encode(), INTEGERS) is None


def test_blank_lines_are_counted_and_spaces_are_none_of_the_values():
    scan = scan_lines(b'\xef\xbb\xbf\n{ "x" : 1 , "y":null}\r\n \t\n\n{"y" : [ ] ,"x":2 }', INTEGERS)

    assert scan.lines.tolist() == [2, 5]
    assert scan.values["x"].tolist() == [1, 2]


def test_keys_are_those_of_a_line():
    keys = keys_of(Line)

    assert keys["input_length"] == JsonKey(JsonKind.INTEGER, 1, 2**31 - 1)
    assert keys["session_id"] == JsonKey(JsonKind.NAME)
    assert keys["wait_for"].kind == JsonKind.OTHER
    assert keys["hash_ids"] == JsonKey(JsonKind.INTEGERS, -2**63, 2**63 - 1)
