package hostnode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/exec"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/testkit"
)

// TestPods tests the features that pods can use, with root.
func TestPods(t *testing.T) {
	t.Parallel()
	rootOnly(t)
	s := start(t, 0, "--node-capacity", "cpu=64,memory=64Gi,nvidia.com/gpu=1,pods=500", "--pod-range", "10.244.78.0/24")
	for _, test := range []struct {
		name string
		does func(*space)
	}{
		{"the-node", theNode},
		{"a-job-completes", aJobCompletes},
		{"environment", environment},
		{"volumes", volumes},
		{"volumes-change", volumesChange},
		{"init-containers", initContainers},
		{"sidecars", sidecars},
		{"restarts", restarts},
		{"what-the-host-lacks", missingOnHost},
		{"what-is-not-there-yet", missingObjects},
		{"probes", probes},
		{"hooks-and-grace", hooksAndGrace},
		{"force", force},
		{"termination-messages", terminationMessages},
		{"limits", limits},
		{"deadline", deadline},
		{"users", users},
		{"logs", logs},
		{"names", names},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.does(s.in(t, test.name))
		})
	}
}

func theNode(s *space) {
	node := &corev1.Node{}
	if err := s.Get(s.Context(), client.ObjectKey{Name: "hostnode"}, node); err != nil {
		s.Fatal(err)
	}
	gpu := node.Status.Allocatable["nvidia.com/gpu"]
	if gpu.Value() != 1 || node.Status.Capacity.Cpu().Value() != 64 {
		s.Errorf("the node has %v", node.Status.Allocatable)
	}
	if node.Labels[corev1.LabelHostname] != "hostnode" || len(node.Spec.Taints) != 0 {
		s.Errorf("labels %v, taints %v", node.Labels, node.Spec.Taints)
	}
	lease := &coordv1.Lease{}
	if err := s.Get(s.Context(), client.ObjectKey{Namespace: "kube-node-lease", Name: "hostnode"}, lease); err != nil {
		s.Fatal(err)
	}
}

func aJobCompletes(s *space) {
	s.apply(`
apiVersion: batch/v1
kind: Job
metadata: {name: job}
spec:
  completions: 3
  parallelism: 2
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      schedulerName: volcano
      containers:
      - {name: c, image: none, command: [sh, -c, 'echo index $JOB_COMPLETION_INDEX'], resources: {limits: {nvidia.com/gpu: 1, cpu: 4}}}
`)
	job := &batchv1.Job{}
	testkit.EventuallyNoError(s.T, within, "job complete", func() error {
		if err := s.Get(s.Context(), client.ObjectKey{Namespace: s.name, Name: "job"}, job); err != nil {
			return err
		}
		if job.Status.Succeeded != 3 || job.Status.CompletionTime == nil {
			return fmt.Errorf("%+v", job.Status)
		}
		return nil
	})
	var pods corev1.PodList
	if err := s.List(s.Context(), &pods, client.InNamespace(s.name)); err != nil {
		s.Fatal(err)
	}
	for _, p := range pods.Items {
		s.expectLog(p.Name, "c", "index "+p.Labels[batchv1.JobCompletionIndexAnnotation])
		c := status(&p, "c")
		if e := c.State.Terminated; e == nil || e.Reason != "Completed" || e.StartedAt.IsZero() || e.FinishedAt.IsZero() || e.ContainerID != c.ContainerID {
			s.Errorf("%s", describe(&p))
		}
		if !holds(&p, corev1.PodInitialized) || holds(&p, corev1.PodReady) || p.Status.StartTime.IsZero() {
			s.Errorf("%s", describe(&p))
		}
	}
}

func environment(s *space) {
	s.apply(`
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {mode: fast, level: "3"}
---
apiVersion: v1
kind: Secret
metadata: {name: secrets}
stringData: {password: hunter2}
---
apiVersion: v1
kind: Pod
metadata: {name: env, labels: {app: demo}, annotations: {note: hi}}
spec:
  restartPolicy: Never
  containers:
  - name: c
    image: none
    command: [sh, -c, 'env; echo args $0 $1 $2 $3', $(MODE), $$(MODE), $(UNKNOWN), $(NEXT)]
    resources: {requests: {cpu: 250m}, limits: {cpu: 1500m, memory: 64Mi}}
    envFrom:
    - {prefix: CM_, configMapRef: {name: settings}}
    - {secretRef: {name: missing, optional: true}}
    env:
    - {name: MODE, valueFrom: {configMapKeyRef: {name: settings, key: mode}}}
    - {name: NEXT, value: next-$(MODE)}
    - {name: PASSWORD, valueFrom: {secretKeyRef: {name: secrets, key: password}}}
    - {name: NONE, valueFrom: {secretKeyRef: {name: secrets, key: none, optional: true}}}
    - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    - {name: LABEL, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
    - {name: NOTE, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['note']"}}}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    - {name: ACCOUNT, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}
    - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: CPUS, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
    - {name: MILLIS, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1m}}}
    - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
`)
	p := s.awaitPhase("env", corev1.PodSucceeded)
	s.expectLog("env", "c", "CM_mode=fast", "CM_level=3", "MODE=fast", "NEXT=next-fast", "PASSWORD=hunter2", "NAME=env", "NAMESPACE=environment",
		"LABEL=demo", "NOTE=hi", "NODE=hostnode", "ACCOUNT=default", "IP="+p.Status.PodIP, "CPUS=2", "MILLIS=250", "MEMORY=64", "HOSTNAME=env",
		"args fast $(MODE) $(UNKNOWN) next-fast")
	if strings.Contains(s.log("env", corev1.PodLogOptions{}), "NONE=") {
		s.Error("a missing optional key has become a variable")
	}
}

func volumes(s *space) {
	host := s.TempDir()
	if err := os.WriteFile(filepath.Join(host, "file"), []byte("of the host\n"), 0o644); err != nil {
		s.Fatal(err)
	}
	s.apply(`
apiVersion: v1
kind: ConfigMap
metadata: {name: scripts}
data: {run.sh: "#!/bin/sh\necho a script says $1\n", other: "other\n"}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {key: "secret\n"}
---
apiVersion: v1
kind: Pod
metadata: {name: vol, labels: {app: demo}}
spec:
  restartPolicy: Never
  initContainers:
  - {name: make, image: none, command: [sh, -c, 'echo from init > /pod-work/made; mkdir /pod-work/deep; echo deep > /pod-work/deep/file'], volumeMounts: [{name: work, mountPath: /pod-work}]}
  containers:
  - name: script
    image: none
    command: [/pod-scripts/run.sh, hello]
    volumeMounts: [{name: scripts, mountPath: /pod-scripts}]
  - name: c
    image: none
    workingDir: /pod-work
    env: [{name: PART, value: deep}]
    command:
    - sh
    - -c
    - |
      cat made /pod-one/other /deep/file /pod-keys/sub/name /host/file /info/labels /all/secret /all/ns; echo
      stat -Lc '%a' /pod-keys/sub/name
      (echo x > /pod-scripts/new) 2>/dev/null || echo scripts read-only
      (echo x > /host/new) 2>/dev/null || echo host read-only
      grep -c . /all/token
      head -1 /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
      cat /etc/pod-settings/deep/made; grep -c '^root:' /etc/passwd; grep -o 'vol$' /etc/hosts
      pwd
    volumeMounts:
    - {name: work, mountPath: /pod-work}
    - {name: scripts, mountPath: /pod-scripts}
    - {name: scripts, mountPath: /pod-one/other, subPath: other}
    - {name: work, mountPath: /deep, subPathExpr: $(PART)}
    - {name: keys, mountPath: /pod-keys}
    - {name: host, mountPath: /host, readOnly: true}
    - {name: info, mountPath: /info}
    - {name: work, mountPath: /etc/pod-settings/deep, readOnly: true}
    - {name: all, mountPath: /all}
  volumes:
  - {name: work, emptyDir: {}}
  - {name: scripts, configMap: {name: scripts, defaultMode: 0755}}
  - {name: keys, secret: {secretName: keys, items: [{key: key, path: sub/name, mode: 0400}]}}
  - {name: host, hostPath: {path: ` + host + `, type: Directory}}
  - {name: info, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
  - name: all
    projected:
      sources:
      - {secret: {name: keys, items: [{key: key, path: secret}]}}
      - {downwardAPI: {items: [{path: ns, fieldRef: {fieldPath: metadata.namespace}}]}}
      - {serviceAccountToken: {path: token, audience: me, expirationSeconds: 600}}
`)
	s.awaitPhase("vol", corev1.PodSucceeded)
	s.expectLog("vol", "script", "a script says hello")
	s.expectLog("vol", "c", "from init", "other", "deep", "secret", "of the host", `app="demo"secret`, "volumes", "400",
		"scripts read-only", "host read-only", "1", "-----BEGIN CERTIFICATE-----", "vol", "/pod-work")
	for _, path := range []string{"/pod-work", "/pod-scripts", "/pod-one", "/pod-keys", "/etc/pod-settings"} {
		if _, err := os.Stat(path); err == nil {
			s.Errorf("%s is left on the host", path)
		}
	}
}

func volumesChange(s *space) {
	s.apply(`
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {level: "1"}
---
apiVersion: v1
kind: Pod
metadata: {name: watching}
spec:
  restartPolicy: Never
  containers:
  - {name: c, image: none, command: [sh, -c, 'until grep -q 2 /settings/level && test -e /settings/more; do sleep 0.1; done; ls /settings'], volumeMounts: [{name: s, mountPath: /settings}]}
  volumes: [{name: s, configMap: {name: settings}}]
`)
	s.await("watching", "running", running("c"))
	m := &corev1.ConfigMap{}
	if err := s.Get(s.Context(), client.ObjectKey{Namespace: s.name, Name: "settings"}, m); err != nil {
		s.Fatal(err)
	}
	m.Data = map[string]string{"level": "2", "more": "x"}
	if err := s.Update(s.Context(), m); err != nil {
		s.Fatal(err)
	}
	testkit.Eventually(s.T, 2*time.Minute, "seen", func() bool { return s.pod("watching").Status.Phase == corev1.PodSucceeded })
	s.expectLog("watching", "c", "level", "more")
}

func initContainers(s *space) {
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: in-order}
spec:
  restartPolicy: OnFailure
  initContainers:
  - {name: first, image: none, command: [sh, -c, 'echo 1 >> /work/log; test -f /work/again || { touch /work/again; exit 1; }'], volumeMounts: [{name: work, mountPath: /work}]}
  - {name: second, image: none, command: [sh, -c, 'echo 2 >> /work/log'], volumeMounts: [{name: work, mountPath: /work}]}
  containers:
  - {name: c, image: none, command: [cat, /work/log], volumeMounts: [{name: work, mountPath: /work}]}
  volumes: [{name: work, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: fails}
spec:
  restartPolicy: Never
  initContainers: [{name: first, image: none, command: [sh, -c, exit 3]}]
  containers: [{name: c, image: none, command: [echo, never]}]
`)
	p := s.awaitPhase("in-order", corev1.PodSucceeded)
	if text := s.log("in-order", corev1.PodLogOptions{Container: "c"}); text != "1\n1\n2\n" {
		s.Errorf("the init containers ran as %q", text)
	}
	if status(p, "first").RestartCount != 1 || !status(p, "first").Ready {
		s.Errorf("%s", describe(p))
	}
	p = s.awaitPhase("fails", corev1.PodFailed)
	if e := ended(p, "first"); e == nil || e.ExitCode != 3 || e.Reason != "Error" {
		s.Errorf("%s", describe(p))
	}
	if w := status(p, "c").State.Waiting; w == nil || w.Reason != "PodInitializing" {
		s.Errorf("%s", describe(p))
	}
}

func sidecars(s *space) {
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: side}
spec:
  restartPolicy: Never
  initContainers:
  - name: helper
    image: none
    restartPolicy: Always
    command: [sh, -c, 'trap "echo helper ends >> /work/log; exit 0" TERM; echo helper >> /work/log; touch /work/up; while :; do sleep 0.05; done']
    startupProbe: {exec: {command: [test, -f, /work/up]}, periodSeconds: 1}
    volumeMounts: [{name: work, mountPath: /work}]
  containers:
  - {name: c, image: none, command: [sh, -c, 'echo main >> /work/log; cat /work/log'], volumeMounts: [{name: work, mountPath: /work}]}
  volumes: [{name: work, emptyDir: {}}]
`)
	p := s.awaitPhase("side", corev1.PodSucceeded)
	if text := s.log("side", corev1.PodLogOptions{Container: "c"}); text != "helper\nmain\n" {
		s.Errorf("the order is %q", text)
	}
	if e := ended(p, "helper"); e == nil || e.ExitCode != 0 {
		s.Errorf("%s", describe(p))
	}
}

func restarts(s *space) {
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: flaky}
spec:
  restartPolicy: OnFailure
  containers:
  - {name: c, image: none, command: [sh, -c, 'echo x >> /work/runs; echo run $(wc -l < /work/runs); test $(wc -l < /work/runs) -ge 3'], volumeMounts: [{name: work, mountPath: /work}]}
  volumes: [{name: work, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: always}
spec:
  restartPolicy: Always
  containers: [{name: c, image: none, command: ["true"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: never}
spec:
  restartPolicy: Never
  containers:
  - {name: good, image: none, command: ["true"]}
  - {name: bad, image: none, command: [sh, -c, 'kill -SEGV $$$$']}
`)
	p := s.await("flaky", "in back-off", func(p *corev1.Pod) bool {
		w := status(p, "c").State.Waiting
		return w != nil && w.Reason == "CrashLoopBackOff" && status(p, "c").RestartCount == 1
	})
	c := status(p, "c")
	if c.LastTerminationState.Terminated == nil || c.LastTerminationState.Terminated.ExitCode != 1 || p.Status.Phase != corev1.PodRunning {
		s.Errorf("%s", describe(p))
	}
	if !strings.HasPrefix(c.State.Waiting.Message, "back-off 10s restarting failed container=c pod=flaky_restarts(") {
		s.Errorf("the message is %q\n%s", c.State.Waiting.Message, describe(p))
	}
	s.awaitEvent("flaky", "BackOff", "Back-off restarting failed container c")
	if text := s.log("flaky", corev1.PodLogOptions{Previous: true}); text != "run 1\n" {
		s.Errorf("the log of the previous run is %q", text)
	}
	p = s.awaitPhase("flaky", corev1.PodSucceeded)
	before := status(p, "c").LastTerminationState.Terminated
	if status(p, "c").RestartCount != 2 || before == nil || ended(p, "c").StartedAt.Sub(before.FinishedAt.Time) < 9*time.Second {
		s.Errorf("%s", describe(p))
	}
	s.await("always", "restarted", func(p *corev1.Pod) bool {
		return status(p, "c").RestartCount >= 1 && p.Status.Phase == corev1.PodRunning
	})
	p = s.awaitPhase("never", corev1.PodFailed)
	if ended(p, "good").Reason != "Completed" || ended(p, "bad").ExitCode != 139 {
		s.Errorf("%s", describe(p))
	}
}

func missingOnHost(s *space) {
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: no-such-command}
spec:
  restartPolicy: Never
  containers: [{name: c, image: none, command: [no-such-command, -v]}]
---
apiVersion: v1
kind: Pod
metadata: {name: no-command}
spec:
  restartPolicy: Never
  containers: [{name: c, image: nginx}]
---
apiVersion: v1
kind: Pod
metadata: {name: no-such-volume}
spec:
  restartPolicy: Never
  containers: [{name: c, image: none, command: ["true"], volumeMounts: [{name: v, mountPath: /v}]}]
  volumes: [{name: v, nfs: {server: here, path: /}}]
---
apiVersion: v1
kind: Pod
metadata: {name: no-such-directory}
spec:
  restartPolicy: Never
  containers: [{name: c, image: none, command: ["true"], workingDir: /no/such/directory}]
`)
	p := s.awaitPhase("no-such-command", corev1.PodFailed)
	if e := ended(p, "c"); e == nil || e.Reason != "CommandNotFound" || e.ExitCode != 128 ||
		!strings.Contains(e.Message, `hostnode does not pull images and runs the commands of this host: command "no-such-command" not found on PATH`) {
		s.Errorf("%s", describe(p))
	}
	for name, part := range map[string]string{
		"no-command":     `container c has no command: hostnode does not pull images, so it does not know the command of image "nginx"`,
		"no-such-volume": "volume v has a type that hostnode does not support",
	} {
		p := s.awaitPhase(name, corev1.PodFailed)
		if p.Status.Reason != "NotSupportedByHostNode" || !strings.Contains(p.Status.Message, part) {
			s.Errorf("%s", describe(p))
		}
	}
	p = s.awaitPhase("no-such-directory", corev1.PodFailed)
	if e := ended(p, "c"); e == nil || e.Reason != "StartError" || !strings.Contains(e.Message, "/no/such/directory: no such directory") {
		s.Errorf("%s", describe(p))
	}
}

func missingObjects(s *space) {
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: waits}
spec:
  restartPolicy: Never
  containers:
  - {name: c, image: none, command: [sh, -c, 'echo $MODE'], env: [{name: MODE, valueFrom: {configMapKeyRef: {name: later, key: mode}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: waits-for-volume}
spec:
  restartPolicy: Never
  containers:
  - {name: c, image: none, command: [cat, /v/mode], volumeMounts: [{name: v, mountPath: /v}]}
  volumes: [{name: v, configMap: {name: later}}]
`)
	s.await("waits", "says why", func(p *corev1.Pod) bool {
		w := status(p, "c").State.Waiting
		return w != nil && w.Reason == "CreateContainerConfigError" && strings.Contains(w.Message, `configmaps "later" not found`) && p.Status.Phase == corev1.PodPending
	})
	s.awaitEvent("waits-for-volume", "FailedMount", `MountVolume.SetUp failed for volume "v"`)
	s.apply(`
apiVersion: v1
kind: ConfigMap
metadata: {name: later}
data: {mode: fast}
`)
	s.awaitPhase("waits", corev1.PodSucceeded)
	s.awaitPhase("waits-for-volume", corev1.PodSucceeded)
	s.expectLog("waits", "c", "fast")
}

func probes(s *space) {
	s.apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: none
    command: [%s]
    env: [{name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}, {name: %s, value: "$(IP):8080"}]
    ports: [{name: http, containerPort: 8080}]
    startupProbe: {tcpSocket: {port: http}, periodSeconds: 1, failureThreshold: 60}
    readinessProbe: {exec: {command: [test, -f, /state/ready]}, periodSeconds: 1}
    livenessProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 1, failureThreshold: 2, timeoutSeconds: 30}
    volumeMounts: [{name: state, mountPath: /state}]
  volumes: [{name: state, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: never-starts}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: none, command: [sleep, "600"], startupProbe: {exec: {command: ["false"]}, periodSeconds: 1, failureThreshold: 2}}
`, self(s.T), serverVariable))
	p := s.await("web", "started", func(p *corev1.Pod) bool { return status(p, "c").Started != nil && *status(p, "c").Started })
	if holds(p, corev1.PodReady) || status(p, "c").Ready {
		s.Errorf("%s", describe(p))
	}
	s.must("web", "c", "touch", "/state/ready")
	s.await("web", "ready", func(p *corev1.Pod) bool { return holds(p, corev1.PodReady) && holds(p, corev1.ContainersReady) })
	s.must("web", "c", "rm", "/state/ready")
	s.await("web", "not ready", func(p *corev1.Pod) bool { return !holds(p, corev1.PodReady) })
	s.awaitEvent("web", "Unhealthy", "Readiness probe failed: exit code 1")
	s.must("web", "c", "touch", "/state/sick")
	s.await("web", "restarted", func(p *corev1.Pod) bool { return status(p, "c").RestartCount >= 1 })
	s.awaitEvent("web", "Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 500")
	s.awaitEvent("web", "Killing", "Container c failed liveness probe, will be restarted")
	s.awaitPhase("never-starts", corev1.PodFailed)
	s.awaitEvent("never-starts", "Unhealthy", "Startup probe failed")
}

func hooksAndGrace(s *space) {
	out := s.TempDir()
	s.apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: polite}
spec:
  terminationGracePeriodSeconds: 60
  containers:
  - name: c
    image: none
    command: [sh, -c, 'trap "echo term >> /out/log; exit 0" TERM; while :; do sleep 0.05; done']
    lifecycle:
      postStart: {exec: {command: [sh, -c, 'echo postStart >> /out/log']}}
      preStop: {exec: {command: [sh, -c, 'echo preStop >> /out/log']}}
    volumeMounts: [{name: out, mountPath: /out}]
  volumes: [{name: out, hostPath: {path: %s}}]
---
apiVersion: v1
kind: Pod
metadata: {name: stubborn}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: none, command: [sh, -c, 'trap "" TERM; setsid sleep 4711 & while :; do sleep 0.05; done']}
`, out))
	s.await("polite", "ready", func(p *corev1.Pod) bool { return holds(p, corev1.PodReady) })
	s.await("stubborn", "ready", func(p *corev1.Pod) bool { return holds(p, corev1.PodReady) })
	s.remove("polite")
	if b, _ := os.ReadFile(filepath.Join(out, "log")); string(b) != "postStart\npreStop\nterm\n" {
		s.Errorf("the hooks and the signal came as %q", b)
	}
	s.remove("stubborn")
	if left := processes("sleep\x004711\x00"); len(left) > 0 {
		s.Errorf("its child processes are still running: %v", left)
	}
	s.awaitEvent("polite", "Killing", "Stopping container c")
}

// processes returns the processes with this command line.
func processes(cmdline string) []string {
	return processesThat(func(is string) bool { return is == cmdline })
}

// processesThat returns the processes whose command line satisfies is.
func processesThat(is func(cmdline string) bool) (pids []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range all {
		if b, _ := os.ReadFile(f); is(string(b)) {
			pids = append(pids, filepath.Base(filepath.Dir(f)))
		}
	}
	return pids
}

func force(s *space) {
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: gone}
spec:
  terminationGracePeriodSeconds: 600
  containers: [{name: c, image: none, command: [sh, -c, 'trap "" TERM; sleep 4712; sleep 4712']}]
`)
	s.await("gone", "running", running("c"))
	testkit.Eventually(s.T, within, "its process is there", func() bool { return len(processes("sleep\x004712\x00")) > 0 })
	s.remove("gone", client.GracePeriodSeconds(0))
	testkit.Eventually(s.T, within, "its processes are gone", func() bool { return len(processes("sleep\x004712\x00")) == 0 })
}

func terminationMessages(s *space) {
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: talks}
spec:
  restartPolicy: Never
  containers:
  - {name: usual, image: none, command: [sh, -c, 'printf loss=0.1 > /dev/termination-log']}
  - {name: own, image: none, terminationMessagePath: /some/where/message, command: [sh, -c, 'printf own > /some/where/message; printf x > $K8S4R_TERMINATION_LOG']}
  - {name: log, image: none, terminationMessagePolicy: FallbackToLogsOnError, command: [sh, -c, 'echo it broke; exit 1']}
  - {name: silent, image: none, command: [sh, -c, 'echo it broke; exit 1']}
`)
	p := s.awaitPhase("talks", corev1.PodFailed)
	for container, want := range map[string]string{"usual": "loss=0.1", "own": "x", "log": "it broke\n", "silent": ""} {
		if e := ended(p, container); e == nil || e.Message != want {
			s.Errorf("%s ended as %+v, want message %q", container, e, want)
		}
	}
}

func limits(s *space) {
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: greedy}
spec:
  restartPolicy: Never
  containers:
  - {name: c, image: none, command: [sh, -c, 'head -c 300000000 /dev/zero | tail'], resources: {limits: {memory: 32Mi}}}
`)
	p := s.awaitPhase("greedy", corev1.PodFailed)
	if e := ended(p, "c"); e == nil || e.Reason != "OOMKilled" || e.ExitCode != 137 {
		s.Errorf("%s", describe(p))
	}
}

func deadline(s *space) {
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: late}
spec:
  restartPolicy: Never
  activeDeadlineSeconds: 10
  containers: [{name: c, image: none, command: [sleep, "600"]}]
`)
	p := s.awaitPhase("late", corev1.PodFailed)
	if p.Status.Reason != "DeadlineExceeded" || ended(p, "c") == nil {
		s.Errorf("%s", describe(p))
	}
}

func users(s *space) {
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: other}
spec:
  restartPolicy: Never
  securityContext: {runAsUser: 4711, runAsGroup: 4712, fsGroup: 4713}
  containers:
  - name: c
    image: none
    command: [sh, -c, 'id -u; id -g; echo $HOME; echo x > /v/made && stat -c %g /v/made; cat /var/run/secrets/kubernetes.io/serviceaccount/namespace; echo; printf done > /dev/termination-log']
    volumeMounts: [{name: v, mountPath: /v}]
  volumes: [{name: v, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: not-root}
spec:
  restartPolicy: Never
  containers: [{name: c, image: none, command: [id], securityContext: {runAsNonRoot: true}}]
---
apiVersion: v1
kind: Pod
metadata: {name: read-only}
spec:
  restartPolicy: Never
  containers: [{name: c, image: none, command: [sh, -c, '(echo x > /etc/new) 2>/dev/null || echo read-only; echo x > here && pwd'], securityContext: {readOnlyRootFilesystem: true}}]
`)
	p := s.awaitPhase("other", corev1.PodSucceeded)
	s.expectLog("other", "c", "4711", "4712", "/", "4713", "users")
	if ended(p, "c").Message != "done" {
		s.Errorf("%s", describe(p))
	}
	s.await("not-root", "cannot be created", func(p *corev1.Pod) bool {
		w := status(p, "c").State.Waiting
		return w != nil && w.Reason == "CreateContainerConfigError" && strings.Contains(w.Message, "set runAsUser")
	})
	s.awaitPhase("read-only", corev1.PodSucceeded)
	s.expectLog("read-only", "c", "read-only", "/pod")
}

func logs(s *space) {
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: talks}
spec:
  restartPolicy: Never
  containers:
  - {name: c, image: none, command: [sh, -c, 'echo one; echo two >&2; printf thr; until test -f /work/go; do sleep 0.05; done; echo ee; exit 5'], volumeMounts: [{name: work, mountPath: /work}]}
  volumes: [{name: work, emptyDir: {}}]
`)
	s.await("talks", "running", running("c"))
	follow := make(chan string, 1)
	go func() {
		b, err := s.set.CoreV1().Pods(s.name).GetLogs("talks", &corev1.PodLogOptions{Follow: true}).DoRaw(s.Context())
		follow <- fmt.Sprint(string(b), err)
	}()
	testkit.Eventually(s.T, within, "an unfinished line is seen", func() bool {
		return strings.HasSuffix(s.log("talks", corev1.PodLogOptions{}), "thr")
	})
	s.must("talks", "c", "touch", "/work/go")
	if text := <-follow; text != "one\ntwo\nthree\n<nil>" {
		s.Errorf("the followed log is %q", text)
	}
	s.awaitPhase("talks", corev1.PodFailed)
	two, few := int64(2), int64(5)
	if text := s.log("talks", corev1.PodLogOptions{TailLines: &two}); text != "two\nthree\n" {
		s.Errorf("the last two lines are %q", text)
	}
	if text := s.log("talks", corev1.PodLogOptions{LimitBytes: &few}); text != "one\nt" {
		s.Errorf("the first five bytes are %q", text)
	}
	first, _, _ := strings.Cut(s.log("talks", corev1.PodLogOptions{Timestamps: true}), " one\n")
	if _, err := time.Parse(time.RFC3339Nano, first); err != nil {
		s.Errorf("the stamp is %q", first)
	}
	future := metav1.NewTime(time.Now().Add(time.Hour))
	if text := s.log("talks", corev1.PodLogOptions{SinceTime: &future}); text != "" {
		s.Errorf("the log since a future time is %q", text)
	}
	out, err := s.RunProgram("k8s4r", "kubectl", "logs", "-n", s.name, "talks", "--tail=1")
	if err != nil || out != "three\n" {
		s.Errorf("kubectl logs prints %q (%v)", out, err)
	}
}

func names(s *space) {
	server := func(name string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, labels: {app: %[1]s}}
spec:
  hostname: %[1]s
  subdomain: group
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: none
    command: [%[2]s]
    env: [{name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}, {name: %[3]s, value: "$(IP):8090"}]
    readinessProbe: {httpGet: {port: 8090}, periodSeconds: 1}`, name, self(s.T), serverVariable)
	}
	service := func(name, app, ip string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %s}
spec: {selector: {app: %s}, clusterIP: %s, ports: [{port: 8090}]}`, name, app, ip)
	}
	s.apply(strings.Join([]string{
		service("group", "none", "None"), service("web", "a", `""`), server("a"), server("b"), `
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  restartPolicy: Never
  hostAliases: [{ip: 127.0.0.9, hostnames: [alias]}]
  containers: [{name: c, image: none, command: [sleep, "600"]}]`,
	}, "\n---\n"))
	a := s.await("a", "ready", func(p *corev1.Pod) bool { return holds(p, corev1.PodReady) })
	b := s.await("b", "ready", func(p *corev1.Pod) bool { return holds(p, corev1.PodReady) })
	if a.Status.PodIP == b.Status.PodIP || !strings.HasPrefix(a.Status.PodIP, "10.244.78.") || a.Status.HostIP != "127.0.0.1" {
		s.Errorf("the addresses are %s and %s", a.Status.PodIP, b.Status.PodIP)
	}
	s.await("client", "running", running("c"))
	for name, want := range map[string]string{
		"http://web:8090": "a", "http://web.names.svc.cluster.local:8090": "a", "http://b.group:8090": "b", "http://a.group.names.svc:8090": "a",
	} {
		testkit.EventuallyNoError(s.T, within, name, func() error {
			out, _, err := s.exec("client", "c", "", false, "curl", "-s", name)
			if err == nil && out != "hello from "+want {
				err = errors.New(out)
			}
			return err
		})
	}
	if out := s.must("client", "c", "getent", "hosts", "alias"); !strings.HasPrefix(out, "127.0.0.9") {
		s.Errorf("the alias is %q", out)
	}
	if out := s.must("a", "c", "hostname"); out != "a\n" {
		s.Errorf("the host name is %q", out)
	}
}

// exitCode returns the exit code of a command that was run in a container.
func exitCode(err error) int {
	if e, ok := errors.AsType[exec.CodeExitError](err); ok {
		return e.ExitStatus()
	}
	return -1
}
