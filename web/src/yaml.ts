// Manifests as YAML, to read and to copy into kubectl apply. It supports the types of JSON only.

const plain = /^[A-Za-z_/][\w ./@+-]*$/;
// Words that YAML parsers do not read as strings.
const special = /^(y|n|yes|no|on|off|true|false|null|~)$/i;

function text(value: string, indent: string): string {
  if (value.includes("\n") && !/[ \t]+$/m.test(value) && !/^[ \t\n]/.test(value)) {
    const keep = value.endsWith("\n") ? (value.endsWith("\n\n") ? "+" : "") : "-";
    const lines = value.replace(/\n$/, "").split("\n");
    return `|${keep}\n${lines.map((line) => (line ? indent + line : "")).join("\n")}`;
  }
  if (plain.test(value) && !special.test(value) && !value.endsWith(" ")) return value;
  return JSON.stringify(value);
}

function block(value: unknown, indent: string): string {
  if (Array.isArray(value)) {
    if (value.length === 0) return "[]";
    return value.map((item) => `${indent}- ${block(item, `${indent}  `).trimStart()}`).join("\n");
  }
  if (value !== null && typeof value === "object") {
    const entries = Object.entries(value).filter(([, v]) => v !== undefined);
    if (entries.length === 0) return "{}";
    return entries.map(([key, v]) => `${indent}${text(key, "")}:${after(v, indent)}`).join("\n");
  }
  return typeof value === "string" ? text(value, indent) : String(value);
}

const isEmpty = (value: object) => Object.keys(value).length === 0;

function after(value: unknown, indent: string): string {
  if (value !== null && typeof value === "object" && !isEmpty(value)) {
    return `\n${block(value, Array.isArray(value) ? indent : `${indent}  `)}`;
  }
  return ` ${block(value, `${indent}  `)}`;
}

export function toYaml(value: unknown): string {
  return `${block(value, "")}\n`;
}
