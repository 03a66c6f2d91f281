import { useVirtualizer } from "@tanstack/react-virtual";
import { useLayoutEffect, useRef, useState } from "react";
import { api, type Bar, type Kind, type Timeline } from "../api.ts";
import { navigate, objectPath } from "../data/route.ts";
import { useLoad } from "../data/useLoad.ts";
import { clock, duration } from "../time.ts";
import { Empty, ErrorNote, Loading } from "../ui/basics.tsx";
import { useNow } from "../ui/now.ts";
import { place, ticks } from "./timeline.ts";

const laneHeight = 26;
const tickRoom = 110; // px for the words of one tick
const thinnest = 3; // px: a bar of a moment must still be seen

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
  return <Lanes of={data} namespace={namespace} bars={kind === "vcjobs" ? "pods" : "tasks"} />;
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

function Lanes({ of, namespace, bars }: { of: Timeline; namespace: string; bars: Kind }) {
  const now = useNow();
  const running = of.lanes.some((lane) => lane.bars.some((bar) => !bar.end));
  const from = Date.parse(of.from);
  const to = running ? Math.max(now, Date.parse(of.to)) : Date.parse(of.to);
  const { ref: area, width } = useWidth();
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: of.lanes.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => laneHeight,
    overscan: 8,
  });
  const at = (time: number) => place(time, undefined, from, to).x * width;
  const marks = ticks(from, to, Math.max(2, Math.floor(width / tickRoom)));
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
            const lane = of.lanes[item.index];
            return (
              lane && (
                <div key={lane.name} className="lane" style={{ transform: `translateY(${item.start}px)` }}>
                  <span title={lane.name}>{lane.name}</span>
                  <svg role="img" aria-label={`${lane.name}: ${lane.bars.length}`}>
                    {marks.map((mark) => (
                      <line key={mark} x1={at(mark)} x2={at(mark)} y1={0} y2={laneHeight} />
                    ))}
                    {lane.bars.map((bar) => (
                      <BarShape
                        key={`${bar.task} ${bar.attempt}`}
                        bar={bar}
                        x={at(Date.parse(bar.start))}
                        width={
                          place(Date.parse(bar.start), bar.end ? Date.parse(bar.end) : undefined, from, to).width *
                          width
                        }
                        open={() => navigate(objectPath({ kind: bars, namespace, name: bar.task }))}
                        now={to}
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

function BarShape({ bar, x, width, open, now }: { bar: Bar; x: number; width: number; open: () => void; now: number }) {
  const took = duration((bar.end ? Date.parse(bar.end) : now) - Date.parse(bar.start));
  const text = `${bar.task}, attempt ${bar.attempt}: ${bar.state}${bar.reason ? ` (${bar.reason})` : ""}, ${took}`;
  const shown = bar.step ?? bar.task;
  return (
    <g onClick={open} className={`bar tone-${bar.tone}`}>
      <title>{text}</title>
      <rect x={x} y={4} width={Math.max(thinnest, width)} height={laneHeight - 8} rx={3} />
      {width > shown.length * 7 + 8 && (
        <text x={x + 5} y={17}>
          {shown}
        </text>
      )}
    </g>
  );
}
