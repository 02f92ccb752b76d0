"""Writes the code of remedies for the framework in use: clipping gradients, and making a data loader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepscope.schema.finding import Remedy

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from stepscope.analysis.loader_plan import LoaderPlan

FRAMEWORKS = {"transformers": "Transformers", "lightning": "Lightning", "torch": "PyTorch"}
"""Libraries that have code of their own, and their names."""

CLIPPING = {
    "torch": "loss.backward()\n"
    "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)\n"
    "optimizer.step()",
    "lightning": "trainer = Trainer(gradient_clip_val=1.0)",
    "transformers": "arguments = TrainingArguments(..., max_grad_norm=1.0)",
}
"""How gradients are clipped, by library."""

RARER = {
    "torch": "if step % 100 == 0:\n    print(step, loss.item())",
    "lightning": "trainer = Trainer(..., log_every_n_steps=100)",
    "transformers": "arguments = TrainingArguments(..., logging_steps=100)",
}
"""How values are read and logged less often, by library."""

PREFETCH = 4

CHEAPER = Remedy(
    "Make each sample cheaper: decode once and cache the result, and transform whole batches where possible."
)

FEWER = Remedy(
    "Use fewer workers than processors: more of them compete with each other and with the training."
)


def remedies_in(libraries: Collection[str], text: str, codes: Mapping[str, str]) -> tuple[Remedy, ...]:
    """Returns a remedy with code for each framework that a run has loaded; `codes` are by library.

    Code for PyTorch is always there: a loop of one's own may use a model of a framework.
    """
    loaded = [name for name in FRAMEWORKS if name in codes and (name in libraries or name == "torch")]
    texts = [text, *("The same in a loop of your own." for _ in loaded[1:])]
    return tuple(
        Remedy(sentence, codes[name], FRAMEWORKS[name]) for sentence, name in zip(texts, loaded, strict=True)
    )


def loader_remedies(
    plan: LoaderPlan, loader: Mapping[str, Any] | None, libraries: Collection[str], *, has_gpu: bool
) -> tuple[Remedy, ...]:
    """Returns the settings of the loader, then other remedies."""
    if plan.proposed is None:
        return (CHEAPER,) if plan.fewer is None else (FEWER, CHEAPER)
    workers, them = ("workers", "them") if plan.proposed > 1 else ("worker", "it")
    text = f"Use {plan.proposed} {workers} and keep {them} alive between epochs."
    batch = (loader or {}).get("batch_size") or 64
    codes = {
        "torch": _line("loader = ", plan.proposed, batch, pins=has_gpu),
        "lightning": "def train_dataloader(self):\n"
        + _line("    return ", plan.proposed, batch, pins=has_gpu),
        "transformers": f"arguments = TrainingArguments(..., dataloader_num_workers={plan.proposed},\n"
        f"    dataloader_persistent_workers=True, dataloader_prefetch_factor={PREFETCH})",
    }
    return (*remedies_in(libraries, text, codes), CHEAPER)


def loader_tries(plan: LoaderPlan, loader: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Returns the same remedies as short hints."""
    if plan.proposed is None:
        fewer = () if plan.fewer is None else (f"num_workers={plan.fewer}",)
        return (*fewer, "cheaper transforms", "cache decoded samples")
    has_persistent = loader is not None and loader.get("persistent_workers")
    persistent = () if has_persistent else ("persistent_workers=True",)
    return (f"num_workers={plan.proposed}", *persistent, f"prefetch_factor={PREFETCH}")


def cause_of(plan: LoaderPlan) -> str:
    """Says why batches come late."""
    if plan.workers is None:
        return "Batches are made while the step waits, or more slowly than the model uses them."
    if plan.is_limited and plan.is_waiting:
        return (
            f"The {plan.workers} loader workers mostly wait for a disk or a network: read larger blocks, or "
            "keep a local copy of the data."
        )
    if plan.is_limited:
        return (
            f"The loader has {plan.workers} workers and the rank has {plan.cores} processors: more workers "
            "will not help. Make each batch cheaper, or use a machine with more processors."
        )
    if plan.workers == 0:
        return "The loader has no workers: the training thread makes each batch itself while the model waits."
    workers = "1 loader worker is" if plan.workers == 1 else f"{plan.workers} loader workers are"
    return f"{workers} too slow: the step waits for each batch."


def _line(begin: str, workers: int, batch: int, *, pins: bool) -> str:
    margin = " " * (len(begin) + len("DataLoader("))
    pin = ", pin_memory=True" if pins else ""
    return (
        f"{begin}DataLoader(dataset, batch_size={batch}, num_workers={workers}{pin},\n"
        f"{margin}persistent_workers=True, prefetch_factor={PREFETCH})"
    )
