"""A backend refuses a kind of attention that it has no price of, by name; the roofline prices its numbers."""
import pytest
from msgspec.structs import replace

from simulator import registry
from simulator.domain.facts import load_accelerator
from simulator.domain.layers.multi_head import MultiHeadAttention
from simulator.domain.model_spec import SlidingAttention
from simulator.errors import InputErrors
from simulator.profiling.plan import KEYS, QUICK, make_plan
from support.operator_profiles import write_tables
from support.small_models import DENSE, LATENT, RECURRENT, deploy

H100 = load_accelerator("h100-sxm-80gb")


class Doubled(MultiHeadAttention, tag_field="kind", tag="doubled"):
    """Attention with twice the work."""

    title = "doubled attention"
    flops_per_context_token = property(lambda self: 4 * self.num_heads * (self.head_dim + self.value_dim))


class Twice(MultiHeadAttention, tag_field="kind", tag="twice"):
    """Attention in two passes over the whole context."""

    title = "attention in two passes"

    def passes(self, element_bytes, window=0):
        return 2 * super().passes(element_bytes, window)


class DoubledTwice(Doubled, tag_field="kind", tag="doubled_twice"):
    """Both."""

    title = "doubled attention in two passes"

    def passes(self, element_bytes, window=0):
        return 2 * super().passes(element_bytes, window)


class Many(MultiHeadAttention, tag_field="kind", tag="many"):
    """Attention with forty windows."""

    title = "attention with forty windows"

    def passes(self, element_bytes, window=0):
        return [each for size in range(40) for each in super(Many, self).passes(element_bytes, size)]


def deployed(kind, **more):
    model = replace(DENSE, attention=kind(num_heads=4, num_kv_heads=2, head_dim=16), **more)
    return deploy(model, accelerator=H100)


def priced(name, deployment, **parameters):
    backend = registry.load("latency", name)
    return backend(backend.Parameters(**parameters), deployment)


@pytest.mark.parametrize(("name", "parameters"), [
    ("trained_physics", {"conventions": "model"}),
    ("trained_physics", {"beta": (1.0,) * 10, "conventions": "blis"}), ("crossmodel", {"beta": (1.0,) * 4}),
    ("step_roofline", {"mfu_prefill": 0.5, "mfu_decode": 0.5}),
    ("forest", {"compute_file": "a.csv", "attention_file": "b.csv"})])
def test_a_backend_without_a_price_refuses_the_kind_by_name(name, parameters):
    with pytest.raises(InputErrors) as caught:
        priced(name, deployed(Doubled), **parameters)
    assert "doubled attention" in str(caught.value)
    assert f'"{name}"' in str(caught.value)


def test_tables_without_a_kind_leave_it_to_the_roofline_by_name(tmp_path):
    folder = write_tables(tmp_path / "tables")
    model, plain = (
        priced("operators", deploy(replace(DENSE, attention=kind(num_heads=4, num_kv_heads=2, head_dim=16))),
               path=str(folder), cache_directory=str(folder / "cache")) for kind in (Doubled, MultiHeadAttention))

    assert model.provenance()["operators"]["doubled prefill"] == "roofline"
    assert "doubled decode" not in plain.provenance()["operators"]
    assert any('doubled attention, kind = "doubled", is in no table' in note for note in model.warnings())
    assert registry.load("latency", "operators").asked(deployed(Doubled)).attention_parts == {}


def test_attention_without_a_table_takes_the_roofline_of_its_passes(tmp_path):
    folder = write_tables(tmp_path / "tables")

    def decode_s(kind, context):
        model = priced("operators", deploy(replace(DENSE, attention=kind(num_heads=4, num_kv_heads=2, head_dim=16))),
                       path=str(folder), cache_directory=str(folder / "cache"))
        return model.breakdown([], [context] * 8)["decode_attention"]

    once, twice = (decode_s(kind, 4096) - decode_s(kind, 2048) for kind in (Doubled, DoubledTwice))
    assert twice == pytest.approx(2 * once)


def test_a_profile_names_the_kinds_that_it_does_not_measure():
    def left_out(model):
        return make_plan(model, [], KEYS, QUICK).left_out

    assert "doubled attention" in left_out(deployed(Doubled).model)
    assert "latent attention" in left_out(LATENT)
    assert "linear attention" in left_out(RECURRENT)
    assert left_out(DENSE) == {}


def test_the_roofline_prices_the_numbers_of_a_kind():
    prompt = ([(4096, 0)], [])
    times = [priced("roofline", deployed(kind), efficiency="shares", attention_latency_us=0.0).breakdown(*prompt)
             for kind in (MultiHeadAttention, Doubled)]

    # arithmetic bounds so long a prompt: its keys and values are read once
    assert times[1]["prefill_attention"] == pytest.approx(2 * times[0]["prefill_attention"])


def test_the_roofline_names_a_kind_without_a_law_and_an_error():
    model = priced("roofline", deployed(Doubled))
    errors = registry.load("latency", "roofline").errors(registry.load("latency", "roofline").Parameters(),
                                                         deployed(Doubled))[0]

    assert any(note.startswith("roofline: doubled attention has no law: its FLOPs and bytes take one share of peak")
               for note in model.warnings())
    assert errors["prefill_attention"].error_frac is None
    assert errors["dense"].error_frac > 0


@pytest.mark.parametrize("more", [{}, {"layer_pattern": "SF", "sliding_attention": SlidingAttention(window=9)}])
def test_the_roofline_prices_each_pass(more):
    once, twice = (priced("roofline", deployed(kind, **more), efficiency="shares", attention_latency_us=0.0).breakdown(
        [(512, 0)], [5000] * 4) for kind in (MultiHeadAttention, Twice))

    for name in ("prefill_attention", "decode_attention"):
        assert twice[name] == pytest.approx(2 * once[name])


def test_the_roofline_refuses_passes_that_it_has_no_place_for():
    with pytest.raises(InputErrors, match="prices 31 kinds of passes of attention at most, found 40"):
        priced("roofline", deployed(Many))
