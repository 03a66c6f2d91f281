import type { Node, NodeProps } from "@xyflow/react";
import { memo } from "react";
import type { Step } from "../api.ts";
import { State } from "../ui/basics.tsx";

export type StepNode = Node<{ step: Step }, "step">;

export const StepShape = memo(({ data: { step }, selected }: NodeProps<StepNode>) => (
  <div className={`step tone-${step.tone}${selected ? " chosen" : ""}`} title={step.message ?? step.reason}>
    <strong>{step.name}</strong>
    <State tone={step.tone}>{step.state}</State>
  </div>
));
