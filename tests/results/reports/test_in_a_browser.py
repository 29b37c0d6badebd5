"""A real browser, without a network, shows the page as it should be."""
import pytest

from results.reports.browser import needs_browser, shown
from results.reports.made import lay_down
from simulator.results.reports.material import Material
from simulator.results.reports.page import page


@pytest.mark.ci
@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize(("preference", "paper"), [(1, "rgb(255, 255, 254)"), (0, "rgb(21, 24, 28)")])
@pytest.mark.parametrize("width", [1200, 500])      # 500: the narrowest window of Chromium
def test_both_themes_fit_their_window_and_ask_for_nothing(tmp_path, preference, paper, width):
    pytest.importorskip("matplotlib", reason="pictures come with the extra `report`")
    text = page(Material(lay_down(tmp_path / "a", token_times=True)), request="0")

    assert shown(text, tmp_path, preference, width) == [paper, 0, True, True, []]
