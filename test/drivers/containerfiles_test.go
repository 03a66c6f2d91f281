package drivers

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/testkit"
)

// Each image is built, and its program is started as the Unix account "nobody".
func TestContainerfiles(t *testing.T) {
	files, err := filepath.Glob("../../containers/*.Containerfile")
	if err != nil || len(files) == 0 {
		t.Fatalf("no Containerfiles: %v", err)
	}
	e := startEngine(t)
	for _, file := range files {
		program := strings.TrimSuffix(filepath.Base(file), ".Containerfile")
		t.Run(program, func(t *testing.T) {
			tag := "k8s4r/" + program + ":test"
			e.build(t, tag, map[string]string{"Containerfile": file, program: testkit.BinaryPath(t, program)})
			is, err := e.client.ImageInspect(context.Background(), tag)
			if err != nil || is.Config.User != "65532:65532" {
				t.Errorf("image %+v, %v", is.Config, err)
			}
			out, end := e.output(driver.Task{Config: docker(wire.DockerConfig{Image: tag, Args: []string{"--help"}})})
			if end.Code != 0 || !strings.Contains(out, "Usage") {
				t.Errorf("--help ended as %+v and printed %s", end, out)
			}
		})
	}
}

// build builds an image. The keys of files are the paths in the build context.
func (e *engine) build(t *testing.T, tag string, files map[string]string) {
	t.Helper()
	var sources bytes.Buffer
	w := tar.NewWriter(&sources)
	for name, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write(content)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	built, err := e.client.ImageBuild(context.Background(), &sources, client.ImageBuildOptions{Tags: []string{tag}, Dockerfile: "Containerfile", Remove: true})
	if err != nil {
		t.Fatal(err)
	}
	defer built.Body.Close()
	if output, err := io.ReadAll(built.Body); err != nil || bytes.Contains(output, []byte(`"error"`)) {
		t.Fatalf("build %s: %v\n%s", tag, err, output)
	}
}
