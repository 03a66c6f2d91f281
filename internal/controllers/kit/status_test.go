package kit

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

func TestExpectations_UpdateStatus(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	jobs := v1alpha1.GroupVersion.WithResource("jobs").GroupResource()
	down := errors.New("down")
	for _, c := range []struct {
		name    string
		fails   error
		want    bool
		wantErr error
	}{
		{"written", nil, true, nil},
		{"a conflict is not an error", apierrors.NewConflict(jobs, "j", errors.New("changed")), false, nil},
		{"a deleted object is not an error", apierrors.NewNotFound(jobs, "j"), false, nil},
		{"any other error is returned", down, false, down},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "ns", UID: types.UID("u")}}
			api := fakeapi.NewBuilder(scheme).WithObjects(j).WithStatusSubresource(j).
				WithInterceptorFuncs(interceptor.Funcs{SubResourceUpdate: func(ctx context.Context, api client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
					if c.fails != nil {
						return c.fails
					}
					return api.SubResource(sub).Update(ctx, o, opts...)
				}}).Build()
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(j), j); err != nil {
				t.Fatal(err)
			}
			before := j.ResourceVersion
			s := NewExpectations(time.Now, logr.Discard())
			got, err := s.UpdateStatus(t.Context(), api, j)
			if got != c.want || !errors.Is(err, c.wantErr) || (c.wantErr == nil) != (err == nil) {
				t.Errorf("written %v, %v", got, err)
			}
			if s.IsStale("u", before) != c.want {
				t.Errorf("the version before the update is stale: %v", !c.want)
			}
		})
	}
}
