// Where the steps of a flow stand. Pure.
import dagre from "@dagrejs/dagre";
import { inLayers } from "./layers.ts";

export type Point = { x: number; y: number };
export type Link = { from: string; to: string };

export const nodeWidth = 172;
export const nodeHeight = 46;
export const gap = { along: 44, across: 16 };

// dagre takes seconds for a thousand steps; plain layers take milliseconds, and nobody follows single lines there.
const mostForDagre = 120;

export function layout(names: readonly string[], links: readonly Link[]): Map<string, Point> {
  return names.length > mostForDagre ? inLayers(names, links) : byDagre(names, links);
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
