"""Trains an agent with SAC of Stable-Baselines3: three optimizers in every update, and no loader."""

from stable_baselines3 import SAC
from stable_baselines3_ppo import Target
from trial import Trial

WARM_UP = 100


def main() -> None:
    trial = Trial(steps=150)
    model = SAC(
        "MlpPolicy",
        Target(),
        learning_starts=WARM_UP,
        batch_size=128,
        policy_kwargs={"net_arch": [256, 256]},
        device="cpu",
        seed=0,
    )
    with trial.loop():
        model.learn(total_timesteps=WARM_UP + trial.steps)
    updates = model._n_updates  # noqa: SLF001 - the count that the library itself logs
    trial.write(updates, model.policy)


if __name__ == "__main__":
    main()
