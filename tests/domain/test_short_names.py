"""Short names of accelerators mean the card that servers have, or the plainest one; others are told."""
import pytest

from simulator.domain.short_names import accelerator_named
from simulator.errors import InputErrors


@pytest.mark.parametrize(("text", "name", "others"), [
    ("h100", "h100-sxm-80gb", {"h100-nvl-94gb", "h100-pcie-80gb", "h100-sxm-96gb-gh200"}),
    ("h20", "h20-96gb", {"h20-3e-141gb"}), ("h20-3e", "h20-3e-141gb", set()),
    ("RTX PRO 6000", "rtx-pro-6000-server", {"rtx-pro-6000-max-q", "rtx-pro-6000-workstation"}),
    ("4090", "rtx-4090", set()), ("trainium3", "trainium3", set())])
def test_a_short_name_means_one_card(text, name, others):
    named = accelerator_named(text)

    assert (named.name, set(named.others)) == (name, others)


def test_cards_that_are_alike_are_listed():
    with pytest.raises(InputErrors, match=r"4 accelerators: expected one of a100-pcie-40gb, .*, a100-sxm-80gb"):
        accelerator_named("a100")
