"""What a real browser, without a network, finds out about a page."""
import html
import json
import re
import shutil
import subprocess

import pytest

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# What the page finds out about itself: colours, requests made, whether anything is wider than the window, charts
# without height, and texts of charts that leave their picture or cover one another.
PROBE = """<script>addEventListener("load",()=>{const bad=[];
document.querySelectorAll("figure").forEach(figure=>{const picture=figure.querySelector("svg").getBoundingClientRect();
const texts=[...figure.querySelectorAll("svg text")].map(text=>[text.textContent,text.getBoundingClientRect()])
.filter(each=>each[1].width>0);
texts.forEach(([one,a],row)=>{
if(a.left<picture.left-1||a.right>picture.right+1||a.top<picture.top-1||a.bottom>picture.bottom+1)
bad.push(figure.id+": outside: "+one);
texts.slice(row+1).forEach(([other,b])=>{const wide=Math.min(a.right,b.right)-Math.max(a.left,b.left);
const high=Math.min(a.bottom,b.bottom)-Math.max(a.top,b.top);
if(wide>1.5&&high>4)bad.push(figure.id+": "+one+" | "+other)})})});
document.title=JSON.stringify([
getComputedStyle(document.body).backgroundColor,performance.getEntriesByType("resource").length,
document.documentElement.scrollWidth<=innerWidth,
[...document.querySelectorAll("svg")].every(svg=>svg.getBoundingClientRect().height>20),bad])})</script>"""

needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")


def shown(text, folder, preference, width):
    """Show a page; return what `PROBE` finds.

    preference : 1: light, 0: dark.
    """
    (folder / "shown.html").write_text(text.replace("</head>", f"{PROBE}</head>"))
    found = subprocess.run(
        [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/browser",
         "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=2000", f"--window-size={width},900",
         f"--blink-settings=preferredColorScheme={preference}", "--dump-dom", f"file://{folder}/shown.html"],
        capture_output=True, text=True, timeout=120, check=True).stdout
    return json.loads(html.unescape(re.search(r"<title>(\[.*?\])</title>", found, re.DOTALL)[1]))
