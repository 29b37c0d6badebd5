"""A real browser, without a network, shows the page as it should be."""
import shutil
import subprocess

import pytest

from results.reports.made import lay_down
from simulator.results.reports.material import Material
from simulator.results.reports.page import page

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# What the page finds out about itself: colours, requests made, and whether anything is wider than the window.
PROBE = """<script>addEventListener("load",()=>{document.title=JSON.stringify([
getComputedStyle(document.body).backgroundColor,performance.getEntriesByType("resource").length,
document.documentElement.scrollWidth<=innerWidth,
[...document.querySelectorAll("svg")].every(svg=>svg.getBoundingClientRect().height>20)])})</script>"""


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
@pytest.mark.parametrize(("preference", "paper"), [(1, "rgb(255, 255, 254)"), (0, "rgb(21, 24, 28)")])
@pytest.mark.parametrize("width", [1200, 500])      # 500: the narrowest window of Chromium
def test_both_themes_fit_their_window_and_ask_for_nothing(tmp_path, preference, paper, width):
    pytest.importorskip("matplotlib", reason="pictures come with the extra `report`")
    text = page(Material(lay_down(tmp_path / "a", token_times=True)), request="0")
    (tmp_path / "a.html").write_text(text.replace("</head>", f"{PROBE}</head>"))

    shown = subprocess.run(
        [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/browser",
         "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=2000", f"--window-size={width},900",
         f"--blink-settings=preferredColorScheme={preference}", "--dump-dom", f"file://{tmp_path}/a.html"],
        capture_output=True, text=True, timeout=120, check=True).stdout

    assert f'<title>["{paper}",0,true,true]</title>' in shown
