"""An actor that is updated with every second update of its critic, and target networks."""

import copy

import torch

torch.manual_seed(1)
STEPS = 12
actor, critic = torch.nn.Linear(4, 2), torch.nn.Linear(6, 1)
models = [actor, critic]
target = copy.deepcopy(critic)
actor_optimizer = torch.optim.Adam(actor.parameters())
critic_optimizer = torch.optim.Adam(critic.parameters())
losses = []
for number in range(STEPS):
    state = torch.randn(8, 4)
    with torch.no_grad():
        goal = target(torch.cat([state, actor(state)], 1))
    loss = torch.nn.functional.mse_loss(critic(torch.cat([state, torch.randn(8, 2)], 1)), goal)
    critic_optimizer.zero_grad()
    loss.backward()
    critic_optimizer.step()
    losses.append(loss.item())
    if number % 2:
        actor_optimizer.zero_grad()
        (-critic(torch.cat([state, actor(state)], 1)).mean()).backward()
        actor_optimizer.step()
        with torch.no_grad():
            for copied, own in zip(target.parameters(), critic.parameters(), strict=True):
                copied.lerp_(own, 0.05)
