import { Handle, type Node, type NodeProps, Position } from "@xyflow/react";
import { memo } from "react";
import type { Step } from "../api.ts";
import { State } from "../ui/basics.tsx";

export type StepNode = Node<{ step: Step; ends: boolean }, "step">;

export const StepShape = memo(({ data: { step, ends }, selected }: NodeProps<StepNode>) => (
  <div className={`step severity-${step.severity}${selected ? " chosen" : ""}`} title={step.message}>
    {ends && <Handle type="target" position={Position.Left} isConnectable={false} />}
    {ends && <Handle type="source" position={Position.Right} isConnectable={false} />}
    <strong>{step.name}</strong>
    <State severity={step.severity}>{step.state}</State>
  </div>
));
