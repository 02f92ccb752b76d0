// Round places for the ticks of small charts that lay out their own axis.

/** At most `most` round numbers from low to high. */
export function roundTicks(low: number, high: number, most = 5): number[] {
  if (!(high > low)) return [low];
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const distance = [1, 2, 5, 10].map((digit) => digit * power).find((step) => step >= rough * 0.999)!;
  const ticks: number[] = [];
  for (let at = Math.ceil(low / distance - 1e-9); at * distance <= high + distance * 1e-9; at += 1)
    ticks.push(Number((at * distance).toPrecision(12)));
  return ticks;
}
