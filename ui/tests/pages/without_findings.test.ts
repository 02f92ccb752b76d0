import { describe, expect, test } from "vitest";
import { withoutFindings } from "../../src/pages/diagnose/without_findings";

const check = (id: string, has_run: boolean) => ({ id, title: id, why_not: "", has_run });

describe("a run without findings", () => {
  test("is not ticked where no check could run", () => {
    const told = withoutFindings({ failure: null, considered: [check("a", false), check("b", false)] });
    expect([told.icon, told.title]).toEqual(["unknown", "No check could run"]);
  });

  test("says how many checks ran", () => {
    const told = withoutFindings({ failure: null, considered: [check("a", true), check("b", false)] });
    expect([told.icon, told.text]).toEqual(["check", "1 check ran. The result of each is below."]);
  });
});
