import type { Findings } from "../../data";
import { count } from "../../format";
import type { IconName } from "../../parts/icons";

/** The message where there are no findings: a tick only if any check has run. */
export function withoutFindings(data: Pick<Findings, "checks" | "failure">): {
  icon: IconName;
  title: string;
  text: string;
} {
  const ran = data.checks.filter((check) => check.result === "passed").length;
  if (ran === 0) return { icon: "unknown", title: "No check could run", text: "The reasons are below." };
  return {
    icon: "check",
    title: data.failure ? "No other findings" : "No findings",
    text: `${count(ran)} ${ran === 1 ? "check" : "checks"} ran. The result of each is below.`,
  };
}
