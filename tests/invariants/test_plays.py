"""Random graphs of requests in native traces: who waits for whom is what the file says, in every mode of lanes."""
import numpy as np
import pytest

from support.traces import play

MODES = [None, {"mode": "lanes", "lanes": 2}, {"mode": "lanes", "lanes": 2, "assign": "dynamic"},
         {"mode": "lanes", "lanes": 3, "snapshot": "uniform"},
         {"mode": "lanes", "lanes": 2, "snapshot": "uniform", "assign": "dynamic"},
         {"mode": "concurrency", "concurrency": 2, "unit": "session"}]
HEADER = "request_id,arrived_at,num_prefill_tokens,num_decode_tokens,play,wait_for,not_before_s"


def random_trace(draws):
    """Return the rows of some plays in random order: id, arrival ms, output, play, waits, not before ms."""
    rows = []
    for name in "wxyz"[:draws.integers(1, 5)]:
        ids = [f"{name}{place}" for place in range(draws.integers(1, 7))]
        for place, each in enumerate(ids):
            sources = draws.choice(place, draws.integers(0, min(place, 3) + 1), replace=False) if place else ()
            waits = [(ids[source], draws.choice(["start", "end"]), int(draws.integers(0, 8))) for source in sources]
            rows.append((each, int(draws.integers(0, 20)), int(draws.integers(1, 9)), name, waits,
                         int(draws.choice([0, 0, 5, 30]))))
    return [rows[place] for place in draws.permutation(len(rows))]


def text_of(rows):
    lines = []
    for name, at, output, of, waits, before in rows:
        wait_for = "|".join(f"{source}:{when}+{delay / 1e3}" for source, when, delay in waits)
        lines.append(f"{name},{at / 1e3},20,{output},{of},{wait_for},{before / 1e3}")
    return "\n".join([HEADER, *lines]) + "\n"


def offsets_of(rows):
    """Return when each request may come at the earliest since its play's start, ms, and when that is, by play."""
    starts, offsets = {}, {}
    for _, at, _, of, waits, _ in rows:
        if not waits:
            starts[of] = min(at, starts.get(of, at))
    for name, at, _, of, waits, before in rows:
        offsets[name] = max(before, 0 if waits else at - starts[of])
    for play_name in starts:
        first = min(offsets[name] for name, _, _, of, waits, _ in rows if of == play_name and not waits)
        for name, _, _, of, _, _ in rows:
            if of == play_name:
                offsets[name] = max(0, offsets[name] - first)
    return starts, offsets


@pytest.mark.parametrize("seed", range(18))
def test_requests_come_when_all_that_they_wait_for_let_them(tmp_path, seed):
    draws, load = np.random.default_rng(seed), MODES[seed % len(MODES)]
    rows = random_trace(draws)
    (tmp_path / "t.csv").write_text(text_of(rows))
    played = play(tmp_path, tmp_path / "t.csv", load=load)

    starts, offsets = offsets_of(rows)
    sent = set(played.names())
    is_whole = load is None or "snapshot" not in load
    assert not is_whole or len(sent) == len(rows)
    begins = {of: min(played.ms(name)[0] for name, _, _, each, _, _ in rows if each == of and name in sent)
              for of in starts}
    for name, _, _, of, waits, _ in rows:
        if name not in sent or not {source for source, _, _ in waits} <= sent:
            continue
        let_go = [played.ms(source)[0 if when == "start" else 1] + delay for source, when, delay in waits]
        at_least = max([begins[of] + offsets[name], *let_go]) if is_whole else max(let_go, default=0)
        if is_whole:
            assert played.ms(name)[0] == pytest.approx(at_least, abs=1e-6)
        else:
            assert played.ms(name)[0] >= at_least - 1e-6
    if load is None:
        first = min(starts.values())            # the trace begins there
        assert begins == {of: start - first for of, start in starts.items()}
