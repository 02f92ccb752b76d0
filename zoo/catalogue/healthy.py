"""Healthy runs, several of which look like a fault: nothing may be reported."""

from zoo.case import TORCHRUN, Case

CASES = (
    Case("healthy_mlp"),
    Case("healthy_convolutions"),
    Case("healthy_transformer"),
    Case("healthy_recurrent"),
    Case("healthy_autoencoder"),
    Case("healthy_accumulation"),
    Case("healthy_warm_up_and_cosine"),
    Case("healthy_noisy_loss"),
    Case("healthy_gan"),
    Case("healthy_evaluation_and_checkpoints"),
    Case("healthy_compiled"),
    Case("healthy_sparse_gradients"),
    Case("healthy_much_memory"),
    Case("healthy_strong_dropout"),
    Case("healthy_frozen_backbone"),
    Case("healthy_curriculum"),
    Case("healthy_two_ranks", launcher=TORCHRUN),
    Case("long_mlp", script="healthy_mlp", arguments=("--steps", "20000"), is_long=True),
    Case("long_transformer", script="healthy_transformer", arguments=("--steps", "4000"), is_long=True),
    Case(
        "long_evaluation_and_checkpoints",
        script="healthy_evaluation_and_checkpoints",
        arguments=("--steps", "20000"),
        is_long=True,
    ),
)
