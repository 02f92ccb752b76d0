import { afterEach, describe, expect, test } from "vitest";
import { bytes, duration, inUnits, quantity, tickDistances, ticksOf, DEFAULT_UNITS, useUnits } from "../../src/format";

afterEach(() => useUnits(() => DEFAULT_UNITS));

describe("the units a reader prefers", () => {
  test("write memory in thousands where those are wanted", () => {
    expect(bytes(2 ** 30)).toBe("1 GiB");
    useUnits(() => ({ ...DEFAULT_UNITS, memory: "decimal" }));
    expect(bytes(2 ** 30)).toBe("1.07 GB");
    expect(quantity(1500, "bytes/s")).toBe("1.5 kB/s");
    expect(ticksOf([0, 2e9, 4e9], "bytes")).toEqual(["0", "2 GB", "4 GB"]);
    expect(tickDistances("bytes")).toBeUndefined();
  });

  test("write temperatures in Fahrenheit where that is wanted", () => {
    expect(quantity(83, "celsius")).toBe("83 °C");
    expect(ticksOf([0, 50, 100], "celsius")).toEqual(["0 °C", "50 °C", "100 °C"]);
    useUnits(() => ({ ...DEFAULT_UNITS, temperature: "fahrenheit" }));
    expect(quantity(100, "celsius")).toBe("212 °F");
    expect(ticksOf([50, 60], "celsius")).toEqual(["122 °F", "140 °F"]);
  });

  test("write long durations as a clock shows them where that is wanted", () => {
    useUnits(() => ({ ...DEFAULT_UNITS, durations: "clock" }));
    expect(duration(4320)).toBe("1:12:00");
    expect(duration(62)).toBe("0:01:02");
    expect(duration(90_061)).toBe("1 d 01:01:01");
    expect(duration(0.031)).toBe("31 ms");
  });

  test("are put into what the server has worded", () => {
    expect(inUnits("62.4 GiB of 79.6 GiB")).toBe("62.4 GiB of 79.6 GiB");
    useUnits(() => ({ memory: "decimal", temperature: "fahrenheit", durations: "named" }));
    expect(inUnits("62.4 GiB of 79.6 GiB, at 80 °C")).toBe("67 GB of 85.5 GB, at 176 °F");
    expect(inUnits("1,024 B read from a B200")).toBe("1.02 kB read from a B200");
  });
});
