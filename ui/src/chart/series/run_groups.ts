// Draws the runs of a group as one line: their mean, with a band of their spread.

import { acrossRuns, type Spread } from "../../data/grouping";
import type { Line } from "./lines";
import { dashOf } from "../drawing/theme";

export interface RunGroup {
  label: string;
  colour: string;
  /** By their ids. */
  runs: string[];
}

/** Groups of runs, and which spread their band shows. */
export interface Grouped {
  groups: RunGroup[];
  spread: Spread;
}

/** One line for each key and group, without superseded parts. */
export function groupLines(lines: readonly Line[], { groups, spread }: Grouped): Line[] {
  const keys = [...new Set(lines.map((line) => line.key))];
  return keys.flatMap((key) =>
    groups.flatMap((group, at) => {
      const members = lines.filter(
        (line) => line.key === key && !line.superseded && !line.plain && group.runs.includes(line.run),
      );
      if (members.length === 0) return [];
      const { width, ...columns } = acrossRuns(members, spread);
      return [
        {
          ...members[0]!,
          ...columns,
          value: columns.mean,
          width,
          group: JSON.stringify([group.label, key]),
          label: keys.length > 1 ? `${group.label} · ${key}` : group.label,
          colour: group.colour,
          dash: dashOf(at),
          exact: false,
          whole: columns.x.length,
        },
      ];
    }),
  );
}
