"""Reads the figures that NVML returns as numbered fields, many with one call."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.devices.interval import Interval
from stepscope.devices.rates import HostRates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from stepscope.devices.nvidia.nvidia_board import Board

Field = tuple[str, int | None]
"""The end of a field's name, and its scope: the number of an NVLink, or None."""

ALL_LINKS = 2**32 - 1
EACH_LINK = -1
LINK_ERRORS_EVERY_S = 60.0
"""Three fields for each of up to eighteen links are expensive, and a failed link does not recover quickly."""

# The member of NVML's union that holds a value, by the number of the value's type.
VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


@dataclass(frozen=True)
class FieldFigure:
    """A figure that is a sum of fields; of several sums, the first that the board supports."""

    figure: str
    sums: tuple[tuple[Field, ...], ...]
    convert: Callable[[float], Any] = int


def _fields(*names: str, scope: int | None = None) -> tuple[Field, ...]:
    return tuple((name, scope) for name in names)


def _thousandth(number: float) -> float:
    return number / 1000


def _from_kibibytes(number: float) -> float:
    return number * 1024


FAST = (
    # Boards without that sensor return 0.
    FieldFigure("memory_temperature_celsius", (_fields("MEMORY_TEMP"),), lambda celsius: celsius or None),
)

THOROUGH = (
    # On an H200 this one takes 4.4 ms, a thousand times as long as most; a counter can be read less often.
    FieldFigure("energy_joules_total", (_fields("TOTAL_ENERGY_CONSUMPTION"),), _thousandth),
    FieldFigure("ecc_corrected_total", (_fields("ECC_SBE_VOL_TOTAL"),)),
    FieldFigure("ecc_uncorrected_total", (_fields("ECC_DBE_VOL_TOTAL"),)),
    FieldFigure("ecc_corrected_lifetime_total", (_fields("ECC_SBE_AGG_TOTAL"),)),
    FieldFigure("ecc_uncorrected_lifetime_total", (_fields("ECC_DBE_AGG_TOTAL"),)),
    FieldFigure("remapped_rows_total", (_fields("REMAPPED_COR", "REMAPPED_UNC"),)),
    FieldFigure("remap_pending", (_fields("REMAPPED_PENDING"),), bool),
    FieldFigure("remap_failed", (_fields("REMAPPED_FAILURE"),), bool),
    FieldFigure("retired_pages_total", (_fields("RETIRED_SBE", "RETIRED_DBE"),)),
    FieldFigure("retire_pending", (_fields("RETIRED_PENDING"),), bool),
    FieldFigure("pcie_replays_total", (_fields("PCIE_REPLAY_COUNTER"),)),
)

LINK_ERRORS = FieldFigure(
    "nvlink_errors_total",
    (
        _fields("NVLINK_ERROR_DL_REPLAY", "NVLINK_ERROR_DL_RECOVERY", "NVLINK_ERROR_DL_CRC", scope=EACH_LINK),
        # Blackwell has these instead, and boards before Hopper the last ones.
        _fields("NVLINK_COUNT_RCV_ERRORS", "NVLINK_COUNT_LINK_RECOVERY_EVENTS", scope=EACH_LINK),
        _fields(
            "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
            "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
            "NVLINK_REPLAY_ERROR_COUNT_TOTAL",
            "NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
        ),
    ),
)

# The figure is their rate. The PCIe counter (PCIE_COUNT_TX_BYTES) is not used: it has 32 bits and wraps
# several times a second on a busy link.
LINK_COUNTERS = (
    FieldFigure(
        "nvlink_sent_bytes_per_second",
        (_fields("NVLINK_THROUGHPUT_DATA_TX", scope=ALL_LINKS),),
        _from_kibibytes,
    ),
    FieldFigure(
        "nvlink_received_bytes_per_second",
        (_fields("NVLINK_THROUGHPUT_DATA_RX", scope=ALL_LINKS),),
        _from_kibibytes,
    ),
)


class NvidiaFields:
    """The fields of one board."""

    def __init__(self, board: Board, now: Callable[[], float] = time.monotonic) -> None:
        self._board = board
        count = ("NVLINK_LINK_COUNT", None)
        self.links = range(int(self._values([count]).get(count, 0)))
        """The NVLinks of the board."""
        self._rates = HostRates(now)
        self._link_errors_due = Interval(LINK_ERRORS_EVERY_S, now)

    def read(self, *, thorough: bool, known: frozenset[str]) -> dict[str, Any]:
        """Reads the fields with one call; skips counters of figures that are already known."""
        figures_to_read = [*FAST, *THOROUGH] if thorough else [*FAST]
        if thorough and self.links and self._link_errors_due.is_due():
            figures_to_read.append(LINK_ERRORS)
        counters = [entry for entry in self._counters() if entry.figure not in known]
        sums = self._sums([*figures_to_read, *counters])
        figures = {entry.figure: entry.convert(total) for entry, total in sums.items() if total is not None}
        counts = {entry.figure: figures.pop(entry.figure) for entry in counters if entry.figure in figures}
        return figures | self._rates.since_last(counts)

    def available(self) -> frozenset[str]:
        """The figures that have not been refused."""
        errors = (LINK_ERRORS,) if self.links else ()
        figures = FAST + THOROUGH + errors + self._counters()
        return frozenset(figure.figure for figure in figures if self._choose(figure))

    def _counters(self) -> tuple[FieldFigure, ...]:
        return LINK_COUNTERS if self.links else ()

    def _sums(self, figures: Iterable[FieldFigure]) -> dict[FieldFigure, float | None]:
        """The sum of each figure; where one is refused, the next is read at once."""
        chosen = {figure: self._choose(figure) for figure in figures}
        values: dict[Field, float] = {}
        read_fields: set[Field] = set()
        while missing := {
            field: None for fields in chosen.values() for field in fields if field not in read_fields
        }:
            values |= self._values(missing)
            read_fields |= missing.keys()
            chosen = {figure: self._choose(figure) for figure in chosen}
        return {figure: _sum(values, fields) for figure, fields in chosen.items()}

    def _choose(self, figure: FieldFigure) -> tuple[Field, ...]:
        """The available fields of the first sum that has any."""
        for fields in figure.sums:
            available = tuple(field for field in self._expand_links(fields) if not self._board.refuses(field))
            if available:
                return available
        return ()

    def _expand_links(self, fields: Iterable[Field]) -> Iterable[Field]:
        """Replaces a field of each link by one field per link."""
        for name, scope in fields:
            if scope == EACH_LINK:
                yield from ((name, link) for link in self.links)
            else:
                yield name, scope

    def _values(self, fields: Iterable[Field]) -> dict[Field, float]:
        """The values of fields; fields without a value are left out, and remembered if they are refused."""
        known = []
        for field in fields:
            number = getattr(self._board.nvml, f"NVML_FI_DEV_{field[0]}", None)
            if number is None:
                self._board.note(field, self._board.nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
            else:
                known.append((field, number))
        if not known:
            return {}
        # A field without a scope is requested by its number alone.
        requests = tuple(number if scope is None else (number, scope) for (_, scope), number in known)
        call_spec = ("nvmlDeviceGetFieldValues", requests)
        answers = self._board.call(call_spec)
        values = {}
        for (field, _), answer in zip(known, answers or (), strict=False):
            if answer.nvmlReturn == self._board.nvml.NVML_SUCCESS:
                values[field] = getattr(answer.value, VALUE_MEMBERS[answer.valueType])
            else:
                self._board.note(field, answer.nvmlReturn)
        if self._board.refuses(call_spec):
            for field, _ in known:
                self._board.note(field, self._board.nvml.NVML_ERROR_NOT_SUPPORTED)
        return values


def _sum(values: Mapping[Field, float], fields: Iterable[Field]) -> float | None:
    """The sum of fields; None when one of them is missing, since the sum would seem to decrease."""
    terms = [values.get(field) for field in fields]
    return None if not terms or None in terms else sum(value for value in terms if value is not None)
