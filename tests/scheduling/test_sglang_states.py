"""SGLang's slots for recurrent states: the recurrence of each kind is float32, its convolution as activations are."""
import pytest
from msgspec.structs import replace

from simulator.domain.layer_list import LayerParts, NamedPart
from simulator.domain.layers.lightning import LightningAttention
from simulator.domain.layers.mamba2 import Mamba2
from simulator.domain.layers.short_conv import ShortConvolution
from simulator.scheduling.sglang_defaults import state_pool
from support.small_models import RECURRENT, deploy

LIGHTNING = LightningAttention(num_heads=2, head_dim=8)
MAMBA = Mamba2(num_heads=4, head_dim=8, state_size=16, num_groups=1, conv_kernel=4, state_dtype="bfloat16")
SHORT = ShortConvolution(width=64, conv_kernel=3)


def slot_bytes(part, **changes):
    return state_pool(deploy(replace(RECURRENT, linear_attention=part, **changes)), True).slot_bytes


@pytest.mark.parametrize(("part", "expected"), [
    (LIGHTNING, 2 * 8 * 8 * 4),                                     # 2 heads of 8 x 8, float32
    (replace(LIGHTNING, state_dtype="bfloat16"), 2 * 8 * 8 * 2),    # as the model's file says
    (MAMBA, 4 * 8 * 16 * 2 + (4 * 8 + 2 * 16) * 3 * 2),             # 64 channels, 3 tokens of them
    (SHORT, 64 * 2 * 2)])                                           # no recurrence: 2 tokens of 64 channels
def test_a_slot_holds_the_state_of_each_recurrent_layer(part, expected):
    assert slot_bytes(part) == expected             # one layer of two is recurrent


def test_parts_of_other_names_keep_float32_too():
    kinds = tuple(LayerParts(parts=(name, "mlp"), layers=(layer,))
                  for layer, name in enumerate(["linear_attention", "light"]))
    bytes_of_both = slot_bytes(SHORT, layer_pattern="F", layer_kinds=kinds, parts={"light": NamedPart(mixer=LIGHTNING)})
    assert bytes_of_both == 64 * 2 * 2 + 2 * 8 * 8 * 4
