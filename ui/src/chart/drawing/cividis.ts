// The cividis colour scale, from dark blue to yellow: safe for people with colour vision deficiency.

/** Anchors of cividis, evenly spaced; colours between them are interpolated. */
const ANCHORS: [number, number, number][] = [
  [0, 34, 78],
  [18, 53, 112],
  [59, 73, 108],
  [87, 93, 109],
  [112, 113, 115],
  [138, 134, 120],
  [165, 156, 116],
  [195, 179, 105],
  [225, 204, 85],
  [254, 232, 56],
];

/** Red, green and blue of a value between 0 and 1. */
export function cividis(place: number): [number, number, number] {
  const at = Math.min(Math.max(place, 0), 1) * (ANCHORS.length - 1);
  const low = ANCHORS[Math.floor(at)]!;
  const high = ANCHORS[Math.min(Math.floor(at) + 1, ANCHORS.length - 1)]!;
  const part = at - Math.floor(at);
  return [0, 1, 2].map((channel) => Math.round(low[channel]! + (high[channel]! - low[channel]!) * part)) as [
    number,
    number,
    number,
  ];
}
