// What the words on these pages mean.

export const GLOSSARY: { word: string; means: string }[] = [
  {
    word: "Step",
    means: "One update by the optimizer. With gradient accumulation several batches make one step.",
  },
  {
    word: "Phase",
    means:
      "A part of a step: waiting for data, transfer to the GPU, forward, backward, optimizer, " +
      "checkpoint, evaluation, other. The parts add up to the whole step.",
  },
  {
    word: "Data wait",
    means:
      "Time in which the loop stood still because the next batch was not there. Measured around the " +
      "loader. On a GPU, what counts is exposed wait: time in which the GPU itself had nothing to " +
      "do.",
  },
  {
    word: "GPU utilization",
    means:
      "Share of time in which at least one kernel ran, as the driver counts it. It says nothing of " +
      "how much of the GPU that kernel used: one small kernel after another reads as 100 %.",
  },
  {
    word: "SM active",
    means:
      "Share of the compute units that had work: what GPU utilization is often taken for. Not every " +
      "GPU tells it.",
  },
  {
    word: "Worst",
    means: "The lowest of several GPUs or ranks, with its name. A mean alone hides one that idles.",
  },
  { word: "Throttling", means: "Clocks held down by heat, by the power limit, or by the power supply." },
  {
    word: "Reserved and allocated",
    means:
      "PyTorch keeps GPU memory it once got. Reserved less allocated is memory it holds without " +
      "using it.",
  },
  {
    word: "Lag",
    means:
      "How far the GPU is behind the host at the end of a phase. Near zero in one phase and large " +
      "before it: something in that phase waits for the GPU, such as .item().",
  },
  {
    word: "Rank",
    means: "One process of a distributed training. Ranks wait for each other, so the slowest sets the pace.",
  },
  {
    word: "Segment",
    means: "One start of a run. A resumed run has several; time between them is left out of its duration.",
  },
  { word: "Stalled", means: "The process lives, but nothing was recorded for three times the usual pause." },
  {
    word: "Crashed",
    means: "The process is gone and did not say goodbye. A run is never called crashed for being silent.",
  },
  {
    word: "Verdict",
    means: "The finding that costs most, in one sentence, or that nothing holds the run up.",
  },
  {
    word: "Finding",
    means: "A problem with evidence, an estimate of what mending it brings, and what to change.",
  },
  {
    word: "Smoothing",
    means:
      "An average that leans on the past, for the eye alone. What was logged stays visible beneath, " +
      "and alerts never see it.",
  },
  {
    word: "Band",
    means:
      "From the least to the most of the points behind each pixel. No spike is hidden, however far " +
      "one zooms out.",
  },
];
