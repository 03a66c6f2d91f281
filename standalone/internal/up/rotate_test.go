package up

import (
	"path/filepath"
	"strings"
	"testing"

	"k8s4r.io/k8s4r/internal/server/ca"
)

func TestCARotate_RequestsOneRotation(t *testing.T) {
	dir := t.TempDir()
	rotate := func(args ...string) (string, error) {
		var out strings.Builder
		cmd := NewCACommand(&out)
		cmd.SetArgs(append([]string{"rotate", "--data-dir", dir}, args...))
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		err := cmd.Execute()
		return out.String(), err
	}
	if _, err := rotate(); err == nil || !strings.Contains(err.Error(), "set --data-dir") {
		t.Errorf("without a CA: %v", err)
	}
	if _, err := ca.OpenManaged(filepath.Join(append([]string{dir}, robotCADir...)...), ca.DefaultLifetime); err != nil {
		t.Fatal(err)
	}
	if _, err := rotate("--period=1s"); err == nil || !strings.Contains(err.Error(), "must be from 1m0s") {
		t.Errorf("a period that is too short: %v", err)
	}
	if out, err := rotate("--period=48h"); err != nil || !strings.Contains(out, "48h0m0s later the old one is no longer trusted") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := rotate(); err == nil || !strings.Contains(err.Error(), "is being replaced already") {
		t.Errorf("a second time: %v", err)
	}
}
