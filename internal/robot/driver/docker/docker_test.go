package docker

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
)

func TestDocker_WithoutEngine(t *testing.T) {
	d := &Driver{Socket: filepath.Join(t.TempDir(), "engine")}
	if d.Offered() {
		t.Error("offered")
	}
	err := d.Prepare(context.Background(), wire.TaskConfig{Docker: &wire.DockerConfig{Image: "busybox"}})
	if want := "no Docker engine responds at " + d.Socket; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Prepare = %v, want %q", err, want)
	}
}

func TestEndOfCode_InterpretsCodesLikeShells(t *testing.T) {
	for code, want := range map[int]driver.End{
		0: {}, 3: {Code: 3}, 128: {Code: 128}, 137: {Code: 137, Signal: 9}, 143: {Code: 143, Signal: 15}, 192: {Code: 192, Signal: 64}, 193: {Code: 193}, 255: {Code: 255},
	} {
		if got := endOfCode(code); got != want {
			t.Errorf("code %d is read as %+v, want %+v", code, got, want)
		}
	}
}
