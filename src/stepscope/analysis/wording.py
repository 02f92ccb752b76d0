"""How numbers become words in findings: 12.3 ms, 18 %, steps 100 to 250."""

from __future__ import annotations

from stepscope import number_format


def seconds(value: float) -> str:
    """A duration in the unit that suits it."""
    if value < 0.9995e-3:
        return f"{value * 1e6:.0f} µs"
    if value < 0.9995:
        return f"{value * 1e3:.3g} ms"
    return f"{value:.3g} s" if value < 99.5 else f"{value / 60:.3g} min"


def percent(share: float) -> str:
    """A share as a percentage: whole ones, or a digit more where there are few of them."""
    return f"{share * 100:.1f} %" if abs(share) < 0.0995 else f"{share * 100:.0f} %"


def number(value: float, digits: int = 4) -> str:
    """Any other number."""
    return number_format.number(value, digits)


def listed(ranks: tuple[int, ...]) -> str:
    """Ranks in a row: 0, 1, 2 and 5 more."""
    shown = ", ".join(str(one) for one in ranks[:6])
    return shown if len(ranks) <= 6 else f"{shown} and {len(ranks) - 6} more"
