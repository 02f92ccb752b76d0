"""A generator and a discriminator with an optimizer each; the discriminator has two backward passes."""

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
STEPS = 10
generator = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh())
discriminator = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3)
discriminator_optimizer = torch.optim.Adam(discriminator.parameters(), lr=1e-3)
binary = torch.nn.BCEWithLogitsLoss()
models = [generator, discriminator]
losses = []
for (real,) in DataLoader(TensorDataset(torch.randn(40, 8)), batch_size=4):
    fake = generator(torch.randn(4, 4))
    discriminator.zero_grad()
    on_real = binary(discriminator(real), torch.ones(4, 1))
    on_real.backward()
    on_fake = binary(discriminator(fake.detach()), torch.zeros(4, 1))
    on_fake.backward()
    discriminator_optimizer.step()
    losses.append((on_real.item() + on_fake.item()) / 2)
    generator.zero_grad()
    binary(discriminator(fake), torch.ones(4, 1)).backward()
    generator_optimizer.step()
