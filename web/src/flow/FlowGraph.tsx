// The steps of a flow as a live graph. The layout is computed once per shape; a step that changes only
// redraws itself.
import {
  Background,
  Controls,
  type Edge,
  MiniMap,
  type NodeMouseHandler,
  ReactFlow,
  ViewportPortal,
} from "@xyflow/react";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { api, type Graph, type Step } from "../api.ts";
import { useParams } from "../data/route.ts";
import { useLoad } from "../data/useLoad.ts";
import { Empty, ErrorNote, Loading } from "../ui/basics.tsx";
import { layout, linesOf, mostForDagre, nodeHeight, nodeWidth, type Point } from "./layout.ts";
import { SidePanel } from "./SidePanel.tsx";
import { type StepNode, StepShape } from "./StepShape.tsx";
import "@xyflow/react/dist/style.css";

const nodeTypes = { step: StepShape };
// A map with many dots is slow to draw, and useless for a graph that fits the page.
const mapFrom = 30;

export default function FlowGraph({ namespace, name }: { namespace: string; name: string }) {
  const { data, error, reload } = useLoad(
    `graph ${namespace}/${name}`,
    (signal) => api.graph(namespace, name, signal),
    (c) => c.namespace === namespace && (c.row?.flow === name || (c.kind === "jobflows" && c.name === name)),
  );
  if (!data) return error ? <ErrorNote error={error} retry={reload} /> : <Loading />;
  if (data.nodes.length === 0) return <Empty title="The flow has no steps" />;
  return <Drawn of={data} namespace={namespace} />;
}

/** shapeOf is equal for graphs with the same layout. */
const shapeOf = (of: Graph) => JSON.stringify([of.nodes.map((n) => n.name), of.edges.map((e) => [e.from, e.to])]);

/** useNodes keeps the node of an unchanged step, so that it is not drawn again. */
function useNodes(of: Graph, places: ReadonlyMap<string, Point>, chosen: string | null, big: boolean): StepNode[] {
  const before = useRef(new Map<string, { text: string; node: StepNode }>());
  return useMemo(() => {
    const now = new Map<string, { text: string; node: StepNode }>();
    const nodes = of.nodes.map((step) => {
      const at = places.get(step.name) ?? { x: 0, y: 0 };
      const selected = step.name === chosen;
      const text = JSON.stringify([step, at, selected]);
      const had = before.current.get(step.name);
      const node = had?.text === text ? had.node : nodeOf(step, at, selected, big);
      now.set(step.name, { text, node });
      return node;
    });
    before.current = now;
    return nodes;
  }, [of, places, chosen, big]);
}

const nodeOf = (step: Step, position: Point, selected: boolean, big: boolean): StepNode => ({
  id: step.name,
  type: "step",
  position,
  selected,
  data: { step, ends: !big },
  width: nodeWidth,
  height: nodeHeight,
  // Big graphs have nodes of fixed size and are not measured. Edges that are drawn separately need measured
  // nodes.
  measured: big ? { width: nodeWidth, height: nodeHeight } : undefined,
  ariaLabel: `${step.name}: ${step.state}`,
});

const none: Edge[] = [];

/**
 * Lines draws all edges of a big graph as one path: a component for each edge would take most of the time.
 */
function Lines({ path }: { path: string }) {
  return (
    <ViewportPortal>
      <svg className="lines" role="presentation">
        <path d={path} />
      </svg>
    </ViewportPortal>
  );
}

/** useIdle returns true after the important parts are drawn. */
function useIdle(): boolean {
  const [idle, setIdle] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setIdle(true), 500);
    return () => clearTimeout(timer);
  }, []);
  return idle;
}

function edgesOf(of: Graph): Edge[] {
  const running = new Set(of.nodes.filter((n) => n.severity === "running").map((n) => n.name));
  return of.edges.map(({ from, to, label }, i) => ({
    id: `${i} ${from} ${to}`, // two steps may be connected by several edges
    source: from,
    target: to,
    label,
    className: running.has(to) ? "active" : undefined,
    focusable: false,
  }));
}

function Drawn({ of, namespace }: { of: Graph; namespace: string }) {
  const [params, change] = useParams();
  const chosen = params.get("step");
  const shape = shapeOf(of);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the shape contains everything that the layout depends on
  const places = useMemo(
    () =>
      layout(
        of.nodes.map((n) => n.name),
        of.edges,
      ),
    [shape],
  );
  const big = of.nodes.length > mostForDagre;
  const nodes = useNodes(of, places, chosen, big);
  const edges = useMemo(() => (big ? none : edgesOf(of)), [of, big]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the shape contains everything that the lines depend on
  const lines = useMemo(() => (big ? linesOf(of.edges, places) : ""), [shape, places, big]);
  const map = useIdle() && of.nodes.length >= mapFrom;
  const open: NodeMouseHandler = useCallback((_, node) => change({ step: node.id }), [change]);
  const step = of.nodes.find((n) => n.name === chosen);
  return (
    <div className={step ? "flow split" : "flow"}>
      <div
        className="graph"
        role="group"
        aria-label={`Steps, ${of.nodes.length}`}
        onKeyDown={(event) => {
          const id = (event.target as Element).closest(".react-flow__node")?.getAttribute("data-id");
          if (id && event.key === "Enter") change({ step: id });
        }}
      >
        <ReactFlow
          nodes={nodes}
          edges={edges}
          nodeTypes={nodeTypes}
          onNodeClick={open}
          onPaneClick={() => chosen && change({ step: undefined })}
          nodesDraggable={false}
          nodesConnectable={false}
          deleteKeyCode={null}
          minZoom={0.02}
          maxZoom={1.5}
          fitView
          fitViewOptions={{ maxZoom: 1, padding: 0.08 }}
        >
          <Background gap={24} />
          <Controls showInteractive={false} />
          {big && <Lines path={lines} />}
          {map && <MiniMap pannable zoomable nodeClassName={(n) => `severity-${(n as StepNode).data.step.severity}`} />}
        </ReactFlow>
      </div>
      {step && <SidePanel step={step} namespace={namespace} close={() => change({ step: undefined })} />}
    </div>
  );
}
