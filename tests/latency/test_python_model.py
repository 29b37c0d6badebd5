"""Latency models written in Python."""
import inspect

import msgspec
import pytest

from simulator.latency.python_model import PythonLatencyModel


class PerChunk(PythonLatencyModel):
    class Parameters(msgspec.Struct, frozen=True, kw_only=True):
        per_chunk_us: float = 2.0

    def batch_us(self, shape):
        return self.parameters.per_chunk_us * len(shape.chunks) + shape.context_tokens


class Broken(PythonLatencyModel):
    calls = 0

    def batch_us(self, shape):
        self.calls += 1
        raise LookupError("no such batch in the table")


class Returning(PythonLatencyModel):
    def batch_us(self, shape):
        return self.parameters


def test_the_subclass_decides_the_duration():
    # 2 us x 2 chunks + 30 context tokens
    assert PerChunk(PerChunk.Parameters()).predict_iteration_ns(prefill=[(5, 0), (6, 1)], decode=[10, 20]) == 34_000


def test_the_documented_example_runs():
    lines = inspect.getdoc(PythonLatencyModel).splitlines()
    namespace = {"PythonLatencyModel": PythonLatencyModel}

    exec("\n".join(line[4:] for line in lines if line.startswith("    ")), namespace)

    model = namespace["TwoTier"]()
    assert model.predict_iteration_ns(decode=[1] * 64) == 4_000_000
    assert model.predict_iteration_ns(decode=[1] * 65) == 9_000_000


def test_host_time_is_added():
    model = PerChunk(PerChunk.Parameters())
    model.set_host(1.5, 0.0)

    assert model.predict_iteration_ns(decode=[10]) == 11_500


def test_the_shape_shows_all_sums_and_chunks():
    seen = {}

    class Curious(PythonLatencyModel):
        def batch_us(self, shape):
            seen.update({name: getattr(shape, name) for name in dir(shape) if not name.startswith("_")})
            return 1.0

    Curious().predict(prefill=[(3, 4)], decode=[10, 20], tokens_per_decode=2)

    # pairs of the chunk: queries see 5, 6 and 7 keys = 18, counted twice: 3 x (2 x 4 + 3 + 1) = 36
    assert seen == {
        "num_sequences": 3, "num_decodes": 2, "num_chunks": 1, "num_samples": 3, "prefill_tokens": 3,
        "decode_tokens": 4, "context_tokens": 30, "prefill_context_tokens": 4, "prefill_token_pairs": 36,
        "chunks": [(3, 4, 7)]}


def test_the_shape_cannot_be_changed():
    class Vandal(PythonLatencyModel):
        def batch_us(self, shape):
            shape.num_decodes = 0
            return 1.0

    with pytest.raises(AttributeError):
        Vandal().predict(decode=[1])


def test_a_shape_kept_after_the_call_shows_no_chunks():
    kept = []

    class Hoarder(PythonLatencyModel):
        def batch_us(self, shape):
            kept.append(shape)
            return 1.0

    Hoarder().predict(prefill=[(3, 4)])

    assert kept[0].chunks == []


def test_an_exception_reaches_the_caller_once():
    model = Broken()

    with pytest.raises(LookupError, match="no such batch"):
        model.predict(decode=[1])
    assert not model.failed
    model.raise_if_failed()


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_a_duration_that_is_none_is_refused(value):
    with pytest.raises(ValueError, match=r"Returning\.batch_us: expected microseconds >= 0"):
        Returning(value).predict(decode=[1])


def test_a_duration_that_is_not_a_number_is_refused():
    with pytest.raises(TypeError):
        Returning("fast").predict(decode=[1])


def test_the_base_class_says_what_to_override():
    with pytest.raises(NotImplementedError, match="PythonLatencyModel must override batch_us"):
        PythonLatencyModel().predict(decode=[1])
