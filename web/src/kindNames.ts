// Names and states of the kinds (docs/reference/kinds), and the command that creates the first object of
// each.
import type { Kind } from "./api.ts";

type KindName = { one: string; many: string; states: string[]; first: string; does: string };

const jobStates = [
  "under-construction",
  "pending",
  "running",
  "pause-requested",
  "paused",
  "cancel-requested",
  "canceled",
  "requeueing",
  "completed",
  "failed",
];

export const kindNames: Record<Kind, KindName> = {
  jobs: {
    one: "Job",
    many: "Jobs",
    states: jobStates,
    does: "A Job runs groups of tasks on the robots that it selects.",
    first: "k8s4r run --count 3 -- /bin/sh -c 'echo hello from $K8S4R_ROBOT'",
  },
  rollouts: {
    one: "Rollout",
    many: "Rollouts",
    states: [
      "Pending",
      "Progressing",
      "WaitingForApproval",
      "Pausing",
      "Paused",
      "Aborted",
      "Reverting",
      "Reverted",
      "Complete",
      "Superseded",
    ],
    does: "A Rollout changes the tasks of a Job from one revision to another, in waves.",
    first: "k8s4r rollout start JOB --wave 1,name=canary --wave 100%,approval",
  },
  taskgroups: {
    one: "Task group",
    many: "Task groups",
    states: jobStates,
    does: "Task groups are created by Jobs.",
    first: "kubectl apply -f examples/count.yaml",
  },
  tasks: {
    one: "Task",
    many: "Tasks",
    states: [
      "pending",
      "dispatching",
      "running",
      "unknown",
      "exited",
      "soft-failed",
      "paused",
      "completed",
      "failed",
      "canceled",
    ],
    does: "Tasks are created by Jobs.",
    first: "kubectl apply -f examples/count.yaml",
  },
  robots: {
    one: "Robot",
    many: "Robots",
    states: ["Online", "Pending", "Unknown", "Offline"],
    does: "A robot joins with a token. This prints the command to run on the robot.",
    first: "k8s4r token create",
  },
  jobflows: {
    one: "Flow",
    many: "Flows",
    states: ["Pending", "Running", "Succeed", "Failed", "Terminating"],
    does: "A JobFlow runs Jobs and pod jobs in the order of their dependencies.",
    first: "kubectl apply -f examples/jobflow/inspection.yaml",
  },
  cronjobflows: {
    one: "Scheduled flow",
    many: "Scheduled flows",
    states: ["Scheduled", "Active", "Suspended", "Invalid"],
    does: "A CronJobFlow starts a flow on a schedule.",
    first: "kubectl explain cronjobflow.spec",
  },
  vcjobs: {
    one: "Pod job",
    many: "Pod jobs",
    states: [
      "Pending",
      "Running",
      "Restarting",
      "Completing",
      "Completed",
      "Aborting",
      "Aborted",
      "Terminating",
      "Terminated",
      "Failed",
    ],
    does: "A vcjob runs groups of Pods, as a Job of Volcano.",
    first: "kubectl apply -f examples/jobflow/inspection.yaml",
  },
  rayclusters: {
    one: "Ray cluster",
    many: "Ray clusters",
    states: ["pending", "ready", "suspended"],
    does: "A RayCluster runs a head Pod and groups of worker Pods.",
    first: "kubectl explain raycluster.spec",
  },
  pods: {
    one: "Pod",
    many: "Pods",
    states: ["Pending", "Running", "Succeeded", "Failed", "Unknown"],
    does: "Pods are created by pod jobs and Ray clusters.",
    first: "kubectl get pods --all-namespaces",
  },
};
