"""Tables of GPU prices and of carbon intensity: the built-in ones and the user's own."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.config import document
from stepscope.config.reference import dotted
from stepscope.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stepscope.config.document import Document
    from stepscope.config.reference import Key
    from stepscope.config.sections import Energy

PRICES = Path(__file__).with_name("prices.yaml")
CARBON = Path(__file__).with_name("carbon.yaml")

SLICE = re.compile(r"\bMIG\b", re.IGNORECASE)


@dataclass(frozen=True)
class GpuPrice:
    """The price of a GPU-hour, with its provider, date and source."""

    patterns: tuple[str, ...]
    per_hour: float
    currency: str
    provider: str
    offer: str
    date: str
    source: str


@dataclass(frozen=True)
class CarbonIntensity:
    """How much carbon dioxide a kilowatt-hour emits in a region."""

    region: str
    name: str
    grams_per_kwh: float
    year: int | None
    source: str


@dataclass(frozen=True)
class Tables:
    """All GPU prices, in the order in which they are searched, and all regions."""

    gpus: tuple[GpuPrice, ...]
    regions: Mapping[str, CarbonIntensity]
    """By name in capitals."""
    other_names: Mapping[str, str]

    def price_of(self, gpu: str) -> GpuPrice | None:
        """Returns the price of a GPU by its name; None if no pattern matches it."""
        return next(
            (price for price in self.gpus if any(fits(pattern, gpu) for pattern in price.patterns)), None
        )

    def carbon_of(self, region: str) -> CarbonIntensity | None:
        """Returns the carbon intensity of a region; None if the region is not in the table."""
        name = region.upper()
        return self.regions.get(self.other_names.get(name, name))


def fits(pattern: str, gpu: str) -> bool:
    """Returns whether a pattern matches a GPU: the whole name if it contains * ? or [, otherwise whole words.

    Case is ignored. A slice of a GPU costs less than the whole, so only a pattern with the word MIG matches
    it.
    """
    if SLICE.search(gpu) and not SLICE.search(pattern):
        return False
    lowered, name = pattern.lower(), gpu.lower()
    if any(sign in pattern for sign in "*?["):
        return fnmatchcase(name, lowered)
    return re.search(rf"(?<![a-z0-9]){re.escape(lowered)}(?![a-z0-9])", name) is not None


def load_tables(settings: Energy) -> Tables:
    """Returns the tables: prices from the settings first, then the user's file, then built-in ones."""
    files = [] if settings.prices_file is None else [Path(settings.prices_file)]
    # The carbon table takes a while to read, so it is read only where a region needs it.
    files += [PRICES] if settings.region is None else [PRICES, CARBON]
    gpus = [
        GpuPrice((pattern,), per_hour, settings.currency, "settings", "", "", "energy.gpu_price_per_hour")
        for pattern, per_hour in settings.gpu_price_per_hour.items()
    ]
    regions: dict[str, CarbonIntensity] = {}
    other_names: dict[str, str] = {}
    for path in files:
        table = _Table(document.read(path, str(path)))
        gpus.extend(table.gpus())
        for carbon, others in table.regions():
            name = carbon.region.upper()
            regions.setdefault(name, carbon)
            for other in others:
                other_names.setdefault(other.upper(), name)
    return Tables(tuple(gpus), regions, other_names)


class _Table:
    """One file of prices, of regions, or of both; its errors name the line."""

    def __init__(self, parsed: Document) -> None:
        self._document = parsed
        if parsed.problems:
            raise ConfigError("\n".join(map(str, parsed.problems)))
        for name in parsed.data:
            if name not in ("gpus", "carbon", "sources"):
                raise self._error((name,), "is not a part of such a file; it has gpus, carbon and sources")

    def gpus(self) -> Iterator[GpuPrice]:
        """Yields the prices in their order."""
        entries = self._document.data.get("gpus") or []
        if not isinstance(entries, list):
            raise self._error(("gpus",), "must be a list")
        for number, entry in enumerate(entries):
            key: Key = ("gpus", number)
            fields = self._section(key, entry)
            patterns = fields.get("patterns")
            if not isinstance(patterns, list) or not patterns:
                raise self._error((*key, "patterns"), "must be a list of patterns of GPU names")
            yield GpuPrice(
                tuple(map(str, patterns)),
                self._number((*key, "price_per_hour"), fields),
                str(fields.get("currency", "USD")),
                str(fields.get("provider", self._document.name)),
                str(fields.get("offer", "")),
                str(fields.get("date", "")),
                self._source(fields),
            )

    def regions(self) -> Iterator[tuple[CarbonIntensity, list[str]]]:
        """Yields the regions, and the other names of each."""
        for region, entry in self._section(("carbon",), self._document.data.get("carbon") or {}).items():
            key: Key = ("carbon", region)
            fields = self._section(key, entry)
            year = fields.get("year")
            if year is not None and type(year) is not int:
                raise self._error((*key, "year"), f"is {year!r}; it must be a year")
            others = fields.get("also") or []
            if not isinstance(others, list):
                raise self._error((*key, "also"), "must be a list of names")
            name, grams = str(fields.get("name", region)), self._number((*key, "grams_per_kwh"), fields)
            yield (
                CarbonIntensity(region, name, grams, year, self._source(fields)),
                [str(other) for other in others],
            )

    def _section(self, key: Key, entry: Any) -> dict[str, Any]:
        if not isinstance(entry, dict):
            raise self._error(key, "must be a section")
        return entry

    def _number(self, key: Key, fields: Mapping[str, Any]) -> float:
        value: Any = fields.get(key[-1])
        if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
            problem = "is missing" if value is None else f"is {value!r}"
            raise self._error(key, f"{problem}; it must be a number, at least 0")
        return float(value)

    def _source(self, fields: Mapping[str, Any]) -> str:
        """Returns the source of a figure; a name from the `sources` section is replaced by its text."""
        source = str(fields.get("source", self._document.name))
        return str(self._section(("sources",), self._document.data.get("sources") or {}).get(source, source))

    def _error(self, key: Key, what: str) -> ConfigError:
        return ConfigError(f"{self._document.origin_of(key)}: {dotted(key)} {what}.")
