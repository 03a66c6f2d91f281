import { expect, it } from "vitest";
import { toYaml } from "./yaml.ts";

it.each([
  ["maps and lists", { a: 1, b: [{ c: "x", d: [1, 2] }, "y"] }, 'a: 1\nb:\n- c: x\n  d:\n  - 1\n  - 2\n- "y"\n'],
  ["what is empty", { a: {}, b: [], c: "", d: null }, 'a: {}\nb: []\nc: ""\nd: null\n'],
  [
    "text that looks like something else",
    { a: "true", b: "12", c: "no", d: "a: b" },
    'a: "true"\nb: "12"\nc: "no"\nd: "a: b"\n',
  ],
  ["lines", { run: "set -e\necho 1\n" }, "run: |\n  set -e\n  echo 1\n"],
  ["lines without an end", { run: "a\nb" }, "run: |-\n  a\n  b\n"],
  ["lines in a list", { args: ["-c", "a\n\nb\n"] }, 'args:\n- "-c"\n- |\n  a\n\n  b\n'],
  ["lists in lists", [[1, 2], [3]], "- - 1\n  - 2\n- - 3\n"],
  ["keys that need quotes", { "a: b": 1, "k8s4r.io/x": 2 }, '"a: b": 1\nk8s4r.io/x: 2\n'],
])("%s", (_, value, text) => expect(toYaml(value)).toBe(text));
