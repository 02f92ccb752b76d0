import { expect, test } from "vitest";
import { curlLine } from "../../src/pages/settings/curl";

const ADDRESS = "http://127.0.0.1:8787/api/v1/runs";

test("a command reads the token from its file", () => {
  expect(curlLine(ADDRESS, "/home/me/.stepscope/server.token")).toBe(
    `curl -H "Authorization: Bearer $(cat /home/me/.stepscope/server.token)" \\\n  ${ADDRESS}`,
  );
});

test("a folder of any name is one word of the command", () => {
  expect(curlLine(ADDRESS, "/my runs/it's $HOME/t")).toContain("$(cat '/my runs/it'\\''s $HOME/t')");
});
