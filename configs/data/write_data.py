"""Writer of the traces and Llumnix profiles beside this file, all made up: python configs/data/write_data.py [FOLDER].

Traces follow the formulas below. Profiles are the roofline model's predictions for the replicas of llumnix_slo.toml.
"""
import csv
import json
import sys
from pathlib import Path

import simulator

CONFIGS = Path(__file__).resolve().parents[1]
TOKENS = (1, 256, 512, 1024, 2048, 4096, 8192)

CLASSES = ("critical", *["standard"] * 5, *["batch"] * 2, *["sheddable"] * 2)
TENANTS = ("acme", "acme", "acme", "birch", "cedar")


def labelled():
    """Yield 800 requests in turns of 2 s at 30 a second and 2 s at 10 a second; tenant acme sends three of five."""
    yield "arrived_at", "num_prefill_tokens", "num_decode_tokens", "slo_class", "tenant", "model"
    for i in range(800):
        period, k = divmod(i, 80)
        seconds = 4 * period + (k / 30 if k < 60 else 2 + (k - 60) / 10)
        yield (f"{seconds:.3f}", 100 + i * 7919 % 900, 50 + i * 104_729 % 250, CLASSES[i % 10],
               TENANTS[i // 3 % 5], "large" if i // 7 % 4 == 0 else "small")


def conversations():
    """Yield 61 conversations of 8 rounds, 10 s apart; a prompt is the whole conversation so far and 200 tokens more."""
    yield "request_id", "arrived_at", "num_prefill_tokens", "num_decode_tokens", "session", "prompt"
    for i in range(8 * 61):
        number, chat = divmod(i, 61)
        said = [f"{chat}-{k}" for k in range(number)]
        prompt = "/".join(["system:1000", *(f"{each}.own:200/{each}.out:100" for each in said), ":200"])
        yield (f"{chat}-{number}", f"{10 * number + chat * 17 % 61 / 6.1:.3f}", 1200 + 300 * number, 100,
               f"chat{chat}", prompt)


def agents():
    """Yield 16 coding agents of 6 to 12 turns with tools of up to 3 s between them.

    Turn 2 of each calls a second agent of 3 turns, and turn 4 waits for its end.
    """
    yield "request_id", "arrived_at", "num_prefill_tokens", "num_decode_tokens", "session", "play", "wait_for", "prompt"
    for i in range(16):
        turns = [(f"{i}-{k}", f"agent{i}", f"{i}-{k - 1}:end+{tool_s(i, k)}" if k else "")
                 for k in range(6 + i * 5 % 7)]
        turns[4] = (*turns[4][:2], f"{turns[4][2]}|{i}-2c:end")
        called = [(f"{i}-2{each}", f"agent{i}.2", f"{i}-2{before}:end+{tool_s(i, k)}")
                  for k, (before, each) in enumerate([("", "a"), ("a", "b"), ("b", "c")], 40)]
        for system, chain in (("tools:3000", turns), ("search:1500", called)):
            for k, (name, session, wait_for) in enumerate(chain):
                said = [f"{each}.own:{new_tokens(i, place)}/{each}.out:120"
                        for place, (each, *_) in enumerate(chain[:k])]
                tokens = int(system.split(":")[1]) + sum(new_tokens(i, place) for place in range(k + 1)) + 120 * k
                yield (name, f"{2.5 * i:.1f}", tokens, 120, session, f"play{i}", wait_for,
                       "/".join([system, *said, f":{new_tokens(i, k)}"]))


def new_tokens(i, k):
    """Return the tokens of a tool's output."""
    return 200 + (i * 7919 + k * 104_729) % 1800


def tool_s(i, k):
    """Return the seconds of a tool's run."""
    return f"{(i * 31 + k * 17) % 30 / 10:.1f}"


def windows(client):
    """Yield six windows of 10 minutes of a client, in ServeGen's format: the second half of the hour is busier."""
    habits = ((0.5, 1.0, "Gamma", 1.0), (0.2, 2.0, "Gamma", 0.25), (0.05, 1.4, "Weibull", 0.74))
    rate, cv, pattern, shape = habits[client]
    for i in range(6):
        is_off = client == 2 and i < 2
        yield (600 * i, 0 if is_off else rate * (1 + i // 3), 0 if is_off else cv, "" if is_off else pattern,
               0 if is_off else shape, 0 if is_off else 1)


def lengths(client):
    """Return the lengths of a client's requests: ServeGen writes {value: probability} as text."""
    prompt, output = ((400, 200), (2000, 50), (6000, 800))[client]
    fields = {name: str({mean // 4: 0.25, mean: 0.5, 2 * mean: 0.25})
              for name, mean in (("input_tokens", prompt), ("output_tokens", output))}
    return {"0": fields}


def prefills():
    """Yield the duration in ms of a prompt chunk, by its tokens."""
    for tokens in TOKENS:
        yield {"tokens_num": tokens, "p50": duration_ms(prefill=[tokens])}


def decodes():
    """Yield the duration in ms of a decode iteration, by its sequences and their mean length."""
    for sequences in (1, 16, 64, 128, 256, 1024):
        for tokens in (8, 512, 1024, 2048, 12_288):
            yield {"batch_size": sequences, "tokens_per_request": tokens,
                   "p50": duration_ms(decode=[tokens] * sequences)}


def duration_ms(**batch):
    """Return the roofline model's prediction for a batch."""
    shares = {"latency.efficiency": "shares"}
    return round(1e3 * simulator.predict(CONFIGS / "quickstart.toml", overrides=shares, **batch).seconds, 3)


def write(folder):
    """Write each file to a folder."""
    for rows in (labelled, conversations, agents):
        with open(Path(folder, f"{rows.__name__}.csv"), "w", encoding="ascii", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows())
    Path(folder, "servegen").mkdir(exist_ok=True)
    for client in range(3):
        with open(Path(folder, f"servegen/chunk-{client}-trace.csv"), "w", encoding="ascii", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(windows(client))
        Path(folder, f"servegen/chunk-{client}-dataset.json").write_text(
            json.dumps(lengths(client), indent=1) + "\n", encoding="ascii")
    for rows in (prefills, decodes):
        lines = ",\n".join(map(json.dumps, rows()))
        Path(folder, f"{rows.__name__}.json").write_text(f'{{"results": [\n{lines}\n]}}\n', encoding="ascii")


if __name__ == "__main__":
    write(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
