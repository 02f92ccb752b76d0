"""Detects a compiled model that PyTorch can only compile in pieces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from stepscope.config.bounds import Range
from stepscope.detectors.base import Detector
from stepscope.schema.finding import Chart, Evidence, Finding, Remedy
from stepscope.schema.keys import STEP_SECONDS

if TYPE_CHECKING:
    from stepscope.schema.window import RankWindow, Window

BREAKS, EVENT = "compile/graph_breaks", "graph_break"
MAX_SHOWN = 3
MAX_LENGTH = 160

READS = Remedy(
    "Move what needs the value of a tensor out of the compiled function.",
    "loss = compiled_model(x)\nif step % 100 == 0:\n    print(loss.item())",
    "PyTorch",
)
PRINTS = Remedy("Print outside of the compiled function.", None)
LEAVES_OUT = Remedy(
    "Leave a function that cannot be compiled out of the compilation, as a whole.",
    "@torch.compiler.disable\ndef report(values):\n    ...",
    "PyTorch",
)

ADVICE = (
    ((".item()", "aten._local_scalar_dense", "data-dependent", "Tensor.item"), READS),
    (("print", "logging"), PRINTS),
)


@dataclass(frozen=True)
class GraphBreaks(Detector):
    """Reads the reasons that PyTorch gives for the ends of compiled graphs."""

    id: ClassVar[str] = "compile.graph_break"
    title: ClassVar[str] = "The model is compiled in pieces"
    sentence: ClassVar[str] = "compiled code contains something that PyTorch has to run without compilation"
    requires: ClassVar[tuple[tuple[str, ...], ...]] = ((BREAKS,),)
    reads: ClassVar[tuple[str, ...]] = (STEP_SECONDS,)
    events: ClassVar[tuple[str, ...]] = (EVENT,)
    min_steps: ClassVar[int] = 0
    in_steady_state: ClassVar[bool] = False
    for_each_rank: ClassVar[bool] = False
    is_optional: ClassVar[bool] = True

    breaks: Annotated[int, Range(1)] = 1
    """Minimum number of places at which a graph ends."""

    def examine(self, rank: RankWindow, window: Window) -> Finding | str:
        """Counts the places that were recorded."""
        causes = {
            (str(event.fields.get("place") or ""), " ".join(str(event.fields.get("reason", "")).split()))
            for event in window.events_of(EVENT, rank.rank)
        }
        if len(causes) < self.breaks:
            return f"Compiled graphs end early at {len(causes)} places."
        return self._finding(rank, sorted(causes))

    def _finding(self, rank: RankWindow, causes: list[tuple[str, str]]) -> Finding:
        places = len(causes)
        where = next((place for place, _ in causes if place), "")
        first, last = int(rank.steps[0]), int(rank.steps[-1])
        text = " ".join(reason for _, reason in causes)
        advised = [remedy for words, remedy in ADVICE if any(word in text for word in words)]
        return Finding(
            id=self.id,
            title=self.title,
            headline=f"The compiled model is cut at {places} place{'s' if places > 1 else ''}"
            f"{f', first at {where}' if where else ''}.",
            detail="Python runs between the pieces, and nothing is fused or reordered across a cut. How much "
            "that costs is not measured.",
            severity="notice",
            confidence=0.9,
            first_step=first,
            last_step=last,
            first_time=float(rank.times[0]),
            last_time=float(rank.times[-1]),
            where=where,
            evidence=tuple(
                Evidence(place or "unknown place", reason[:MAX_LENGTH])
                for place, reason in causes[:MAX_SHOWN]
            ),
            chart=Chart((STEP_SECONDS,), first, last),
            remedies=(*advised, LEAVES_OUT),
            tries=("move `.item()` and `print` out of the compiled model", "torch.compile(fullgraph=True)"),
            how="PyTorch reports each place at which it has to end a graph, with the reason and the line.",
            refs=(
                "https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/compile/programming_model.graph_breaks_index.html",
            ),
        )
