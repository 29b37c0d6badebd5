"""The campaign keeps what it measured, whatever fails; its attention kernel computes attention."""
import json
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "hardware" / "measured"


@pytest.fixture(autouse=True)
def tools(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s

    def pass_s(self, seconds):
        self.now_s += seconds
        return {"latency_ms": seconds * 1e3}


def test_a_part_that_fails_keeps_its_rows_and_the_next_part_measures(tmp_path):
    from campaign.record import Record

    clock = Clock()
    record = Record(tmp_path / "new" / "card.json", {"name": "card"}, 100.0, clock)
    with record.part("first", 50.0) as part:
        part.add(lambda: clock.pass_s(1.0), size=1)
        part.add(lambda: 1 / 0, size=2)
        raise RuntimeError("the card is lost")
    with record.part("second", 50.0) as part:
        part.add(lambda: clock.pass_s(2.0), size=3)

    parts = json.loads((tmp_path / "new" / "card.json").read_text())["parts"]
    assert parts["first"] == {
        "complete": False, "rows": [{"size": 1, "latency_ms": 1000.0}], "took_s": 1.0,
        "left_out": [{"size": 2, "why": "ZeroDivisionError: division by zero"}],
        "why": "RuntimeError: the card is lost"}
    assert parts["second"]["complete"] and parts["second"]["rows"] == [{"size": 3, "latency_ms": 2000.0}]
    assert [each.name for each in (tmp_path / "new").iterdir()] == ["card.json"]


@pytest.mark.parametrize(("part_s", "campaign_s", "rows"), [(2.5, 100.0, 3), (50.0, 1.5, 2), (50.0, 0.0, 0)])
def test_no_point_begins_after_the_seconds_of_the_part_or_of_the_campaign(tmp_path, part_s, campaign_s, rows):
    from campaign.record import Record

    clock = Clock()                                 # each point takes one second
    record = Record(tmp_path / "card.json", {}, campaign_s, clock)
    with record.part("only", part_s) as part:
        for _ in range(10):
            part.add(lambda: clock.pass_s(1.0))

    entry = record.content["parts"]["only"]
    assert len(entry["rows"]) == rows and not entry["complete"]
    assert entry["why"].startswith(f"its {part_s:g} s")


@pytest.mark.parametrize("ratio", [1, 2, 4, 10])
def test_contexts_of_one_mean_lie_as_far_apart_as_asked(ratio):
    from campaign.attention import one_long, spread

    for contexts in (spread(2048, ratio), one_long(2048, ratio)):
        assert len(contexts) == 64
        assert sum(contexts) / 64 == pytest.approx(2048, abs=1)
        assert max(contexts) / min(contexts) == pytest.approx(ratio, rel=0.01)


def test_bytes_of_kv_count_latent_values_once():
    from campaign.attention import GROUPED, LATENT

    assert GROUPED[0].kv_bytes(1000) == 1000 * 8 * (128 + 128) * 2
    assert LATENT[0].kv_bytes(1000) == 1000 * (512 + 64) * 2


def test_each_file_is_of_a_card_that_the_page_names():
    page = (MEASURED / "README.md").read_text(encoding="utf-8")
    files = sorted(MEASURED.glob("*.json"))

    assert bool(files) != ("No card has been measured yet" in page)
    for file in files:
        content = json.loads(file.read_text(encoding="utf-8"))
        assert content["schema"] == 1 and content["machine"]["driver"] and file.name in page
        assert any(part["rows"] for part in content["parts"].values())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning")
@pytest.mark.parametrize(("heads", "kv_heads", "dim", "rotary"), [(4, 2, 16, 0), (8, 1, 16, 16)])
@pytest.mark.parametrize(("queries", "contexts"), [
    ([1], [300]), ([5], [77]), ([40], [40]), ([1, 1, 7], [33, 200, 90])])
@pytest.mark.parametrize("splits", [1, 3])
def test_the_triton_kernel_computes_causal_attention(heads, kv_heads, dim, rotary, queries, contexts, splits,
                                                     monkeypatch):
    if tuple(map(int, np.__version__.split(".")[:2])) >= (2, 4):
        pytest.skip("Triton's interpreter needs NumPy before 2.4")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: the extra `gpu`")
    pytest.importorskip("triton", reason="Triton is not installed: it comes with PyTorch for Linux")
    from campaign.triton_attention import attend

    q, keys = torch.randn(sum(queries), heads, dim + rotary), torch.randn(sum(contexts), kv_heads, dim + rotary)
    values = keys[..., :dim] if rotary else torch.randn(*keys.shape)
    starts, kv_starts = ([sum(counts[:i]) for i in range(len(counts) + 1)] for counts in (queries, contexts))

    found = attend(torch, q, keys, values, torch.tensor(starts, dtype=torch.int32),
                   torch.tensor(kv_starts, dtype=torch.int32), max(queries), splits)

    for i, (new, context) in enumerate(zip(queries, contexts)):
        mine, seen = slice(starts[i], starts[i + 1]), slice(kv_starts[i], kv_starts[i + 1])
        spread_keys, spread_values = (each[seen].double().repeat_interleave(heads // kv_heads, 1)
                                      for each in (keys, values))
        scores = torch.einsum("qhd,khd->hqk", q[mine].double(), spread_keys) * (dim + rotary) ** -0.5
        is_later = torch.arange(context)[None] > torch.arange(new)[:, None] + context - new
        weights = scores.masked_fill(is_later, float("-inf")).softmax(-1)
        expected = torch.einsum("hqk,khd->qhd", weights, spread_values)
        assert torch.allclose(found[mine].double(), expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning")
def test_each_part_runs_on_the_processor(tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed: the extra `gpu`")
    import gpu_campaign

    status = gpu_campaign.main(["--device", "cpu", "--tiny", "--out", str(tmp_path / "cpu.json")])

    parts = json.loads((tmp_path / "cpu.json").read_text())["parts"]
    assert status == 0 and list(parts) == list(gpu_campaign.SHARES)
    assert all(part["complete"] and part["rows"] for part in parts.values())
    assert [row["exit_status"] for row in parts["profiles"]["rows"]] == [0, 0]
