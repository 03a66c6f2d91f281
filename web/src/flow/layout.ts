// Positions of a flow's steps. Pure functions.
import dagre from "@dagrejs/dagre";
import { inLayers } from "./layers.ts";

export type Point = { x: number; y: number };
export type Link = { from: string; to: string };

export const nodeWidth = 172;
export const nodeHeight = 46;
export const gap = { along: 44, across: 16 };

// dagre takes seconds for a thousand steps. Plain layers take milliseconds; at that size, users do not
// follow single edges.
export const mostForDagre = 120;

export function layout(names: readonly string[], links: readonly Link[]): Map<string, Point> {
  return names.length > mostForDagre ? inLayers(names, links) : byDagre(names, links);
}

/** linesOf draws all links as one path, each from the right side of a step to the left side of the next. */
export function linesOf(links: readonly Link[], places: ReadonlyMap<string, Point>): string {
  let path = "";
  for (const { from, to } of links) {
    const a = places.get(from);
    const b = places.get(to);
    if (!a || !b) continue;
    const x = a.x + nodeWidth;
    const y = a.y + nodeHeight / 2;
    const across = Math.round(b.x - x);
    const down = Math.round(b.y - a.y);
    const bend = Math.round(across / 2);
    path += `M${Math.round(x)} ${Math.round(y)}c${bend} 0 ${bend} ${down} ${across} ${down}`;
  }
  return path;
}

function byDagre(names: readonly string[], links: readonly Link[]): Map<string, Point> {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "LR", nodesep: gap.across, ranksep: gap.along });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const name of names) graph.setNode(name, { width: nodeWidth, height: nodeHeight });
  for (const { from, to } of links) graph.setEdge(from, to);
  dagre.layout(graph);
  return new Map(
    names.map((name) => {
      const { x, y } = graph.node(name);
      return [name, { x: (x ?? 0) - nodeWidth / 2, y: (y ?? 0) - nodeHeight / 2 }];
    }),
  );
}
