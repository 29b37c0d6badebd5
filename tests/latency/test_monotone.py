"""Backends that call themselves monotone are: more work never makes an iteration shorter."""
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.latency.linear import Linear, LinearParameters
from simulator.latency.roofline.model import Roofline
from support.small_models import DENSE, LATENT, MIXTURE, RECURRENT, SLIDING, deploy

PROMPTS = st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 3000)), max_size=4)
DECODES = st.lists(st.integers(1, 5000), max_size=60)


def linear():
    return Linear(LinearParameters(per_decode_token_us=3.0))


def truncated():
    model = linear()
    model.set_host(70.0, 1000.0)
    return model


def roofline(model):
    return lambda: Roofline(Roofline.Parameters(
        mfu_prefill=0.7, mfu_decode=0.2, mfu_attention=0.4, bandwidth_efficiency=0.9), deploy(model))


MODELS = {"linear": linear, "linear, whole milliseconds": truncated} | {
    f"roofline, {name}": roofline(model) for name, model in
    {"dense": DENSE, "latent": LATENT, "mixture": MIXTURE, "recurrent": RECURRENT, "sliding": SLIDING}.items()}


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(PROMPTS, DECODES, st.data())
def test_more_work_never_takes_less_time(name, prompts, decodes, data):
    model = MODELS[name]()
    if not prompts and not decodes:
        decodes = [1]
    before_ns = model.predict_iteration_ns(prompts, decodes)
    kind = data.draw(st.sampled_from(["prompt", "decode", "tokens", "context", "decode context"]))
    more = data.draw(st.integers(1, 500))
    if kind == "prompt":
        prompts = [*prompts, (more, 3 * more)]
    elif kind == "decode" or not prompts:
        decodes = [*decodes, more] if kind == "decode" or not decodes else [decodes[0] + more, *decodes[1:]]
    elif kind == "tokens":
        prompts = [(prompts[0][0] + more, prompts[0][1]), *prompts[1:]]
    elif kind == "context":
        prompts = [(prompts[0][0], prompts[0][1] + more), *prompts[1:]]
    elif decodes:
        decodes = [decodes[0] + more, *decodes[1:]]

    assert model.is_monotone
    assert model.predict_iteration_ns(prompts, decodes) >= before_ns >= model.least_iteration_ns > 0


def test_the_shortest_iteration_of_a_monotone_model_is_that_of_one_token():
    model = Linear(LinearParameters(base_us=5.0, per_sequence_us=1.0, per_prefill_token_us=20.0,
                                    per_decode_token_us=2.0, per_context_token_us=4.0))
    assert model.least_iteration_ns == 12_000       # 5 + 1 + 2 + 4 us to decode, 5 + 1 + 20 us for a prompt


def test_a_negative_price_is_not_monotone():
    assert not Linear(LinearParameters(per_context_token_us=-0.1)).is_monotone
