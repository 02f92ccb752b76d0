import { describe, expect, test } from "vitest";
import examples from "./numbers.json";
import { ago, bytes, clock, count, duration, number, percent, quantity, unitOf } from "../../src/format";

describe("numbers", () => {
  test.each(examples.four_digits as [number, string][])("%s is written %s", (value, text) =>
    expect(number(value)).toBe(text),
  );
  test.each(examples.three_digits as [number, string][])(
    "%s is written %s where there is less room",
    (value, text) => expect(number(value, 3)).toBe(text),
  );
  test.each([
    [-3.25, "−3.25"],
    [NaN, "NaN"],
    [Infinity, "∞"],
    [-Infinity, "−∞"],
    [null, "–"],
    [undefined, "–"],
  ])("%s is written %s", (value, text) => expect(number(value)).toBe(text));

  test("of things are whole, with separators", () => expect(count(1_234_567)).toBe("1,234,567"));
});

describe("bytes", () => {
  test.each([
    [0, "0 B"],
    [1023, "1023 B"],
    [1024, "1 KiB"],
    [1536, "1.5 KiB"],
    [85_899_345_920, "80 GiB"],
    [-2048, "−2 KiB"],
    [1_048_575, "1 MiB"],
    [null, "–"],
  ])("%s are written %s", (value, text) => expect(bytes(value)).toBe(text));
});

describe("durations", () => {
  test.each([
    [0, "0 s"],
    [0.0000005, "500 ns"],
    [0.000012, "12 µs"],
    [0.0421, "42.1 ms"],
    [0.9996, "1 s"],
    [1.84, "1.84 s"],
    [59.94, "59.9 s"],
    [60, "1 min"],
    [65, "1 min 05 s"],
    [3600, "1 h"],
    [5430, "1 h 30 min"],
    [90_000, "1 d 01 h"],
    [172_800, "2 d"],
    [-5, "−5 s"],
  ])("of %s s are written %s", (value, text) => expect(duration(value)).toBe(text));
});

describe("ratios", () => {
  test.each([
    [0, "0%"],
    [0.414, "41%"],
    [0.0414, "4.1%"],
    [0.0004, "0.04%"],
    [1, "100%"],
    [0.0999, "10%"],
    [-0.12, "−12%"],
    [12, "1,200%"],
  ])("of %s are written %s", (value, text) => expect(percent(value)).toBe(text));
});

describe("a value with its unit", () => {
  test.each([
    [0.21, "seconds", "210 ms"],
    [2 ** 30, "bytes", "1 GiB"],
    [0.5, "ratio", "50%"],
    [31, "%", "31%"],
    [71.25, "celsius", "71.3 °C"],
    [312.4, "watts", "312 W"],
    [1500, "watts", "1.5 kW"],
    [1.98e9, "hertz", "1.98 GHz"],
    [9.8, "/s", "9.8/s"],
    [12.5, "tokens/s", "12.5 tokens/s"],
    [2 ** 20, "bytes/s", "1 MiB/s"],
    [1200, "count", "1,200"],
    [3, "", "3"],
    [3, "tok", "3 tok"],
    [NaN, "bytes", "NaN"],
    [null, "watts", "–"],
  ])("%s %s is written %s", (value, unit, text) => expect(quantity(value, unit)).toBe(text));
});

describe("the unit of a key", () => {
  test.each([
    ["step_seconds", "seconds"],
    ["gpu_memory_used_bytes", "bytes"],
    ["gpu_utilization_ratio", "ratio"],
    ["gpu_temperature_celsius", "celsius"],
    ["gpu_power_watts", "watts"],
    ["gpu_sm_clock_hertz", "hertz"],
    ["samples_per_second", "samples/s"],
    ["steps_per_second", "/s"],
    ["disk_read_bytes_per_second", "bytes/s"],
    ["phase/data_seconds", "seconds"],
    ["compile/seconds", "seconds"],
    ["val/accuracy", "ratio"],
    ["errors_total", "count"],
    ["network_bytes_total", "bytes"],
    ["loss", ""],
    ["ratio_of_things", ""],
  ])("%s is read from its end: %s", (key, unit) => expect(unitOf(key)).toBe(unit));
});

describe("times", () => {
  const noon = new Date(2025, 2, 4, 12, 5, 9).getTime() / 1000;

  test("of today are written without a date", () => expect(clock(noon, noon + 60)).toBe("12:05:09"));
  test("of another day are written with it", () =>
    expect(clock(noon, noon + 86_400)).toBe("2025-03-04 12:05:09"));
  test.each([
    [0.2, "now"],
    [14, "14 s ago"],
    [180, "3 min ago"],
    [7200, "2 h ago"],
  ])("%s s back are written %s", (seconds, text) => expect(ago(1000, 1000 + seconds)).toBe(text));
});
