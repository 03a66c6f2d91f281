import { describe, expect, it } from "vitest";
import { inLayers, ranks } from "./layers.ts";
import { type Link, layout, nodeHeight, nodeWidth, type Point } from "./layout.ts";

const link = (text: string): Link => ({ from: text[0] as string, to: text[1] as string });

function overlapping(places: Map<string, Point>): number {
  const points = [...places.values()].sort((a, b) => a.x - b.x);
  let count = 0;
  points.forEach((p, i) => {
    for (const q of points.slice(i + 1)) {
      if (q.x - p.x >= nodeWidth) break;
      if (Math.abs(p.y - q.y) < nodeHeight) count++;
    }
  });
  return count;
}

describe("ranks", () => {
  it("are the longest ways", () => {
    const found = ranks([..."abcd"], ["ab", "bc", "ac", "cd", "ad"].map(link));
    expect([...found]).toEqual([..."abcd"].map((name, i) => [name, i]));
  });
  it("end also where steps wait for each other", () => {
    expect(ranks([..."ab"], ["ab", "ba"].map(link)).get("a")).toBe(0);
  });
});

describe("layout", () => {
  const names = Array.from({ length: 1000 }, (_, i) => `s${i}`);
  const links = names.slice(1).flatMap((to, i) => [
    { from: names[Math.max(0, i - (i % 37))] as string, to },
    { from: names[Math.floor(i / 2)] as string, to },
  ]);
  it("puts each step right of what it waits for, and none on another", () => {
    const places = inLayers(names, links);
    expect(links.every(({ from, to }) => (places.get(from) as Point).x < (places.get(to) as Point).x)).toBe(true);
    expect(overlapping(places)).toBe(0);
  });
  it("wraps a wide layer instead of becoming a tower", () => {
    const fan = names.slice(1).map((to) => ({ from: "s0", to }));
    const ys = [...inLayers(names, fan).values()].map((p) => p.y);
    expect(Math.max(...ys) - Math.min(...ys)).toBeLessThan(50 * nodeHeight * 2);
  });
  it("draws a small graph from left to right too", () => {
    const places = layout([..."abc"], ["ab", "bc"].map(link));
    const xs = [..."abc"].map((name) => (places.get(name) as Point).x);
    expect(xs).toEqual(xs.toSorted((a, b) => a - b));
  });
});
