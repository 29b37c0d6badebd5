"""Lines of Markdown tables."""


def head(names: list[str], num_texts: int) -> list[str]:
    """Return the head of a table: columns of texts, then of numbers."""
    return [line(names), "|" + "---|" * num_texts + "---:|" * (len(names) - num_texts)]


def line(cells: list) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(map(str, cells))} |"
