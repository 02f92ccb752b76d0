import { describe, expect, test } from "vitest";
import type { Check } from "../../src/data";
import { withoutFindings } from "../../src/pages/diagnose/without_findings";

const check = (id: string, result: Check["result"]) => ({ id, title: id, why: "", result });

describe("a run without findings", () => {
  test("is not ticked where no check could run", () => {
    const told = withoutFindings({ failure: null, checks: [check("a", "could not run"), check("b", "skipped")] });
    expect([told.icon, told.title]).toEqual(["unknown", "No check could run"]);
  });

  test("says how many checks ran", () => {
    const told = withoutFindings({ failure: null, checks: [check("a", "passed"), check("b", "could not run")] });
    expect([told.icon, told.text]).toEqual(["check", "1 check ran. The result of each is below."]);
  });
});
