"""A GAN without a loader, whose generator steps first."""

import torch

torch.manual_seed(1)
STEPS = 10


class Generator(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 8)

    def forward(self, x):
        return self.layer(x)


generator, discriminator = Generator(), torch.nn.Linear(8, 1)
optimizers = [torch.optim.Adam(generator.parameters()), torch.optim.Adam(discriminator.parameters())]
models = [generator, discriminator]
losses = []
for _ in range(STEPS):
    fake = generator(torch.randn(4, 4))
    loss = -discriminator(fake).mean()
    optimizers[0].zero_grad()
    loss.backward()
    optimizers[0].step()
    losses.append(loss.item())
    critic = discriminator(fake.detach()).mean() - discriminator(torch.randn(4, 8)).mean()
    optimizers[1].zero_grad()
    critic.backward()
    optimizers[1].step()
