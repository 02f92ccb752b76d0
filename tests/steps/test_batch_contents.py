"""Samples and tokens are counted in batches of any make, and wrong guesses are not made."""

from __future__ import annotations

import weakref
from collections import UserDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from stepscope.steps.evidence.batch_contents import BatchTensor, CurrentBatch, count_samples, describe_batch

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
