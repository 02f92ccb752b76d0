// Round positions of ticks, for charts that draw their own axis.

/** At most `most` round numbers from low to high. */
export function roundTicks(low: number, high: number, most = 5): number[] {
  const rough = (high - low) / most;
  // A range narrower than the precision of its numbers has no positions in between.
  if (!(high > low) || low + rough === low || high - rough === high) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const distance = [1, 2, 5, 10].map((digit) => digit * power).find((step) => step >= rough * 0.999)!;
  const ticks: number[] = [];
  for (let at = Math.ceil(low / distance - 1e-9); at * distance <= high + distance * 1e-9; at += 1)
    ticks.push(Number((at * distance).toPrecision(12)));
  return ticks;
}

/** Powers of ten between two numbers, with 2 and 5 times them if there are few. */
export function logTicks(low: number, high: number): number[] {
  if (!(low > 0) || !(high >= low) || !Number.isFinite(high)) return [];
  const first = Math.floor(Math.log10(low));
  const last = Math.ceil(Math.log10(high));
  const digits = last - first <= 2 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil((last - first) / 8));
  const ticks: number[] = [];
  for (let power = first; power <= last; power += every)
    for (const digit of digits) {
      const at = Number(`${digit}e${power}`);
      if (at >= low && at <= high) ticks.push(at);
    }
  return ticks;
}
