package kit

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

func TestWindows_ParsedAfterChanges(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w := &v1alpha1.MaintenanceWindow{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "w", UID: "uid", Generation: 1}}
	w.Spec.Schedule, w.Spec.Duration = "0 2 * * *", "1h"
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(w).Build()
	var windows Windows
	read := func() bool {
		t.Helper()
		calendar, err := windows.Read(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		again, err := windows.Read(context.Background(), c)
		if err != nil || again != calendar {
			t.Errorf("parsed without a change, %v", err)
		}
		return calendar.At(time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)).StateOf("fleet", nil).IsOpen
	}
	if read() {
		t.Error("open at noon")
	}
	w.Spec.Schedule, w.Generation = "0 12 * * *", 2
	if err := c.Update(context.Background(), w); err != nil {
		t.Fatal(err)
	}
	if !read() {
		t.Error("still closed after the change")
	}
	if err := c.Delete(context.Background(), w); err != nil {
		t.Fatal(err)
	}
	if !read() {
		t.Error("closed without a window")
	}
}
