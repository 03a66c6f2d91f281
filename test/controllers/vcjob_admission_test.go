package controllers

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// TestVCJob_Admission tests what the policy rejects in Jobs and in JobTemplates.
func TestVCJob_Admission(t *testing.T) {
	t.Parallel()
	s := share(t, podServer, onlyVCJob).namespace(t, "admission")
	awaitPolicies(t, s)
	policies := func(p ...batchv1.LifecyclePolicy) func(*batchv1.JobSpec) {
		return func(j *batchv1.JobSpec) { j.Policies = p }
	}
	plugins := func(name string, args ...string) func(*batchv1.JobSpec) {
		return func(j *batchv1.JobSpec) { j.Plugins = map[string][]string{name: append([]string{}, args...)} }
	}
	hold := func(names ...string) func(*batchv1.JobSpec) {
		return func(j *batchv1.JobSpec) { j.Tasks[0].DependsOn = &batchv1.DependsOn{Name: names} }
	}
	zero, two, nine := int32(0), int32(2), int32(9)
	minute, soon := batchv1.NewDuration(time.Minute), batchv1.Duration("soon")
	longest, tooLong := batchv1.Duration("999999h9999999m999999999s"), batchv1.Duration("9999999h")
	const failed, abort = batchv1.PodFailedEvent, batchv1.AbortJobAction
	for _, c := range []struct {
		name string
		in   func(*batchv1.JobSpec)
		want string // empty: accepted
	}{
		{"a plain one", func(*batchv1.JobSpec) {}, ""},
		{"no task", func(j *batchv1.JobSpec) { j.Tasks = nil }, "spec.tasks: a Job needs at least one task"},
		{"twins", func(j *batchv1.JobSpec) { j.Tasks = append(j.Tasks, vctask("t", 1)) }, "several tasks are named t"},
		{"a name that no Pod can have", func(j *batchv1.JobSpec) { j.Tasks[0].Name = "A_b" }, `spec.tasks[].name: "A_b" cannot be part of a Pod name`},
		{"a task that needs more than it has", func(j *batchv1.JobSpec) { j.Tasks[0].MinAvailable = &nine }, "spec.tasks[].minAvailable of t: greater than its replicas"},
		{"a Job that needs more than it has", func(j *batchv1.JobSpec) { j.MinAvailable = 9 }, "spec.minAvailable: 9 is greater than the sum of all replicas, which is 2"},
		{"event and exit code", policies(batchv1.LifecyclePolicy{Event: failed, ExitCode: &two, Action: abort}), "set exactly one of event (or events) and exitCode"},
		{"neither event nor exit code", policies(batchv1.LifecyclePolicy{Action: abort}), "set exactly one of event (or events) and exitCode"},
		{"exit code 0", policies(batchv1.LifecyclePolicy{ExitCode: &zero, Action: abort}), "exitCode: 0 is not a failure"},
		{"an exit code twice", policies(batchv1.LifecyclePolicy{ExitCode: &two, Action: abort}, batchv1.LifecyclePolicy{ExitCode: &two, Action: abort}), "the same exit code is listed twice"},
		{"an event twice", policies(on(failed, abort), batchv1.LifecyclePolicy{Events: []batchv1.Event{batchv1.PodEvictedEvent, failed}, Action: abort}), "two policies list the same event"},
		{"an event twice in one policy", policies(batchv1.LifecyclePolicy{Events: []batchv1.Event{batchv1.PodEvictedEvent, failed, batchv1.PodEvictedEvent}, Action: abort}), ""},
		{"an event in both fields of one policy", policies(batchv1.LifecyclePolicy{Event: failed, Events: []batchv1.Event{failed}, Action: abort}), ""},
		{"an event in two lists", func(j *batchv1.JobSpec) {
			j.Policies, j.Tasks[0].Policies = []batchv1.LifecyclePolicy{on(failed, abort)}, []batchv1.LifecyclePolicy{on(failed, abort)}
		}, ""},
		{"any event and another", policies(on(batchv1.AnyEvent, abort), on(failed, abort)), "* matches every event"},
		{"any event and an exit code", policies(on(batchv1.AnyEvent, abort), batchv1.LifecyclePolicy{ExitCode: &two, Action: abort}), ""},
		{"an internal event", policies(on(batchv1.OutOfSyncEvent, abort)), "OutOfSync is not an event for policies"},
		{"an internal action", policies(on(failed, batchv1.SyncJobAction)), "SyncJob is not an action for policies"},
		{"no action", policies(batchv1.LifecyclePolicy{Event: failed}), "(none) is not an action for policies"},
		{"an unknown event", policies(on("Boredom", abort)), "Boredom"},
		{"pending without a timeout", policies(on(batchv1.PodPendingEvent, abort)), "a policy for PodPending needs a timeout"},
		{"pending with a timeout", policies(batchv1.LifecyclePolicy{Event: batchv1.PodPendingEvent, Action: abort, Timeout: minute}), ""},
		{"a timeout that is no duration", policies(batchv1.LifecyclePolicy{Event: failed, Action: abort, Timeout: &soon}), "timeout: Invalid value: \"soon\""},
		{"the longest timeout", policies(batchv1.LifecyclePolicy{Event: failed, Action: abort, Timeout: &longest}), ""},
		{"a timeout that overflows", policies(batchv1.LifecyclePolicy{Event: failed, Action: abort, Timeout: &tooLong}), "timeout: Invalid value: \"9999999h\""},
		{"an estimate that is no duration", func(j *batchv1.JobSpec) { j.RunningEstimate = &soon }, "runningEstimate: Invalid value: \"soon\""},
		{"a task's policy is validated, too", func(j *batchv1.JobSpec) {
			j.Tasks[0].Policies = []batchv1.LifecyclePolicy{{ExitCode: &zero, Action: abort}}
		}, "exitCode: 0 is not a failure"},
		{"an unknown plugin", plugins("nosuch"), "spec.plugins: unknown plugin nosuch; supported are env, svc, ssh, tensorflow, pytorch, mpi, ray and hcclrank"},
		{"env with an argument", plugins("env", "--x"), "spec.plugins.env: --x is not a valid argument; it takes none"},
		{"svc", plugins("svc", "--publish-not-ready-addresses=true", "-disable-network-policy"), ""},
		{"a flag that svc does not have", plugins("svc", "--fast"), "spec.plugins.svc: --fast is not a valid argument"},
		{"a text without dashes", plugins("svc", "fast"), "spec.plugins.svc: a text is not a valid argument"},
		{"ssh", plugins("ssh", "--ssh-key-file-path=/keys", "--ssh-private-key=-----BEGIN RSA PRIVATE KEY-----\nx\n", "--ssh-public-key", "ssh-rsa x", "-ssh-port=2222"), ""},
		{"a key after its flag", plugins("ssh", "--ssh-private-key", "-----BEGIN RSA PRIVATE KEY-----\nx\n"), ""},
		{"a relative path of keys", plugins("ssh", "--ssh-key-file-path=keys"), "spec.plugins.ssh: --ssh-key-file-path is not a valid argument"},
		{"a port of ssh that is no number", plugins("ssh", "--ssh-port=ssh"), "spec.plugins.ssh: --ssh-port is not a valid argument"},
		{"a port of ssh that is out of range", plugins("ssh", "--ssh-port=-1"), ""},
		{"a flag that ssh does not have", plugins("ssh", "--ssh-privat-key=SECRET"), "spec.plugins.ssh: --ssh-privat-key is not a valid argument"},
		{"a key in the wrong place", plugins("tensorflow", "-----BEGIN RSA PRIVATE KEY-----\nx\n"), "spec.plugins.tensorflow: a text is not a valid argument"},
		{"tensorflow", plugins("tensorflow", "--ps=t", "--worker=w", "--chief=c", "--evaluator=e", "--port=2222"), ""},
		{"a port that is no number", plugins("tensorflow", "--port=http"), "spec.plugins.tensorflow: --port is not a valid argument"},
		{"pytorch", plugins("pytorch", "--master=t", "--worker=w", "--port=1", "--wait-master-enabled", "--wait-master-timeout=5", "--wait-master-image=nc"), ""},
		{"a timeout that is no number", plugins("pytorch", "--wait-master-timeout=5s"), "spec.plugins.pytorch: --wait-master-timeout is not a valid argument"},
		{"mpi", plugins("mpi", "--master=t", "--worker=w", "--port", "22"), ""},
		{"a flag that mpi does not have", plugins("mpi", "--head=t"), "spec.plugins.mpi: --head is not a valid argument; allowed are --master, --worker and --port"},
		{"ray", plugins("ray", "--head=t", "--headContainer=c", "--worker=w", "--workerContainer=c", "--port=1", "--dashboardPort=2", "--clientPort=3"), ""},
		{"the argument of ray in its user guide", plugins("ray", "--head=t", "--clientServerPort=3"), ""},
		{"ray without a head", plugins("ray"), "spec.plugins.ray: no task named head with a replica"},
		{"ray with another head", plugins("ray", "--head=x"), "spec.plugins.ray: no task named x with a replica"},
		{"hcclrank", plugins("hcclrank", "--master=t", "--worker=w"), ""},
		{"a flag that hcclrank does not have", plugins("hcclrank", "--port=1"), "spec.plugins.hcclrank: --port is not a valid argument"},
		{"waits for itself", hold("t"), "spec.tasks[].dependsOn of t: a task cannot depend on itself"},
		{"depends on a task that does not exist", hold("nosuch"), "spec.tasks[].dependsOn of t: unknown task"},
		{"a hard topology", func(j *batchv1.JobSpec) { j.NetworkTopology = &batchv1.NetworkTopologySpec{} }, "mode hard requires PodGroups"},
		{"a soft topology", func(j *batchv1.JobSpec) { j.NetworkTopology = &batchv1.NetworkTopologySpec{Mode: "soft"} }, ""},
		{"a mount path with a colon", func(j *batchv1.JobSpec) { j.Volumes = []batchv1.VolumeSpec{{MountPath: "/a:b"}} }, "spec.volumes[].mountPath"},
		{"two volumes at one path", func(j *batchv1.JobSpec) {
			j.Volumes = []batchv1.VolumeSpec{{MountPath: "/a", VolumeClaimName: "x"}, {MountPath: "/b", VolumeClaimName: "x"}, {MountPath: "/a", VolumeClaimName: "y"}}
		}, "spec.volumes[].mountPath: /a is the path of two volumes"},
		{"a volume without a claim", func(j *batchv1.JobSpec) { j.Volumes = []batchv1.VolumeSpec{{MountPath: "/a"}} }, "spec.volumes[]: a volume needs a claim; set volumeClaimName"},
		{"volumes with claims", func(j *batchv1.JobSpec) {
			j.Volumes = []batchv1.VolumeSpec{{MountPath: "/a", VolumeClaimName: "x"}, {MountPath: "/b", VolumeClaim: &corev1.PersistentVolumeClaimSpec{}}}
		}, ""},
		{"a partition of nothing", func(j *batchv1.JobSpec) {
			j.Tasks[0].PartitionPolicy = &batchv1.PartitionPolicySpec{TotalPartitions: 1}
		}, "partitionSize: must be at least 1"},
		{"two hundred tasks", func(j *batchv1.JobSpec) { j.Tasks = many(200) }, ""},
		{"five hundred large tasks", func(j *batchv1.JobSpec) { j.Tasks = many(500) }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := batchv1.JobSpec{Tasks: []batchv1.TaskSpec{vctask("t", 2)}}
			c.in(&spec)
			meta := metav1.ObjectMeta{Namespace: s.name, GenerateName: "j-"}
			checkError(t, "Job", c.want, s.Create(t.Context(), &batchv1.Job{ObjectMeta: meta, Spec: spec}))
			checkError(t, "JobTemplate", c.want, s.Create(t.Context(), &flowv1.JobTemplate{ObjectMeta: meta, Spec: spec}))
		})
	}
	t.Run("a name that no Service can have", func(t *testing.T) {
		spec := batchv1.JobSpec{Tasks: []batchv1.TaskSpec{vctask("t", 1)}, Plugins: map[string][]string{"svc": {}}}
		err := s.Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "1.j"}, Spec: spec})
		checkError(t, "Job", "metadata.name: 1.j cannot be the name of the Service", err)
	})
}

// An object whose quantities cannot be parsed would prevent the controllers from reading all others.
func TestAdmission_RefusesQuantitiesThatCannotBeParsed(t *testing.T) {
	t.Parallel()
	s := share(t, podServer, onlyVCJob).namespace(t, "quantities")
	for kind, text := range map[string]string{
		"vcjob":      `{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, spec: {tasks: [{name: a, replicas: 1, template: {spec: {containers: [{name: a, image: a, resources: {requests: {cpu: QUANTITY}}}]}}}]}}`,
		"template":   `{apiVersion: flow.volcano.sh/v1alpha1, kind: JobTemplate, spec: {tasks: [{name: a, replicas: 1, template: {spec: {containers: [{name: a, image: a, resources: {requests: {cpu: QUANTITY}}}]}}}]}}`,
		"raycluster": `{apiVersion: ray.io/v1, kind: RayCluster, spec: {headGroupSpec: {template: {spec: {containers: [{name: a, image: a, resources: {requests: {cpu: QUANTITY}}}]}}}}}`,
	} {
		for quantity, want := range map[string]string{`"1e3"`: "", `"1e1.5"`: "cpu: Invalid value", `"1e99999999999999999999"`: "cpu: Invalid value"} {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "QUANTITY", quantity)), &o.Object); err != nil {
				t.Fatal(err)
			}
			o.SetNamespace(s.name)
			o.SetGenerateName("q-")
			checkError(t, kind+" with "+quantity, want, s.Create(t.Context(), o, client.DryRunAll))
		}
	}
}

// So would a port that is no int32: the schema of a number or a text has no range of its own.
func TestAdmission_RefusesPortsThatCannotBeParsed(t *testing.T) {
	t.Parallel()
	s := share(t, podServer, onlyVCJob).namespace(t, "ports")
	const pod = `template: {spec: {containers: [{name: a, image: a, readinessProbe: {tcpSocket: {port: PORT}}}]}}`
	const head = `{apiVersion: ray.io/v1, kind: RayCluster, spec: {headGroupSpec: {template: {spec: {containers: [{name: a, image: a}]}}}, networkPolicy: `
	for kind, text := range map[string]string{
		"vcjob":               `{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, spec: {tasks: [{name: a, replicas: 1, ` + pod + `}]}}`,
		"template":            `{apiVersion: flow.volcano.sh/v1alpha1, kind: JobTemplate, spec: {tasks: [{name: a, replicas: 1, ` + pod + `}]}}`,
		"raycluster":          `{apiVersion: ray.io/v1, kind: RayCluster, spec: {headGroupSpec: {` + pod + `}}}`,
		"older raycluster":    `{apiVersion: ray.io/v1alpha1, kind: RayCluster, spec: {headGroupSpec: {` + pod + `}}}`,
		"ingress of a policy": head + `{head: {ingressRules: [{ports: [{port: PORT}]}]}}}}`,
		"egress of a policy":  head + `{workerGroups: [{groupName: a, egressRules: [{ports: [{port: PORT}]}]}]}}}`,
	} {
		for port, want := range map[string]string{"80": "", "http": "", "3000000000": "port: Invalid value", "-3000000000": "port: Invalid value"} {
			o := s.object(strings.ReplaceAll(text, "PORT", port))
			checkError(t, kind+" with "+port, want, s.Create(t.Context(), o, client.DryRunAll))
		}
	}
}

func checkError(t *testing.T, kind, want string, err error) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: %v", kind, err)
	}
}

// many tasks, each with policies and a template that is not small.
func many(n int) []batchv1.TaskSpec {
	var all []batchv1.TaskSpec
	for i := range n {
		t := vctask(fmt.Sprintf("task-%d", i), 1, on(batchv1.PodFailedEvent, batchv1.RestartTaskAction), on(batchv1.PodEvictedEvent, batchv1.RestartTaskAction))
		if i > 0 {
			t.DependsOn = &batchv1.DependsOn{Name: []string{fmt.Sprintf("task-%d", i-1)}}
		}
		for v := range 10 {
			t.Template.Spec.Containers[0].Env = append(t.Template.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", v), Value: strings.Repeat("x", 50)})
		}
		all = append(all, t)
	}
	return all
}

// TestVCJob_Updates tests which fields of a Job can change.
func TestVCJob_Updates(t *testing.T) {
	t.Parallel()
	s := share(t, podServer, onlyVCJob).namespace(t, "edits")
	awaitPolicies(t, s)
	one := int32(1)
	s.vcjob("j", func(j *batchv1.Job) { j.Spec.Tasks = append(j.Spec.Tasks, many(150)...) }, vctask("t", 2), vctask("", 1))
	for _, c := range []struct {
		name string
		in   func(*batchv1.JobSpec)
		want string
	}{
		{"minAvailable, priority and replicas may", func(j *batchv1.JobSpec) {
			j.MinAvailable, j.PriorityClassName, j.Tasks[0].Replicas, j.Tasks[0].MinAvailable = 1, "high", 3, &one
		}, ""},
		{"maxRetry may not", func(j *batchv1.JobSpec) { j.MaxRetry = 9 }, "spec: maxRetry cannot be changed on an existing Job; only minAvailable, priorityClassName, and the replicas and minAvailable of tasks can"},
		{"plugins and ttl may not", func(j *batchv1.JobSpec) {
			j.Plugins, j.TTLSecondsAfterFinished = map[string][]string{"env": {}}, &one
		}, "spec: plugins, ttlSecondsAfterFinished cannot be changed on an existing Job"},
		{"a template may not", func(j *batchv1.JobSpec) { j.Tasks[0].Template.Spec.Containers[0].Image = "other" }, "spec.tasks: only replicas and minAvailable of t can change"},
		{"nor that of a task without a name", func(j *batchv1.JobSpec) { j.Tasks[1].Template.Spec.Containers[0].Image = "other" }, "spec.tasks: only replicas and minAvailable of default1 can change"},
		{"a task may not come", func(j *batchv1.JobSpec) { j.Tasks = append(j.Tasks, vctask("u", 1)) }, "tasks (their number)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var err error
			testkit.Eventually(t, waitTimeout, "an answer that is no conflict", func() bool {
				var j batchv1.Job
				s.must(s.Get(t.Context(), s.key("j"), &j))
				c.in(&j.Spec)
				err = s.Update(t.Context(), &j)
				return err == nil || !strings.Contains(err.Error(), "the object has been modified")
			})
			checkError(t, "Job", c.want, err)
		})
	}
}

// TestVCJob_Warnings tests warnings about settings without effect.
func TestVCJob_Warnings(t *testing.T) {
	t.Parallel()
	s := share(t, podServer, onlyVCJob).namespace(t, "warnings")
	awaitPolicies(t, s)
	warnings := &warningRecorder{}
	recorded := &space{T: t, system: s.withWarnings(warnings), name: s.name}
	recorded.vcjob("j", func(j *batchv1.Job) {
		j.Spec.Plugins = map[string][]string{
			"pytorch":    {"--master=x", "--wait-master-timeout=60", "--wait-master-enabled=false"},
			"mpi":        {"--master=t", "--worker=y"},
			"tensorflow": {"--ps=default1", "--worker=t", "--chief", "z"},
			"ray":        {"--head=t"},
		}
	}, vctask("t", 1))
	recorded.vcjob("k", func(j *batchv1.Job) { j.Spec.Plugins = map[string][]string{"ssh": {}} }, vctask("t", 2))
	soft := &batchv1.NetworkTopologySpec{Mode: "soft"}
	recorded.vcjob("l", func(j *batchv1.Job) { j.Spec.Tasks[0].TopologyPolicy = "restricted" }, vctask("t", 1))
	recorded.vcjob("m", func(j *batchv1.Job) { j.Spec.NetworkTopology = soft }, vctask("t", 1))
	recorded.vcjob("n", func(j *batchv1.Job) {
		j.Spec.Tasks[0].PartitionPolicy = &batchv1.PartitionPolicySpec{TotalPartitions: 1, PartitionSize: 1, NetworkTopology: soft}
	}, vctask("t", 1))
	all := strings.Join(warnings.list(), "\n")
	for _, want := range []string{
		"spec.plugins: no task is the master of pytorch, so no variables are set",
		"spec.plugins: pytorch --master=x, mpi --worker=y: no effect, because no task has this name",
		"spec.plugins.pytorch: --wait-master-timeout: no effect without --wait-master-enabled",
		"spec.plugins.ray: task t has no container head, so Ray is not started there",
		"spec.plugins.ssh: the Pods cannot reach each other by name without svc",
		"spec.tasks[].topologyPolicy: no effect, because PodGroups are not supported",
		"spec.networkTopology: no effect, because PodGroups are not supported",
		"spec.tasks[].partitionPolicy.networkTopology: no effect, because PodGroups are not supported",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("not warned of %q: %s", want, all)
		}
	}
	t.Run("the examples need none", func(t *testing.T) { recorded.vcExamples(t, warnings) })
}

// TestQueue_WarnsThatNothingReconcilesIt creates a Queue by Volcano's definition.
func TestQueue_WarnsThatNothingReconcilesIt(t *testing.T) {
	t.Parallel()
	s := share(t, podServer, onlyVCJob).namespace(t, "queues")
	awaitPolicies(t, s)
	crd := s.object(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: queues.scheduling.volcano.sh}, spec: {
		group: scheduling.volcano.sh, scope: Cluster, names: {kind: Queue, plural: queues, singular: queue, listKind: QueueList},
		versions: [{name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`)
	crd.SetNamespace("")
	crd.SetGenerateName("")
	s.must(s.Create(t.Context(), crd))
	warnings := &warningRecorder{}
	recorded := s.withWarnings(warnings)
	const want = "no controller of K8s4r reconciles Queues: status.state stays empty"
	testkit.EventuallyNoError(t, waitTimeout, "the creation of a Queue is answered with a warning", func() error {
		q := s.object(`{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, spec: {weight: 1}}`)
		q.SetNamespace("")
		if err := recorded.Create(t.Context(), q); err != nil {
			return err
		}
		if all := strings.Join(warnings.list(), "\n"); !strings.Contains(all, want) {
			return fmt.Errorf("warnings %q", all)
		}
		return nil
	})
}

// vcExamples tests that the examples are accepted without warnings.
func (s *space) vcExamples(t *testing.T, warnings *warningRecorder) {
	before := len(warnings.list())
	files, err := filepath.Glob("../../examples/vcjob*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var j batchv1.Job
		if err := yaml.UnmarshalStrict(data, &j); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		j.Namespace = s.name
		s.must(s.Create(t.Context(), &j))
		s.awaitVCJob(j.Name, batchv1.JobPending)
	}
	if found := warnings.list()[before:]; len(found) > 0 {
		t.Errorf("unexpected warnings %v", found)
	}
}
