"""Colours, dashes and markers; light for files, light and dark for pages.

The palette is that of Okabe and Ito, "Color universal design", 2008, darkened where it would be faint on paper: people
with any kind of colour blindness can distinguish it. Its dark twin has the same hues, lighter. A dash or a marker goes
with each: colour is never the only difference.
"""
# name: (light, dark). Light ones are drawn; a page replaces them by variables, so all must be different.
COLOURS = {
    "paper": ("#fffffe", "#15181c"), "ink": ("#1b1f24", "#e8eaed"), "quiet": ("#565d66", "#a9b1bb"),
    "faint": ("#d5d9de", "#363c44"),
    "c0": ("#0072b2", "#5cb8f2"), "c1": ("#d55e00", "#ff9150"), "c2": ("#009e73", "#35d3a3"),
    "c3": ("#b45f92", "#e8a0cb"), "c4": ("#a87400", "#f0bf4a"), "c5": ("#4a4f57", "#c3cad3"),
}
DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)), (0, (3, 1, 1, 1, 1, 1)), (0, (8, 3)))
MARKERS = ("o", "^", "s", "D", "v", "P")
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++")
HEAT = "cividis"            # grows evenly in lightness: the same order in grey, and to every eye


def light(name: str) -> str:
    """Return the light colour of a name."""
    return COLOURS[name][0]


def colour(style: int) -> str:
    """Return the colour of a style."""
    return light(f"c{style % 6}")


def with_variables(svg: str) -> str:
    """Replace the colours of an SVG by CSS variables."""
    for name, (drawn, _) in COLOURS.items():
        svg = svg.replace(drawn, f"var(--{name})")
    return svg


def variables(place: str = ":root") -> str:
    """Return the style sheet of the variables, for a place on a page.

    Light or dark is the reader's preference; paper is light.
    """
    def block(which: int) -> str:
        return f"{place}{{" + "".join(f"--{name}:{both[which]};" for name, both in COLOURS.items()) + "}"

    return f"{block(0)}@media screen and (prefers-color-scheme:dark){{{block(1)}}}"
