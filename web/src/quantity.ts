// Kubernetes quantities such as "1500m", "2Gi" and "64", for drawing bars.

const units: Record<string, number> = {
  n: 1e-9,
  u: 1e-6,
  m: 1e-3,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
  Pi: 2 ** 50,
};

/** quantity returns the value of a quantity, or NaN if the text is invalid. */
export function quantity(text: string): number {
  const [, number, unit = ""] = /^([0-9.]+(?:e[0-9+-]+)?)([A-Za-z]*)$/.exec(text) ?? [];
  return Number(number) * (unit === "" ? 1 : (units[unit] ?? Number.NaN));
}

/** share returns the used part of a capacity, from 0 to 1. It is undefined if one of the two is unknown. */
export function share(used: string | undefined, capacity: string | undefined): number | undefined {
  const part = quantity(used ?? "0") / quantity(capacity ?? "");
  return Number.isFinite(part) ? Math.min(1, part) : undefined;
}
