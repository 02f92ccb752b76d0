import { describe, expect, test } from "vitest";
import type { Considered } from "../../src/data";
import { withoutFindings } from "../../src/pages/diagnose/without_findings";

const check = (id: string, result: Considered["result"]) => ({ id, title: id, why_not: "", result });

describe("a run without findings", () => {
  test("is not ticked where no check could run", () => {
    const told = withoutFindings({ failure: null, considered: [check("a", "could not run"), check("b", "skipped")] });
    expect([told.icon, told.title]).toEqual(["unknown", "No check could run"]);
  });

  test("says how many checks ran", () => {
    const told = withoutFindings({ failure: null, considered: [check("a", "passed"), check("b", "could not run")] });
    expect([told.icon, told.text]).toEqual(["check", "1 check ran. The result of each is below."]);
  });
});
