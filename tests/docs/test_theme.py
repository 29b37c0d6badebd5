"""The site in narrow windows and dark ones: the side bar stands beside the text from 900 px on, texts keep contrast."""
import html
import itertools
import json
import os
import re
import subprocess

import pytest

from results.reports.browser import BROWSER, needs_browser
from support.pages import ROOT

STYLE = ROOT / "docs/_theme/custom.css"
LEAST = 4.5             # WCAG 2.2, success criterion 1.4.3
WIDE = 900              # px: from then on the side bar stands beside the text
TEXTS, BACKGROUNDS = ("ink", "quiet", "link", "hover"), ("paper", "panel")
PAGES = ("index", "tutorial", "reference/engine", "search", "theory")
# What the page finds out about itself: is the side bar beside the text, is anything wider than the window, and the
# texts whose contrast is least.
PROBE = """<script>addEventListener("load",()=>{
const parts=colour=>colour.match(/[\\d.]+/g).map(Number);
const light=([r,g,b])=>[r,g,b].map(each=>(each/=255)<=0.04045?each/12.92:((each+0.055)/1.055)**2.4)
.reduce((sum,each,place)=>sum+each*[0.2126,0.7152,0.0722][place],0);
const behind=element=>{for(;element;element=element.parentElement){
const found=parts(getComputedStyle(element).backgroundColor);
if(found.length<4||found[3]>0)return found}return [255,255,255]};
const worst=[...document.querySelectorAll("body *")].filter(element=>element.getClientRects().length&&
[...element.childNodes].some(node=>node.nodeType===3&&node.textContent.trim())).map(element=>{
const pair=[light(parts(getComputedStyle(element).color)),light(behind(element))].sort((one,other)=>other-one);
return [(pair[0]+0.05)/(pair[1]+0.05),element.outerHTML.slice(0,120)]}).sort((one,other)=>one[0]-other[0]);
const bar=document.querySelector("div.sphinxsidebar").getBoundingClientRect();
const text=document.querySelector("div.body").getBoundingClientRect();
document.title=JSON.stringify([bar.right<=text.left+1&&bar.top<text.bottom,
document.documentElement.scrollWidth<=innerWidth,worst.slice(0,5)])})</script>"""


def contrast(one, other):
    """Return the contrast of two colours, "#rrggbb" (WCAG 2.2)."""
    lights = []
    for colour in (one, other):
        parts = [int(colour[first:first + 2], 16) / 255 for first in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        lights.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(lights) + 0.05) / (min(lights) + 0.05)


def dark_colours():
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", STYLE.read_text()))


def test_contrast_is_that_of_wcag():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize(("text", "background"), list(itertools.product(TEXTS, BACKGROUNDS)))
def test_dark_texts_keep_contrast(text, background):
    colours = dark_colours()

    assert contrast(colours[text], colours[background]) >= LEAST


def test_warnings_and_found_words_keep_contrast_in_the_dark():
    colours = dark_colours()

    assert contrast(colours["ink"], colours["alarm"]) >= LEAST
    assert contrast(colours["paper"], colours["hover"]) >= LEAST


def test_only_named_colours_are_used_in_the_dark():
    dark = STYLE.read_text().partition("@media (prefers-color-scheme: dark)")[2]
    named = set(re.findall(r"var\(--(\w+)\)", dark))

    assert named == dark_colours().keys() == {*TEXTS, *BACKGROUNDS, "alarm", "rule"}
    assert len(re.findall("#[0-9a-f]{3,6};", dark)) == len(named)


@pytest.mark.slow
def test_code_keeps_contrast_in_the_dark(site):
    panel = dark_colours()["panel"]
    style = (site.folder / "_static/pygments_dark.css").read_text()
    found = re.findall(r"^\.highlight \.(\w+) \{ color: (#[0-9A-Fa-f]{6})", style, re.MULTILINE)
    colours = {colour.lower() for token, colour in found if token != "w"}       # blanks show none

    assert len(colours) > 4
    assert {colour: round(contrast(colour, panel), 2) for colour in colours if contrast(colour, panel) < LEAST} == {}


@pytest.mark.slow
def test_the_side_bar_stands_beside_the_text_from_900_px_on(site):
    assert re.findall(r"\(max-width: (\d+)px\)", (site.folder / "_static/alabaster.css").read_text()) == [str(WIDE - 1)]
    assert (site.folder / "_static/custom.css").read_text() == STYLE.read_text()


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("width", [600, WIDE, 1600])
@pytest.mark.parametrize("preference", ["dark", "light"])
def test_pages_in_a_browser(site, tmp_path, page, width, preference):
    is_beside, fits, worst = shown(site.folder, tmp_path, page, width, preference)

    assert is_beside is (width >= WIDE)
    assert fits
    assert preference == "light" or worst[0][0] >= LEAST, worst


def shown(site, folder, page, width, preference):
    """Show a page; return what `PROBE` finds."""
    probed = site / page
    probed = probed.with_name(f"{probed.name}.{os.getpid()}.html")
    probed.write_text((site / f"{page}.html").read_text().replace("</head>", f"{PROBE}</head>"))
    found = subprocess.run(
        [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/browser",
         "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=2000", f"--window-size={width},900",
         f"--blink-settings=preferredColorScheme={int(preference == 'light')}", "--dump-dom", f"file://{probed}"],
        capture_output=True, text=True, check=True)
    return json.loads(html.unescape(re.search("<title>(.*?)</title>", found.stdout, re.DOTALL)[1]))
