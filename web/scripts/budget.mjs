// Fails the build when the first load is too large for a slow network. The first load is the entry and everything that it
// imports at once, with styles. Chunks that are loaded later do not count.
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const budget = 300_000; // bytes, compressed by gzip
const dist = new URL("../dist/", import.meta.url);
const manifest = JSON.parse(readFileSync(new URL("assets/manifest.json", dist)));

function filesOf(key, seen = new Set()) {
  const chunk = manifest[key];
  if (seen.has(chunk.file)) return seen;
  seen.add(chunk.file);
  for (const css of chunk.css ?? []) seen.add(css);
  for (const next of chunk.imports ?? []) filesOf(next, seen);
  return seen;
}

const size = (file) => gzipSync(readFileSync(new URL(file, dist)), { level: 9 }).length;
const first = [...filesOf("index.html"), "index.html"];
const total = first.reduce((sum, file) => sum + size(file), 0);
for (const file of first) console.log(`${String(size(file)).padStart(8)}  ${file}`);
console.log(`${String(total).padStart(8)}  first load, of ${budget}`);
if (total > budget) {
  console.error(
    `the first load is ${total - budget} bytes over its budget: move what is not needed at once into a chunk of its own`,
  );
  process.exit(1);
}
