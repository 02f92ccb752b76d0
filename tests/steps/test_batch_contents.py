"""Samples and tokens are counted in batches of any kind, and nothing is guessed wrongly."""

from __future__ import annotations

import weakref
from collections import UserDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from stepscope.steps.evidence.batch_contents import (
    PADDING,
    BatchSize,
    BatchTensor,
    CurrentBatch,
    count_samples,
    describe_batch,
    padding_share,
)

IMAGES, LABELS = torch.zeros(32, 3, 8, 8), torch.zeros(32, dtype=torch.long)
IDS = torch.zeros(8, 128, dtype=torch.long)
Pair = namedtuple("Pair", ["inputs", "labels"])


@dataclass
class Loaded:
    images: Any
    labels: Any


class Graph:
    def __init__(self) -> None:
        self.name, self.x = "graph", torch.zeros(50, 16)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (IMAGES, (32, None)),
        ((IMAGES, LABELS), (32, None)),
        ([IMAGES, LABELS], (32, None)),
        (Pair(IMAGES, LABELS), (32, None)),
        ({"image": IMAGES, "label": LABELS}, (32, None)),
        ({"meta": "fold 1", "image": IMAGES}, (32, None)),
        ({"input_ids": IDS, "attention_mask": IDS}, (8, 1024)),
        ({"input_ids": torch.zeros(700, dtype=torch.long)}, (1, 700)),
        (UserDict(input_ids=IDS), (8, 1024)),
        ((IDS, IDS), (8, 1024)),
        ((IDS.to(torch.int32), IDS), (8, 1024)),
        ((torch.zeros(8, 20), torch.zeros(8, 20)), (8, None)),
        ((torch.zeros(8, 20, dtype=torch.long), LABELS[:8]), (8, None)),
        (((IMAGES, IMAGES), LABELS), (32, None)),
        (({"input_ids": IDS}, LABELS), (8, 1024)),
        (([IMAGES[0]] * 4, [{"boxes": LABELS}] * 4), (4, None)),
        ({"views": [IMAGES, IMAGES]}, (32, None)),
        (Loaded(IMAGES, LABELS), (32, None)),
        (Graph(), (50, None)),
        ((np.zeros((16, 4)), np.zeros(16)), (16, None)),
        (np.zeros((4, 9), np.int64), (4, None)),
        (torch.tensor(3.0), (None, None)),
        (([torch.tensor(1.0), torch.tensor(2.0)]), (2, None)),
        ([], (None, None)),
        ({}, (None, None)),
        (None, (None, None)),
        ("text", (None, None)),
        (7, (None, None)),
        (["a", "b"], (None, None)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_batch_is_counted(batch: Any, expected: tuple[int | None, int | None]) -> None:
    assert count_samples(batch) == expected


def test_tensors_are_described_at_any_depth() -> None:
    assert describe_batch({"image": IMAGES, "more": [LABELS, "text"]}) == [
        BatchTensor("image", (32, 3, 8, 8), "float32", "cpu"),
        BatchTensor("more.0", (32,), "int64", "cpu"),
    ]


def test_a_description_is_bounded_in_width_and_depth() -> None:
    nested: Any = IMAGES
    for _ in range(10):
        nested = [nested]
    assert describe_batch(nested) == []
    assert len(describe_batch([LABELS] * 5000)) <= 16


def test_a_batch_that_holds_itself_comes_to_an_end() -> None:
    batch: dict[str, Any] = {"x": LABELS}
    batch["self"] = batch
    assert len(describe_batch(batch)) <= 16
    assert count_samples(batch) == (32, None)
    endless: list[Any] = []
    endless.append(endless)
    assert count_samples(endless) == (None, None)


def test_the_batch_in_hand_is_described_and_then_let_go() -> None:
    hand = CurrentBatch()
    batch = torch.zeros(4, 4)
    hand.held = batch
    assert hand.described()[0].shape == (4, 4)
    hand.held = None
    assert hand.described() == []
    kept = weakref.ref(batch)
    del batch
    assert kept() is None


def test_of_a_batch_left_in_the_middle_only_the_description_stays() -> None:
    hand = CurrentBatch()
    batch = torch.zeros(4, 4)
    hand.held = batch
    hand.leave()
    kept = weakref.ref(batch)
    del batch
    assert kept() is None
    assert hand.described() == [BatchTensor("", (4, 4), "float32", "cpu")]


def padded(lengths, length=64, value=0) -> torch.Tensor:
    """Rows of tokens that end with padding."""
    ids = torch.randint(1, 100, (len(lengths), length), generator=torch.Generator().manual_seed(0))
    for row, used in zip(ids, lengths, strict=True):
        row[used:] = value
    return ids


TEXTS = padded([16, 32, 48, 64])
SHARE = (48 + 32 + 16) / 256


@pytest.mark.parametrize(
    "batch",
    [
        {"input_ids": TEXTS, "attention_mask": (TEXTS != 0).long()},
        {"input_ids": TEXTS, "attention_mask": TEXTS != 0},
        {"input_ids": TEXTS.flip(1), "attention_mask": (TEXTS.flip(1) != 0).float()},
        UserDict(input_ids=TEXTS),
        {"input_ids": TEXTS, "labels": TEXTS},
        (TEXTS, torch.zeros(4)),
        ({"input_ids": TEXTS}, torch.zeros(4)),
        TEXTS,
        TEXTS.numpy(),
        padded([16, 32, 48, 64], value=50256),
    ],
    ids=[
        "mask of numbers",
        "mask of flags",
        "padding on the left",
        "mapping",
        "labels",
        "pair",
        "pair with mapping",
        "tensor",
        "array",
        "other padding",
    ],
)
def test_padding_is_counted_in_masks_and_at_the_ends_of_rows(batch: Any) -> None:
    assert padding_share(batch) == pytest.approx(SHARE)


def test_a_mask_without_zeros_says_that_there_is_no_padding() -> None:
    assert padding_share({"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}) == 0


@pytest.mark.parametrize(
    "batch",
    [
        padded([64] * 8),
        (padded([64] * 8) < 10).long(),
        padded([16, 16, 16]),
        padded([4, 8], length=12),
        torch.zeros(8, 64, dtype=torch.long),
        torch.zeros(8, 64),
        IMAGES,
        (IMAGES, LABELS),
        {"input_ids": TEXTS, "attention_mask": torch.zeros(4, 1, 1, 64)},
        {"input_ids": TEXTS, "attention_mask": torch.where(TEXTS == 0, -1e9, 0.0)},
        {"input_ids": TEXTS, "attention_mask": (TEXTS != 0).bfloat16()},
        {"input_ids": TEXTS.to("meta"), "attention_mask": TEXTS.to("meta")},
        {"input_ids": None, "attention_mask": None},
        padded([100, 900], length=200_000),
        {},
        [],
        None,
        "text",
        7,
    ],
    ids=lambda batch: type(batch).__name__,
)
def test_padding_is_not_guessed(batch: Any) -> None:
    assert padding_share(batch) is None


def test_the_padding_of_a_batch_is_not_multiplied_by_its_micro_batches() -> None:
    batch = CurrentBatch()
    batch.held, batch.micro_steps = (TEXTS, TEXTS), 4
    values = BatchSize(batch).read(1)
    assert values[PADDING] == pytest.approx(SHARE)
    assert values["batch/tokens"] == 4 * 256


class Table:
    """Has the shape of a matrix, and nothing else of one, as the tables of some libraries."""

    shape = (4, 20)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


@pytest.mark.parametrize(
    "inputs",
    [Table(), np.array([[{}] * 20] * 4), np.full((4, 20), "text", object)],
    ids=["table", "mappings", "texts"],
)
def test_padding_is_not_counted_in_other_tables(inputs: Any) -> None:
    assert padding_share(inputs) is None
    assert padding_share([inputs, 0]) is None
    assert padding_share({"attention_mask": inputs}) is None
