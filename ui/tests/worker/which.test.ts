import { describe, expect, test } from "vitest";
import { isGone, kindOf } from "../../src/worker/which";

const FILES = new Set(["assets/index-1.js"]);
const at = (path: string, scope = "/", more = {}) =>
  kindOf(
    { url: `http://127.0.0.1:8787${path}`, method: "GET", mode: "navigate", ...more },
    `http://127.0.0.1:8787${scope}`,
    FILES,
  );

describe("the worker", () => {
  test("answers for every address of the page and for its files", () => {
    expect(at("/")).toBe("page");
    expect(at("/run/a%20b/steps?x=epoch")).toBe("page");
    expect(at("/assets/index-1.js", "/", { mode: "cors" })).toBe("file");
  });

  test("never answers for data", () => {
    for (const path of ["/api", "/api/v1/runs", "/api/v1/stream?run=a"]) {
      expect(at(path)).toBeNull();
      expect(at(path, "/", { mode: "cors" })).toBeNull();
    }
  });

  test("leaves the exchange of a token to the browser and the server", () => {
    expect(at("/?token=abc")).toBeNull();
    expect(at("/run/a?x=step&token=abc")).toBeNull();
    expect(at("/login")).toBeNull();
    expect(at("/login?token=abc")).toBeNull();
  });

  test("leaves changes and files it does not know alone", () => {
    expect(at("/", "/", { method: "POST" })).toBeNull();
    expect(at("/assets/index-2.js", "/", { mode: "cors" })).toBeNull();
  });

  test("handles only its own base path", () => {
    expect(at("/stepscope/run/a", "/stepscope/")).toBe("page");
    expect(at("/stepscope/assets/index-1.js", "/stepscope/", { mode: "cors" })).toBe("file");
    expect(at("/stepscope/api/v1/runs", "/stepscope/")).toBeNull();
    expect(at("/elsewhere", "/stepscope/")).toBeNull();
  });

  test("takes a proxy without a server behind it for a server that is gone", () => {
    expect([502, 503, 504].every(isGone)).toBe(true);
    expect([200, 401, 404, 500].some(isGone)).toBe(false);
  });
});
