"""Nothing is wrong: a generator and a discriminator, each with an optimizer."""

import torch
from setting import steps
from torch.nn.functional import binary_cross_entropy_with_logits as entropy

import stepscope

generator = torch.nn.Sequential(torch.nn.Linear(16, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.99))
of_model = torch.optim.Adam(model.parameters(), lr=2e-4, betas=(0.5, 0.99))
with stepscope.TrainingMonitor(run="case") as monitor:
    monitor.watch(torch.nn.ModuleList([generator, model]), [of_generator, of_model])
    for real in monitor.batches(torch.randn(64, 64) * 0.5 + 1 for _ in range(steps(400))):
        fake = generator(torch.randn(64, 16))
        loss = entropy(model(real), torch.ones(64, 1)) + entropy(model(fake.detach()), torch.zeros(64, 1))
        of_model.zero_grad()
        loss.backward()
        of_model.step()
        generator_loss = entropy(model(fake), torch.ones(64, 1))
        of_generator.zero_grad()
        generator_loss.backward()
        of_generator.step()
        monitor.log({"generator_loss": generator_loss})
        monitor.log_training_step(loss=loss)
