// Converts Vite's list of the bundled packages into assets/licenses.md, for people, and packages.json, for the bill of
// materials of programs that carry the pages (tools/sbom). Fails the build when a package has no licence.
import { readFileSync, rmSync, writeFileSync } from "node:fs";

const dist = new URL("../dist/", import.meta.url);
const from = new URL("assets/licenses.json", dist);
const bundled = JSON.parse(readFileSync(from));

const silent = bundled.filter((p) => !p.identifier).map((p) => `${p.name} ${p.version}`);
if (silent.length > 0) {
  console.error(`bundled, and without a licence in its package.json: ${silent.join(", ")}`);
  process.exit(1);
}

const chapter = ({ name, version, identifier, text = "" }) => `## ${name} ${version} (${identifier})\n\n${text}\n`;
const line = ({ name, version, identifier }) => JSON.stringify({ name, version, license: identifier });
writeFileSync(
  new URL("assets/licenses.md", dist),
  `# Licences\n\nof what is bundled into these pages.\n\n${bundled.map(chapter).join("\n")}`,
);
writeFileSync(new URL("packages.json", dist), `[\n${bundled.map(line).join(",\n")}\n]\n`);
rmSync(from);
