// A fast layout for big graphs: each step is to the right of its targets, close to the middle of its
// neighbors.
import { gap, type Link, nodeHeight, nodeWidth, type Point } from "./layout.ts";

type Neighbours = Map<string, string[]>;

function neighbours(names: readonly string[], links: readonly Link[], of: keyof Link, is: keyof Link): Neighbours {
  const out: Neighbours = new Map(names.map((name) => [name, []]));
  for (const link of links) out.get(link[of])?.push(link[is]);
  return out;
}

/**
 * ranks returns the length of the longest path to each step. Steps of a cycle, which valid flows do not
 * have, stay at 0.
 */
export function ranks(names: readonly string[], links: readonly Link[]): Map<string, number> {
  const after = neighbours(names, links, "from", "to");
  const open = new Map(names.map((name) => [name, 0]));
  for (const { to } of links) open.set(to, (open.get(to) ?? 0) + 1);
  const rank = new Map(names.map((name) => [name, 0]));
  const ready = names.filter((name) => open.get(name) === 0);
  for (const name of ready) {
    for (const next of after.get(name) ?? []) {
      rank.set(next, Math.max(rank.get(next) ?? 0, (rank.get(name) ?? 0) + 1));
      const left = (open.get(next) ?? 0) - 1;
      open.set(next, left);
      if (left === 0) ready.push(next);
    }
  }
  return rank;
}

/** number sets the relative height of each step within its layer. */
function number(layer: readonly string[], at: Map<string, number>) {
  for (const [i, name] of layer.entries()) at.set(name, (i + 0.5) / layer.length);
}

/** settle sorts a layer by the average relative height of its steps' neighbors. */
function settle(layer: string[], near: Neighbours, at: Map<string, number>) {
  const middle = new Map(
    layer.map((name) => {
      const places = (near.get(name) ?? []).map((n) => at.get(n) ?? 0);
      return [name, places.length ? places.reduce((a, b) => a + b, 0) / places.length : (at.get(name) ?? 0)];
    }),
  );
  layer.sort((a, b) => (middle.get(a) ?? 0) - (middle.get(b) ?? 0));
  number(layer, at);
}

const sweeps = 4;

export function inLayers(names: readonly string[], links: readonly Link[]): Map<string, Point> {
  const rank = ranks(names, links);
  const layers: string[][] = [];
  for (const name of names) {
    const r = rank.get(name) ?? 0;
    layers[r] ??= [];
    layers[r].push(name);
  }
  const at = new Map<string, number>();
  for (const layer of layers) number(layer, at);
  const before = neighbours(names, links, "to", "from");
  const after = neighbours(names, links, "from", "to");
  for (let sweep = 0; sweep < sweeps; sweep++) {
    for (const layer of layers) settle(layer, before, at);
    for (const layer of layers.toReversed()) settle(layer, after, at);
  }
  return stand(layers, Math.max(12, Math.ceil(1.5 * Math.sqrt(names.length))));
}

/** stand returns the positions of all steps. A layer with more than most steps gets several columns. */
function stand(layers: readonly string[][], most: number): Map<string, Point> {
  const places = new Map<string, Point>();
  const across = nodeHeight + gap.across;
  let x = 0;
  for (const layer of layers) {
    const columns = Math.ceil(layer.length / most);
    const rows = Math.ceil(layer.length / columns);
    layer.forEach((name, i) => {
      const column = Math.floor(i / rows);
      const inColumn = Math.min(rows, layer.length - column * rows);
      places.set(name, {
        x: x + column * (nodeWidth + gap.across),
        y: ((i % rows) - (inColumn - 1) / 2) * across,
      });
    });
    x += columns * (nodeWidth + gap.across) - gap.across + gap.along;
  }
  return places;
}
