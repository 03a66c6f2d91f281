package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// noon is the time in all tests.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const server = "https://cluster:6443"

var (
	errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "", errors.New("no permission"))
	errOutage    = errors.New("connection refused")
)

// unknownFor returns the finding of a check that fails with errForbidden.
func unknownFor(check string) Finding {
	return Finding{Warn, check, "cannot be checked: " + errForbidden.Error(), "run doctor as a user with this permission: --as, --context"}
}

// newCluster returns a cluster with the objects. The hooks may replace requests.
func newCluster(t *testing.T, hooks interceptor.Funcs, objects ...client.Object) Cluster {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(AddToScheme(s), robotv1.AddToScheme(s), flowv1.AddToScheme(s), corev1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	return Cluster{
		Client: fakeapi.NewBuilder(s).WithObjects(objects...).WithReturnManagedFields().WithInterceptorFuncs(hooks).Build(),
		Server: server, Namespace: "mine", Now: func() time.Time { return noon },
		Version: func(context.Context) (string, error) { return "v1.36.3", nil },
	}
}

// failLists returns hooks with which each list request fails.
func failLists(err error) interceptor.Funcs {
	return interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return err }}
}

// definitions returns our CRDs as an installation creates them. Their schemas are shared.
func definitions(t *testing.T) (all []client.Object) {
	t.Helper()
	ours, err := OurDefinitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range ours {
		crd = &unstructured.Unstructured{Object: maps.Clone(crd.Object)}
		crd.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}}
		all = append(all, crd)
	}
	return all
}

// definition returns one of our CRDs after the changes.
func definition(t *testing.T, name string, changes ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	t.Helper()
	for _, o := range definitions(t) {
		if crd := o.(*unstructured.Unstructured); crd.GetName() == name {
			crd = crd.DeepCopy()
			for _, change := range changes {
				change(crd)
			}
			return crd
		}
	}
	t.Fatalf("there is no definition %s", name)
	return nil
}

// equalFindings fails the test unless the findings are exactly those.
func equalFindings(t *testing.T, got []Finding, want ...Finding) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestExamineCluster_StopsWithoutAPIServer(t *testing.T) {
	c := newCluster(t, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			t.Error("an object is read although the API server does not answer")
			return errOutage
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			t.Error("objects are listed although the API server does not answer")
			return errOutage
		},
	})
	c.Version = func(context.Context) (string, error) { return "", errOutage }
	equalFindings(t, ExamineCluster(t.Context(), c), Finding{
		Fail, "API server", server + " does not answer: connection refused", "start it, or select another cluster with --kubeconfig or --context",
	})
}

func TestExamineCluster_RunsAllChecksInOrder(t *testing.T) {
	c := newCluster(t, interceptor.Funcs{}, definitions(t)...)
	var order []string
	for _, f := range ExamineCluster(t.Context(), c) {
		if n := len(order); n == 0 || order[n-1] != f.Check {
			order = append(order, f.Check)
		}
	}
	want := []string{"API server"}
	for _, crd := range definitions(t) {
		want = append(want, "CRD "+crd.GetName())
	}
	want = append(want, "admission policies", "manager", "server", "robot identities", "Volcano's controllers", "KubeRay's operator", "webhook")
	if !reflect.DeepEqual(order, want) {
		t.Errorf("got  %q\nwant %q", order, want)
	}
}

func TestWorstLevel_ReturnsHighestSeverity(t *testing.T) {
	for _, c := range []struct {
		levels []Level
		want   Level
	}{
		{nil, OK},
		{[]Level{OK, OK}, OK},
		{[]Level{OK, Warn, OK}, Warn},
		{[]Level{Fail, Warn, OK}, Fail},
		{[]Level{Warn, Fail}, Fail},
	} {
		t.Run(fmt.Sprint(c.levels), func(t *testing.T) {
			var all []Finding
			for _, l := range c.levels {
				all = append(all, Finding{Level: l})
			}
			if got := WorstLevel(all); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestNewUnknown_SuggestsRemedyByError(t *testing.T) {
	equalFindings(t, newUnknown("a check", errOutage), Finding{Warn, "a check", "cannot be checked: connection refused", "try again when the API server answers"})
	equalFindings(t, newUnknown("a check", fmt.Errorf("list things: %w", errForbidden)),
		Finding{Warn, "a check", "cannot be checked: list things: " + errForbidden.Error(), "run doctor as a user with this permission: --as, --context"})
}
