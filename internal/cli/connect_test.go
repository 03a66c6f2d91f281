package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"k8s4r.io/k8s4r/internal/testkit/golden"
)

const kubeconfig = `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u, namespace: field}}, {name: d, context: {cluster: d, user: u}}]
clusters: [{name: c, cluster: {server: "https://HOST:6443"}}, {name: d, cluster: {server: "https://other:6443"}}]
users: [{name: u, user: {token: t}}]
`

func writeKubeconfig(t *testing.T, path, host string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(kubeconfig, "HOST", host, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestNewConfigLoader_SelectsKubeconfig(t *testing.T) {
	for _, row := range []struct {
		name string
		have []string // files in the home directory, each with a different host
		env  string   // value of KUBECONFIG, relative to the home directory
		flag string   // value of --kubeconfig, relative to the home directory
		want string
	}{
		{"the flag comes first", []string{"flag", "env", ".kube/config", ".k8s4r/kubeconfig"}, "env", "flag", "https://flag:6443"},
		{"then the environment", []string{"env", ".kube/config", ".k8s4r/kubeconfig"}, "env", "", "https://env:6443"},
		{"then kubectl's own", []string{".kube/config", ".k8s4r/kubeconfig"}, "", "", "https://kube-config:6443"},
		{"then that of k8s4r up", []string{".k8s4r/kubeconfig"}, "", "", "https://k8s4r-kubeconfig:6443"},
		{"a KUBECONFIG without a file is not overridden", []string{".k8s4r/kubeconfig"}, "gone", "", ""},
		{"none at all", nil, "", "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			home := t.TempDir()
			for _, file := range row.have {
				host := strings.ReplaceAll(strings.TrimPrefix(file, "."), "/", "-")
				writeKubeconfig(t, filepath.Join(home, file), host)
			}
			var c connection
			if row.flag != "" {
				c.kubeconfig = filepath.Join(home, row.flag)
			}
			env := ""
			if row.env != "" {
				env = filepath.Join(home, row.env)
			}
			t.Setenv("KUBECONFIG", env)
			loader := c.newConfigLoader(func(string) string { return env }, home)
			if row.env == "" && row.flag == "" {
				loader = withHomeFile(&c, home)
			}
			config, err := loader.ClientConfig()
			if row.want == "" {
				if !clientcmd.IsEmptyConfig(err) {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil || config.Host != row.want {
				t.Errorf("config %+v, error %v, want %s", config, err, row.want)
			}
		})
	}
}

// withHomeFile loads the kubeconfig from the home directory of the test.
func withHomeFile(c *connection, home string) clientcmd.ClientConfig {
	old := clientcmd.RecommendedHomeFile
	clientcmd.RecommendedHomeFile = filepath.Join(home, ".kube", "config")
	defer func() { clientcmd.RecommendedHomeFile = old }()
	return c.newConfigLoader(func(string) string { return "" }, home)
}

func TestConnect_ReadsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	writeKubeconfig(t, path, "api")
	c := connection{kubeconfig: path}
	c.overrides.CurrentContext = "d"
	c.overrides.Context.Namespace = "mine"
	cl, err := connectCluster(&c)
	if err != nil {
		t.Fatal(err)
	}
	if cl.server != "https://other:6443" || cl.namespace != "mine" || cl.namespaceFlag != " --namespace=mine" {
		t.Errorf("server %s, namespace %s, flag %q", cl.server, cl.namespace, cl.namespaceFlag)
	}
}

func TestConnect_FailsWithoutKubeconfig(t *testing.T) {
	c := connection{kubeconfig: filepath.Join(t.TempDir(), "gone")}
	_, err := connectCluster(&c)
	if err == nil || !strings.Contains(explainError(err), "no such file") {
		t.Errorf("error %v", err)
	}
}

func TestConnect_ReportsUnreachableServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	writeKubeconfig(t, path, "127.0.0.1")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Connections to port 1 on localhost are refused.
	if err := os.WriteFile(path, []byte(strings.Replace(string(data), "127.0.0.1:6443", "127.0.0.1:1", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	b.deps.connect = connectCluster
	golden.Equal(t, "dead-server", b.transcript(b.run("get", "jobs", "--kubeconfig", path)))
}
