import { useVirtualizer } from "@tanstack/react-virtual";
import { useLayoutEffect, useMemo, useRef, useState } from "react";
import { api, type Bar, type Kind, type Timeline } from "../api.ts";
import { navigate, objectPath } from "../data/route.ts";
import { useLoad } from "../data/useLoad.ts";
import { clock, duration } from "../time.ts";
import { Empty, ErrorNote, Loading } from "../ui/basics.tsx";
import { useNow } from "../ui/now.ts";
import { pack, place, ticks } from "./timeline.ts";

const barHeight = 18;
const rowHeight = 22;
const tickRoom = 110; // px for the label of one tick
const letter = 7; // px
const thinnest = 3; // px: even the shortest bar must be visible

type Props = { kind: Kind; namespace: string; name: string };

export default function TimelineView({ kind, namespace, name }: Props) {
  const { data, error, reload } = useLoad(
    `timeline ${kind}/${namespace}/${name}`,
    (signal) => api.timeline(kind, namespace, name, signal),
    (c) => c.namespace === namespace && (c.name === name || c.row?.job === name || c.row?.flow === name),
  );
  if (!data) return error ? <ErrorNote error={error} retry={reload} /> : <Loading />;
  if (data.lanes.length === 0) {
    return <Empty title="Nothing has run yet">Bars appear here when the first attempt starts.</Empty>;
  }
  const open = (bar: Bar) =>
    navigate(objectPath({ kind: kind === "vcjobs" ? "pods" : "tasks", namespace, name: bar.task }));
  return <Lanes of={data} open={open} />;
}

function useWidth() {
  const ref = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    if (!ref.current) return;
    const observer = new ResizeObserver(([entry]) => setWidth(entry?.contentRect.width ?? 0));
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return { ref, width };
}

const endOf = (bar: Bar) => (bar.end ? Date.parse(bar.end) : Number.POSITIVE_INFINITY);

type Lane = { name: string; bars: Bar[]; rows: number[]; height: number };

/** lanesOf assigns overlapping bars of a lane to separate rows. */
function lanesOf(of: Timeline): Lane[] {
  return of.lanes.map(({ name, bars }) => {
    const rows = pack(bars.map((bar) => ({ start: Date.parse(bar.start), end: endOf(bar) })));
    return { name, bars, rows, height: rowHeight * (1 + rows.reduce((a, b) => Math.max(a, b), 0)) + 5 };
  });
}

type Scale = { from: number; to: number; width: number };

function Lanes({ of, open }: { of: Timeline; open: (bar: Bar) => void }) {
  const now = useNow();
  const lanes = useMemo(() => lanesOf(of), [of]);
  const running = of.lanes.some((lane) => lane.bars.some((bar) => !bar.end));
  const to = Math.max(Date.parse(of.to ?? of.from ?? ""), running ? now : 0);
  const { ref: area, width } = useWidth();
  const scale = { from: Date.parse(of.from ?? ""), to, width };
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: lanes.length,
    getScrollElement: () => scroller.current,
    estimateSize: (i) => lanes[i]?.height ?? rowHeight,
    overscan: 4,
  });
  // biome-ignore lint/correctness/useExhaustiveDependencies: other lanes have other heights
  useLayoutEffect(() => virtual.measure(), [lanes, virtual]);
  const marks = ticks(scale.from, to, Math.max(2, Math.floor(width / tickRoom)));
  const at = (mark: number) => place(mark, undefined, scale.from, to).x * width;
  return (
    <div className="timeline">
      <div className="axis" aria-hidden="true">
        <svg role="presentation">
          {marks.map((mark) => (
            <text key={mark} x={at(mark) + 4} y={15}>
              {clock(mark)}
            </text>
          ))}
        </svg>
      </div>
      <div ref={scroller} className="lanes" tabIndex={0} role="region" aria-label="Timeline">
        <div ref={area} className="area" style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((item) => {
            const lane = lanes[item.index];
            return (
              lane && (
                <div
                  key={lane.name}
                  className="lane"
                  style={{ transform: `translateY(${item.start}px)`, height: lane.height }}
                >
                  <span title={lane.name}>{lane.name}</span>
                  <svg role="img" aria-label={`${lane.name}: ${lane.bars.length}`}>
                    {marks.map((mark) => (
                      <line key={mark} x1={at(mark)} x2={at(mark)} y1={0} y2={lane.height} />
                    ))}
                    {lane.bars.map((bar, i) => (
                      <BarShape
                        key={`${bar.task} ${bar.attempt}`}
                        bar={bar}
                        y={4 + (lane.rows[i] ?? 0) * rowHeight}
                        scale={scale}
                        open={open}
                      />
                    ))}
                  </svg>
                </div>
              )
            );
          })}
        </div>
      </div>
    </div>
  );
}

function BarShape({ bar, y, scale, open }: { bar: Bar; y: number; scale: Scale; open: (bar: Bar) => void }) {
  const start = Date.parse(bar.start);
  const end = bar.end ? Date.parse(bar.end) : scale.to;
  const at = place(start, end, scale.from, scale.to);
  const x = at.x * scale.width;
  const width = Math.max(thinnest, at.width * scale.width);
  const reason = bar.reason ? ` (${bar.reason})` : "";
  const shown = bar.step ?? bar.task;
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: a short cut for the mouse; the tables have the same as links
    <g onClick={() => open(bar)} className={`bar severity-${bar.severity}`}>
      <title>{`${bar.task}${bar.attempt ? `, attempt ${bar.attempt}` : ""}: ${bar.state}${reason}, ${duration(end - start)}`}</title>
      <rect x={x} y={y} width={width} height={barHeight} rx={3} />
      {width > shown.length * letter + 8 && (
        <text x={x + 5} y={y + 13}>
          {shown}
        </text>
      )}
    </g>
  );
}
