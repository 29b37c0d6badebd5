"""Random traces that carry all that a trace can say."""
from random import Random

COLUMNS = ("arrived_at", "num_prefill_tokens", "num_decode_tokens", "prompt", "priority", "max_tokens", "deadline_s",
           "slo_class", "tenant", "session", "adapter", "model", "grammar", "predicted_tokens")


def random_trace(rng: Random) -> list[list[str]]:
    """Return a header and its rows: requests in bursts, some with equal beginnings, some that give up."""
    columns = list(COLUMNS[:3]) + [name for name in COLUMNS[3:] if rng.random() < 0.45]
    gaps_s = rng.choice([[0.0, 0.0, 0.001, 0.005], [0.003], [0.0, 0.02, 0.1], [0.0, 0.001, 0.001, 0.3]])
    longest = rng.choice([20, 60, 60, 150])
    rows, now_s = [], 0.0
    for number in range(rng.choice([5, 12, 25, 40, 80])):
        now_s += rng.choice(gaps_s)
        rows.append(_row(rng, number, now_s, longest))
    return [columns] + [[row[name] for name in columns] for row in rows]


def _row(rng: Random, number: int, now_s: float, longest: int) -> dict[str, str]:
    own, shared = rng.choice([1, rng.randint(1, longest), longest]), rng.choice([0, 16, 32, 48])
    output = rng.choice([0, 1, 2, rng.randint(1, 30), rng.randint(1, 60)])
    pieces = [f"s{rng.randint(0, 2)}:{shared}"] * (shared > 0) + [f"own{number}:{own}"]
    return {
        "arrived_at": f"{now_s:.6f}", "num_prefill_tokens": f"{own + shared}", "num_decode_tokens": f"{output}",
        "prompt": "/".join(pieces), "priority": f"{rng.randint(0, 3)}",
        "max_tokens": f"{max(1, output + rng.choice([-1, 0, 0, 5]))}",
        "deadline_s": rng.choice(["", "", "0.001", "0.02", "0.1", "1"]),
        "slo_class": rng.choice(["critical", "standard", "batch", "sheddable"]), "tenant": f"t{rng.randint(0, 2)}",
        "session": rng.choice(["", f"u{rng.randint(0, 6)}"]), "adapter": rng.choice(["", "a0", "a1", "a2"]),
        "model": f"m{rng.randint(0, 1)}", "grammar": rng.choice(["", "", f"g{rng.randint(0, 3)}"]),
        "predicted_tokens": f"{max(1, output + rng.randint(-5, 5))}"}
