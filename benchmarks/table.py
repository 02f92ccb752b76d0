"""Draws the figures as an aligned table, for a terminal or as Markdown."""

from collections.abc import Callable, Mapping, Sequence

from benchmarks.catalogue import SUBJECT
from benchmarks.summary import READ_REFERENCE_POINTS, Figures

Draw = Callable[[Figures, Figures], str]
ABSENT = "-"


def _number(value: float | None) -> str:
    if value is None:
        return ABSENT
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _figure(name: str) -> Draw:
    return lambda own, _: _number(getattr(own, name))


def _ratio(name: str) -> Draw:
    def draw(own: Figures, subject: Figures) -> str:
        mine, reference = getattr(own, name), getattr(subject, name)
        return f"{mine / reference:,.1f}" if mine is not None and reference else ABSENT

    return draw


def _slowdown(own: Figures, _: Figures) -> str:
    return ABSENT if own.loop_slowdown is None else f"{own.loop_slowdown:.3f}"


def _read(own: Figures, _: Figures) -> str:
    extrapolated = own.read_points is not None and own.read_points < READ_REFERENCE_POINTS
    return ("~" if extrapolated else "") + _number(own.read_million_s)


def _lost(own: Figures, _: Figures) -> str:
    kinds = (own.lost_trainer, own.lost_group, own.lost_tree)
    return "/".join(ABSENT if lost is None else f"{lost:,}" for lost in kinds)


COLUMNS: dict[str, Draw] = {
    "call p50 µs": _figure("call_p50_us"),
    "×": _ratio("call_p50_us"),
    "p99 µs": _figure("call_p99_us"),
    "max µs": _figure("call_max_us"),
    "loop ×": _slowdown,
    "points/s": _figure("points_per_s"),
    "CPU s/M": _figure("cpu_s_per_million"),
    "CPU ×": _ratio("cpu_s_per_million"),
    "CPU s/run": _figure("cpu_s_per_run"),
    "B/point": _figure("bytes_per_point"),
    "RSS MB": _figure("rss_mb"),
    "growth MB": _figure("rss_growth_mb"),
    "read 1M s": _read,
    "read back": lambda own, _: own.read_exact or ABSENT,
    "lost": _lost,
    "import ms": _figure("import_ms"),
}


README_COLUMNS = (
    "call p50 µs",
    "p99 µs",
    "loop ×",
    "points/s",
    "CPU s/M",
    "B/point",
    "RSS MB",
    "read 1M s",
    "read back",
    "lost",
    "import ms",
)
"""What a page has room for; a terminal shows all."""


def rows(figures: Mapping[str, Figures], failures: Mapping[str, str]) -> list[list[str]]:
    """Header, then one row per peer; a peer without figures gets its reason in the notes."""
    subject = figures.get(SUBJECT, Figures())
    table = [["peer", *COLUMNS]]
    for name in dict.fromkeys([*figures, *failures]):
        own = figures.get(name, Figures())
        table.append([name, *(draw(own, subject) for draw in COLUMNS.values())])
    return table


def terminal(table: Sequence[Sequence[str]]) -> str:
    """Align names left and figures right."""
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    )


def for_readme(table: Sequence[Sequence[str]]) -> list[list[str]]:
    """Leave out the columns a page has no room for."""
    kept = [0, *(table[0].index(name) for name in README_COLUMNS)]
    return [[row[column] for column in kept] for row in table]


def markdown(table: Sequence[Sequence[str]]) -> str:
    """Write a table as Markdown."""
    head, *body = table
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *body])
