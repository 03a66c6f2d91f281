import { useEffect, useRef } from "react";
import uPlot from "uplot";
import type { StepTime } from "../api.ts";
import { duration } from "../time.ts";
import { cssColor } from "../ui/theme.ts";
import "uplot/dist/uPlot.min.css";

const height = 260;
const labelOf = (item: StepTime) => item.step || item.template;

function options(of: StepTime[], width: number): uPlot.Options {
  const line = cssColor("--line");
  const text = cssColor("--text-quiet");
  const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
  const points = (label: string, color: string): uPlot.Series => ({
    label,
    stroke: cssColor(color),
    width: 1.5,
    points: { show: true, size: 6, fill: cssColor(color) },
    value: (_, v) => (v === null ? "" : duration(v * 1000)),
  });
  return {
    width,
    height,
    scales: { x: { time: false, range: [-0.5, of.length - 0.5] }, y: { distr: 3, log: 10 } },
    axes: [
      {
        ...axis,
        splits: () => of.map((_, i) => i),
        values: (_, at) => at.map((i) => (of.length > 16 ? "" : labelOf(of[i] as StepTime))),
      },
      { ...axis, size: 76, values: (_, at) => at.map((v) => (v === null ? "" : duration(v * 1000))) },
    ],
    series: [
      { label: "Step", value: (_, i) => (i === null ? "" : labelOf(of[i] as StepTime)) },
      points("median", "--good"),
      points("95 of 100", "--running"),
      points("longest", "--bad"),
    ],
  };
}

/** StepTimes draws how long steps take, with the same data in a table for screen readers. */
export default function StepTimes({ of }: { of: StepTime[] }) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const node = place.current;
    if (!node) return;
    // A logarithmic scale has no zero.
    const least = 0.001;
    const column = (get: (item: StepTime) => number) => of.map((item) => Math.max(least, get(item)));
    const data: uPlot.AlignedData = [
      of.map((_, i) => i),
      column((i) => i.p50Seconds),
      column((i) => i.p95Seconds),
      column((i) => i.maxSeconds),
    ];
    const plot = new uPlot(options(of, node.clientWidth), data, node);
    const resized = new ResizeObserver(() => plot.setSize({ width: node.clientWidth, height }));
    resized.observe(node);
    return () => {
      resized.disconnect();
      plot.destroy();
    };
  }, [of]);
  return (
    <div className="scroll" tabIndex={0} role="group" aria-label="Step times">
      <div ref={place} className="chart" aria-hidden="true" />
      <table>
        <thead>
          <tr>
            <th>Template</th>
            <th>Step</th>
            <th>Runs</th>
            <th>Median</th>
            <th>95 of 100 within</th>
            <th>Longest</th>
          </tr>
        </thead>
        <tbody>
          {of.map((item) => (
            <tr key={`${item.template} ${item.step}`}>
              <td>{item.template}</td>
              <td>{item.step}</td>
              <td>{item.count.toLocaleString()}</td>
              <td>{duration(item.p50Seconds * 1000)}</td>
              <td>{duration(item.p95Seconds * 1000)}</td>
              <td>{duration(item.maxSeconds * 1000)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
