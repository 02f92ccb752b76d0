"""Operations counted on a GPU agree with formulas worked out by hand: its fused kernels are others."""

from __future__ import annotations

import pytest

from stepscope.profiling.model.model import ModelProfiler

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

nn = torch.nn
LENGTH, WIDTH, HIDDEN, HEADS = 8, 64, 128, 4
PROJECTIONS, ATTENTION = 2 * LENGTH * 4 * WIDTH * WIDTH, 2 * 2 * LENGTH * LENGTH * WIDTH
LAYER = PROJECTIONS + ATTENTION + 2 * LENGTH * 2 * WIDTH * HIDDEN


def sequence() -> object:
    return torch.zeros(1, LENGTH, WIDTH, device="cuda")


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_an_encoder_layer_counts_on_its_fast_path(kind: object) -> None:
    model = nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, batch_first=True).cuda().to(kind)
    assert ModelProfiler(model, sequence().to(kind)).flops().per_sample == LAYER


class Attends(nn.Module):
    """One projection and causal attention over it."""

    def __init__(self) -> None:
        super().__init__()
        self.projection = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        split = self.projection(x).view(len(x), LENGTH, HEADS, WIDTH // HEADS).transpose(1, 2)
        return nn.functional.scaled_dot_product_attention(split, split, split, is_causal=True)


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_attention_counts_whichever_kernel_does_it(kind: object) -> None:
    counted = ModelProfiler(Attends().cuda().to(kind), sequence().to(kind)).flops(backward=True)
    projection = 2 * LENGTH * WIDTH * WIDTH
    assert counted.per_sample == projection + ATTENTION
    assert counted.backward_per_sample == projection + ATTENTION * 5 // 2


@pytest.mark.parametrize(("layer", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("training", [True, False])
def test_a_recurrent_layer_counts_forward_and_backward(layer: str, gates: int, *, training: bool) -> None:
    model = getattr(nn, layer)(WIDTH, 32, 2, batch_first=True, bidirectional=True).cuda().train(training)
    counted = ModelProfiler(model, sequence()).flops(backward=True)
    expected = 2 * 2 * LENGTH * gates * 32 * ((WIDTH + 32) + (2 * 32 + 32))
    assert (counted.per_sample, counted.backward_per_sample) == (expected, 2 * expected)
    assert model.training is training


def test_convolutions_in_groups_count_forward_and_backward() -> None:
    for model, size, expected in (
        (nn.Conv2d(4, 6, 3, groups=2), 8, 2 * 36 * 6 * 2 * 9),
        (nn.Conv2d(4, 4, 3, groups=4), 8, 2 * 36 * 4 * 9),
        (nn.ConvTranspose2d(4, 6, 3, groups=2), 5, 2 * 25 * 4 * 3 * 9),
    ):
        counted = ModelProfiler(model.cuda(), torch.zeros(1, 4, size, size)).flops(backward=True)
        assert (counted.per_sample, counted.backward_per_sample) == (expected, expected)
