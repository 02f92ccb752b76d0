"""Trains an agent with PPO of Stable-Baselines3 in an environment of its own."""

import gymnasium
import numpy as np
from stable_baselines3 import PPO
from trial import Trial

UPDATES_PER_ROLLOUT = 16
"""Four epochs over 256 samples in batches of 64."""


class Target(gymnasium.Env):
    """A point that is rewarded for being near a target."""

    observation_space = gymnasium.spaces.Box(-5.0, 5.0, (8,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.steps = 0
        self.state = self.np_random.uniform(-2, 2, 8).astype(np.float32)
        return self.state, {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps += 1
        self.state = self.state.copy()
        self.state[:4] = np.clip(self.state[:4] + 0.2 * action, -5, 5)
        distance = float(np.abs(self.state[:4] - self.state[4:]).sum())
        return self.state, -distance, False, self.steps >= 50, {}


def main() -> None:
    trial = Trial(steps=160)
    model = PPO(
        "MlpPolicy",
        Target(),
        n_steps=256,
        batch_size=64,
        n_epochs=4,
        policy_kwargs={"net_arch": [512, 512]},
        device="cpu",
        seed=0,
    )
    with trial.loop():
        model.learn(total_timesteps=256 * (trial.steps // UPDATES_PER_ROLLOUT))
    epochs = model._n_updates  # noqa: SLF001 - the count that the library itself logs
    trial.write(epochs * 4, model.policy)


if __name__ == "__main__":
    main()
