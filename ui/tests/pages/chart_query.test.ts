import { describe, expect, test } from "vitest";
import { ChartSync } from "../../src/chart/control/sync";
import { linkTo, queryOf, stateOf } from "../../src/pages/run/chart_query";

const HERE = "http://127.0.0.1:8787/run/a/metrics?q=loss";
const usual = new ChartSync().state;
const state = {
  ...usual,
  range: { from: 10, to: 20 },
  follow: false,
  logX: true,
  line: "last" as const,
  clip: true,
  smoothing: { kind: "gaussian" as const, amount: 0.5 },
};
const asked = (link: string, usualAxis: string) => ({ ...usual, ...stateOf(new URL(link).searchParams, usualAxis) });

describe("a link to the current view", () => {
  test("shows the same in browsers with another default axis", () => {
    expect(asked(linkTo(HERE, state), "wall")).toEqual(state);
    expect(asked(linkTo(HERE, usual), "wall")).toEqual(usual);
  });

  test("keeps what the page itself has put into the address", () => {
    expect(new URL(linkTo(HERE, state)).searchParams.get("q")).toBe("loss");
  });

  test("says also that nothing is smoothed", () => {
    expect(new URL(linkTo(HERE, usual)).searchParams.get("smooth")).toBe("0");
  });

  test("leaves nothing of an older state", () => {
    expect(linkTo(`${HERE}&from=1&to=2&log=true`, usual)).toBe(`${HERE}&x=step&smooth=0`);
  });

  test("an address is as short as its own reader needs it", () => {
    const query = Object.entries(queryOf(usual, "step")).filter(([, value]) => value !== "" && value !== false);
    expect(query).toEqual([]);
  });

  test("invalid values are replaced by defaults", () => {
    expect(asked(`${HERE}&x=stepp&from=a&by=magic&line=none`, "epoch")).toEqual(usual);
  });
});
