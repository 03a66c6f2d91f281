package cli

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/cli/doctor"
	"k8s4r.io/k8s4r/internal/core/taskstate"
	"k8s4r.io/k8s4r/internal/platform/certexpiry"
	"k8s4r.io/k8s4r/internal/platform/crds"
	"k8s4r.io/k8s4r/internal/platform/restore"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// newInstalledBench returns a bench with our definitions installed. change may replace a
// definition, or remove it by returning nil.
func newInstalledBench(t *testing.T, change map[string]func(*unstructured.Unstructured) *unstructured.Unstructured, objects ...client.Object) *bench {
	t.Helper()
	ours, err := doctor.OurDefinitions()
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, objects...)
	for _, crd := range ours {
		name := crd.GetName()
		crd = &unstructured.Unstructured{Object: maps.Clone(crd.Object)}
		crd.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}}
		if f := change[name]; f != nil {
			crd = f(crd.DeepCopy())
		}
		if crd != nil {
			b.definitions[name] = crd
		}
	}
	return b
}

// lease returns a Lease that its holder renewed ago.
func lease(namespace, name, by string, ago time.Duration) client.Object {
	at := metav1.NewMicroTime(noon.Add(-ago))
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &by, RenewTime: &at}}
}

// unauthenticatedRobot returns a robot whose condition Authenticated is False.
func unauthenticatedRobot(name, reason string) client.Object {
	return &robotv1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Status: robotv1.RobotStatus{Conditions: []metav1.Condition{
		{Type: robotv1.ConditionAuthenticated, Status: metav1.ConditionFalse, Reason: reason},
	}}}
}

// runningPrograms returns the Leases of manager and server.
func runningPrograms() []client.Object {
	return []client.Object{lease("k8s4r-system", "k8s4r-manager", "pod-1", 2*time.Second), lease("k8s4r-system", "k8s4r-server", "pod-2", time.Second)}
}

const day = 24 * time.Hour

// publishedCertificates returns the ConfigMap of certificates of a year or more by the time left.
func publishedCertificates(t *testing.T, left map[string]time.Duration) client.Object {
	t.Helper()
	data := map[string]string{}
	for name, d := range left {
		text, err := json.Marshal(certexpiry.Validity{NotBefore: noon.Add(d - max(d, 365*day)), NotAfter: noon.Add(d)})
		if err != nil {
			t.Fatal(err)
		}
		data[name] = string(text)
	}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "k8s4r-system", Name: certexpiry.ConfigMapName}, Data: data}
}

// restoreHold returns what k8s4r up publishes while the robots have not reported after a restore.
func restoreHold() client.Object {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "k8s4r-system", Name: restore.ConfigMapName},
		Data: map[string]string{"reason": taskstate.ReasonAwaitingJournals, "backupAt": "2025-12-31T22:00:00Z"}}
}

// setWebhookResponse sets the API server's response to the workflow that doctor creates.
func (b *bench) setWebhookResponse(err error) {
	b.hooks.Create = func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return err }
}

// rejectsCycles is the response of the webhook.
var rejectsCycles = apierrors.NewForbidden(flows, "", errors.New(`admission webhook "validatejobflow.volcano.sh" denied the request: jobflow Flow is not DAG`))

var flows = flowKind.version.WithResource(flowKind.plural).GroupResource()

func TestDoctor_PrintsFindings(t *testing.T) {
	theirs := func(crd *unstructured.Unstructured) *unstructured.Unstructured {
		crd.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "Helm"})
		return crd
	}
	lacking := func(fields ...string) func(*unstructured.Unstructured) *unstructured.Unstructured {
		return func(crd *unstructured.Unstructured) *unstructured.Unstructured {
			versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
			for _, f := range fields {
				unstructured.RemoveNestedField(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "spec", "properties", f)
			}
			_ = unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions")
			return crd
		}
	}
	type changes = map[string]func(*unstructured.Unstructured) *unstructured.Unstructured
	gone := func(*unstructured.Unstructured) *unstructured.Unstructured { return nil }
	unserved := func(crd *unstructured.Unstructured) *unstructured.Unstructured {
		delete(crd.Object, "status")
		return crd
	}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "k8s4r-vcjobs",
		Annotations: map[string]string{crds.AnnotationOnlyWith: "jobs.batch.volcano.sh"}}}
	for _, c := range []struct {
		name     string
		change   changes
		more     []client.Object
		version  string
		response error
		want     int
	}{
		{name: "well", more: append(runningPrograms(), policy.DeepCopy()), response: rejectsCycles},
		{name: "beside-volcano", more: append(runningPrograms(), policy.DeepCopy(), lease("volcano-system", "vc-controller-manager", "vc-0", 3*time.Second), lease("ray", "ray-operator-leader", "ray-0", time.Second)),
			change: changes{
				"jobs.batch.volcano.sh": func(crd *unstructured.Unstructured) *unstructured.Unstructured { return theirs(crd) },
				"jobflows.flow.volcano.sh": func(crd *unstructured.Unstructured) *unstructured.Unstructured {
					return theirs(lacking("suspend", "params")(crd))
				},
				"robots.robot.k8s4r.io": lacking("drain"),
			}, response: rejectsCycles},
		{name: "nothing-works", more: []client.Object{lease("k8s4r-system", "k8s4r-manager", "pod-1", time.Hour), lease("x", "vc-controller-manager", "vc-0", time.Hour)},
			change:   changes{"tasks.robot.k8s4r.io": gone, "jobs.robot.k8s4r.io": unserved},
			response: apierrors.NewInternalError(errors.New(`failed calling webhook "validatejobflow.volcano.sh": connection refused`)), want: ExitFailed},
		{name: "in-up", version: "v0.0.0-master+$Format:%H$", more: []client.Object{lease("k8s4r-system", "k8s4r-up", "laptop", time.Second)}},
		{name: "twice", more: append(runningPrograms(), lease("k8s4r-system", "k8s4r-up", "laptop", time.Second)), response: rejectsCycles, want: ExitFailed},
		{name: "unauthenticated", more: append(runningPrograms(), unauthenticatedRobot("r1", robotv1.ReasonLegacyAgent), unauthenticatedRobot("r2", robotv1.ReasonPlaintextBroker), unauthenticatedRobot("r3", robotv1.ReasonPlaintextBroker)), response: rejectsCycles},
		{name: "certificates", more: append(runningPrograms(), publishedCertificates(t, map[string]time.Duration{"admin": 200 * day, "apiserver": 200 * day, "robots-ca": 3650 * day})), response: rejectsCycles},
		{name: "certificates-expire", more: append(runningPrograms(), publishedCertificates(t, map[string]time.Duration{"admin": 20 * day, "apiserver": -day, "kubelet": 25 * time.Hour})), response: rejectsCycles},
		{name: "restore", more: append(runningPrograms(), restoreHold()), response: rejectsCycles},
		{name: "old", more: runningPrograms(), version: "v1.29.4+k3s1", response: rejectsCycles, want: ExitFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newInstalledBench(t, c.change, c.more...)
			b.setWebhookResponse(c.response)
			if c.version != "" {
				b.version = c.version
			}
			status := b.run("doctor")
			if status != c.want {
				t.Errorf("exit status %d, want %d", status, c.want)
			}
			golden.Equal(t, "doctor-"+c.name, b.transcript(status))
		})
	}
}

func TestDoctor_WritesJSON(t *testing.T) {
	b := newInstalledBench(t, nil)
	b.setWebhookResponse(rejectsCycles)
	status := b.run("doctor", "-o", "json")
	var result struct {
		Worst    string
		Findings []struct{ Level, Check, Message, Remedy string }
	}
	if err := json.Unmarshal([]byte(b.out.String()), &result); err != nil {
		t.Fatal(err)
	}
	if status != ExitFailed || result.Worst != "FAIL" || len(result.Findings) < 10 {
		t.Errorf("exit status %d, %+v", status, result)
	}
	for _, f := range result.Findings {
		if f.Check == "" || f.Message == "" || (f.Level == "OK") != (f.Remedy == "") {
			t.Errorf("%+v", f)
		}
	}
}

// A missing permission is a warning, not a failure of K8s4r.
func TestDoctor_WarnsAboutMissingPermissions(t *testing.T) {
	b := newInstalledBench(t, nil, runningPrograms()...)
	b.setWebhookResponse(apierrors.NewForbidden(flows, "", errors.New("no right")))
	b.hooks.List = func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return apierrors.NewForbidden(flows, "", errors.New("no right"))
	}
	status := b.run("doctor")
	golden.Equal(t, "doctor-forbidden", b.transcript(status))
}

func TestDoctor_StopsWithoutAPIServer(t *testing.T) {
	b := newBench(t)
	b.version = ""
	status := b.run("doctor")
	golden.Equal(t, "doctor-no-server", b.transcript(status))
}
