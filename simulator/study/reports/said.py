"""Remarks of the runs of a study, and how far their backends were checked, as a section of its report."""
from collections.abc import Mapping
from typing import Any

from simulator.study.reports.page import Section, section
from simulator.study.telling.said import line_of

TITLE = "What the runs say"


def said_section(content: Mapping[str, Any]) -> Section:
    """Return the section.

    content : of the study's JSON; older versions have no remarks.
    """
    if "diagnosis" not in content:
        return Section(TITLE, (), (), "A version that did not keep what runs say has made this study; run again, in "
                                      "another directory, it tells.")
    rows = [(f"{each['runs']:,} of {each['of']:,}", each["text"] if each["alike"] else f"for instance: {each['text']}")
            for each in content["diagnosis"]]
    if untold := content.get("untold_runs"):
        rows.append((f"{untold:,} more", "are of a version that did not keep what they say"))
    checked = [line_of(each) for each in content["accuracy"]]
    says = " ".join([*(f"{line[:1].upper()}{line[1:]}." for line in checked), "" if rows else "No run has a warning."])
    return section(TITLE, ("runs", "warning"), rows, says.strip(), "the study's JSON")
