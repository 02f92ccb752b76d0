"""Writes the lines that set a data loader up as planned, for each framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepscope.schema.finding import Remedy

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from stepscope.analysis.loader_plan import LoaderPlan

PREFETCH = 4

CHEAPER = Remedy(
    "Do less for each sample: decode once and keep that, work on whole batches where that is possible."
)

FEWER = Remedy(
    "Have fewer workers than processors: beyond that they take time from each other and the training."
)


def remedies_for(
    plan: LoaderPlan, loader: Mapping[str, Any] | None, libraries: Collection[str], *, has_gpu: bool
) -> tuple[Remedy, ...]:
    """The loader's line for each framework, that of the one in use first; then what else helps."""
    if plan.proposed is None:
        return (CHEAPER,) if plan.fewer is None else (FEWER, CHEAPER)
    many = f"{plan.proposed} worker{'s' if plan.proposed > 1 else ''}"
    text = f"Give the loader {many}, and let them live from one epoch to the next."
    batch = (loader or {}).get("batch_size") or 64
    by_framework = {
        "torch": Remedy(text, _line("loader = ", plan.proposed, batch, pins=has_gpu), "PyTorch"),
        "lightning": Remedy(
            text,
            "def train_dataloader(self):\n" + _line("    return ", plan.proposed, batch, pins=has_gpu),
            "Lightning",
        ),
        "transformers": Remedy(
            text,
            f"arguments = TrainingArguments(..., dataloader_num_workers={plan.proposed},\n"
            f"    dataloader_persistent_workers=True, dataloader_prefetch_factor={PREFETCH})",
            "Transformers",
        ),
    }
    used = [name for name in ("transformers", "lightning") if name in libraries]
    order = [*used, *(name for name in by_framework if name not in used)]
    return (*(by_framework[name] for name in order), CHEAPER)


def tries_for(plan: LoaderPlan, loader: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The same in a few words."""
    if plan.proposed is None:
        fewer = () if plan.fewer is None else (f"num_workers={plan.fewer}",)
        return (*fewer, "cheaper transforms", "cache decoded samples")
    lives = () if loader is not None and loader.get("persistent_workers") else ("persistent_workers=True",)
    return (f"num_workers={plan.proposed}", *lives, f"prefetch_factor={PREFETCH}")


def cause_of(plan: LoaderPlan) -> str:
    """Why batches come late, in a sentence or two."""
    if plan.workers is None:
        return "Batches are made while the step waits, or slower than steps are taken."
    if plan.is_limited and plan.is_waiting:
        return (
            f"The {plan.workers} workers of the loader mostly wait, for a disk or a network: read larger "
            "pieces, or keep a copy nearby."
        )
    if plan.is_limited:
        return (
            f"The loader has {plan.workers} workers and the rank {plan.cores} processors: more workers will "
            "not help. Each batch must cost less, or the machine must be larger."
        )
    if plan.workers == 0:
        return "The loader has no workers: the training thread makes each batch itself, and the model waits."
    return f"The {plan.workers} workers of the loader do not keep up: each batch is waited for."


def _line(begin: str, workers: int, batch: int, *, pins: bool) -> str:
    margin = " " * (len(begin) + len("DataLoader("))
    pin = ", pin_memory=True" if pins else ""
    return (
        f"{begin}DataLoader(dataset, batch_size={batch}, num_workers={workers}{pin},\n"
        f"{margin}persistent_workers=True, prefetch_factor={PREFETCH})"
    )
