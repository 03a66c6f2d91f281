package up

import (
	"os"
	"path/filepath"
	"testing"

	"k8s4r.io/k8s4r/standalone/internal/datadir"
)

func TestState_HasAbsoluteKubeconfigPath(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	const kubeconfig = `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}],
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]}`
	if err := os.WriteFile("config", []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &system{dir: &datadir.Dir{Path: dir}, opts: options{kubeconfig: "config"}}
	if err := s.addCluster(); err != nil {
		t.Fatal(err)
	}
	if got := s.currentState().Kubeconfig; !filepath.IsAbs(got) {
		t.Errorf("the summary names %q", got)
	}
}
