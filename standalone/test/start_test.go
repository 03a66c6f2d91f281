package test

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"k8s4r.io/k8s4r/internal/testkit"
)

// bare starts only the control plane.
var bare = []string{"--without", "manager,server,broker,robots,node,console"}

func startBare(t *testing.T) *testkit.Up {
	t.Helper()
	return testkit.StartUp(t, bare...)
}

func clientOf(t *testing.T, up *testkit.Up) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(up.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
}

func TestUp_KeepsObjectsThroughRestarts(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	up := startBare(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
	if _, err := clientOf(t, up).CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := clientOf(t, up).CoreV1().ConfigMaps("default").Create(ctx, configMap("kept"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(up.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}

	up.Stop()
	if _, err := os.Stat(filepath.Join(up.DataDir, "up.json")); err == nil {
		t.Error("up.json is still there after an orderly stop")
	}
	up.Start()

	if _, err := clientOf(t, up).CoreV1().Namespaces().Get(ctx, "kept", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := clientOf(t, up).CoreV1().ConfigMaps("default").Get(ctx, "kept", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	after, err := os.ReadFile(up.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if credentials(before) != credentials(after) {
		t.Error("the second start made new credentials; copies of the kubeconfig are void")
	}
}

// credentials removes the server's address from a kubeconfig, because its port changes.
func credentials(kubeconfig []byte) string {
	var kept []string
	for _, line := range testkit.SplitLines(string(kubeconfig)) {
		if !strings.Contains(line, "server:") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

func TestUp_KeepsAcknowledgedWritesThroughKills(t *testing.T) {
	t.Parallel()
	up := startBare(t)
	for round := range 3 {
		written := writeUntilKilled(t, up, round)
		up.Start()
		c := clientOf(t, up).CoreV1().ConfigMaps("default")
		for _, name := range written {
			if _, err := c.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
				t.Errorf("round %d: acknowledged, then lost: %v", round, err)
			}
		}
	}
}

// writeUntilKilled creates objects, kills the program meanwhile and returns the names whose
// creation was acknowledged.
func writeUntilKilled(t *testing.T, up *testkit.Up, round int) []string {
	t.Helper()
	c := clientOf(t, up).CoreV1().ConfigMaps("default")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	enough := make(chan struct{})
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		<-enough
		up.Kill()
	}()
	var written []string
	for i := 0; ; i++ {
		name := fmt.Sprintf("round-%d-%d", round, i)
		if _, err := c.Create(ctx, configMap(name), metav1.CreateOptions{}); err != nil {
			break
		}
		if written = append(written, name); len(written) == 50 {
			close(enough)
		}
	}
	if len(written) < 50 {
		t.Fatalf("only %d writes before the first error", len(written))
	}
	<-killed
	return written
}

func TestUp_NamesTheHolderOfATakenPort(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, c := range []struct{ flag, value string }{
		{"secure-port", port},
		{"mqtt-address", "127.0.0.1:" + port},
		{"mqtts-address", "127.0.0.1:" + port},
		{"metrics-address", "127.0.0.1:" + port},
		{"console-address", "127.0.0.1:" + port},
	} {
		t.Run(c.flag, func(t *testing.T) {
			dir := t.TempDir()
			defaults := []string{"up", "--data-dir", dir, "--robots", "0", "--secure-port", "0",
				"--mqtt-address", "127.0.0.1:0", "--mqtts-address", "127.0.0.1:0", "--console-address", "127.0.0.1:0", "--allow-anonymous-agents"}
			out := fails(t, append(defaults, "--"+c.flag, c.value)...)
			for _, want := range []string{"port " + port + " is in use", fmt.Sprintf("by process %d", os.Getpid()), "--" + c.flag} {
				if !strings.Contains(out, want) {
					t.Errorf("message has no %q:\n%s", want, out)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "etcd")); err == nil {
				t.Error("etcd was made although a port was taken")
			}
		})
	}
}

func TestUp_RefusesASecondProcessOnItsDirectory(t *testing.T) {
	t.Parallel()
	up := startBare(t)
	out := fails(t, append([]string{"up", "--data-dir", up.DataDir, "--secure-port", "0"}, bare...)...)
	for _, want := range []string{up.DataDir, fmt.Sprintf("held by process %d", up.PID())} {
		if !strings.Contains(out, want) {
			t.Errorf("message has no %q:\n%s", want, out)
		}
	}
	if _, err := clientOf(t, up).CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Errorf("the first one suffered: %v", err)
	}
}

// fails runs k8s4r, which must exit with an error, and returns its output.
func fails(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, testkit.BinaryPath(t, "k8s4r"), args...).CombinedOutput()
	if err == nil || ctx.Err() != nil {
		t.Fatalf("k8s4r %v: want an exit status other than 0, got %v\n%s", args, err, out)
	}
	return string(out)
}

// TestUp_AcceptsALongPath uses a path that is too long for a unix socket.
func TestUp_AcceptsALongPath(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("a-long-name-", 15))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", long) // where testkit stores data
	startBare(t)
}

// TestUp_PrintsOnlyMessagesForTheUser starts the program, stops it with Ctrl-C and checks that the
// terminal shows only messages for the user.
func TestUp_PrintsOnlyMessagesForTheUser(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := append([]string{"up", "--data-dir", dir, "--secure-port", "0", "--metrics-address", ""}, bare...)
	cmd := exec.Command(testkit.BinaryPath(t, "k8s4r"), args...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyNoError(t, time.Minute, "up.json", func() error {
		_, err := os.Stat(filepath.Join(dir, "up.json"))
		return err
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("an orderly stop: %v", err)
	}
	for _, line := range testkit.SplitLines(errs.String()) {
		if line != "stopping" && !strings.Contains(line, " ready after ") {
			t.Errorf("on stderr: %s", line)
		}
	}
	if want := "export KUBECONFIG=" + filepath.Join(dir, "kubeconfig"); !strings.Contains(out.String(), want) {
		t.Errorf("stdout has no %q:\n%s", want, out.String())
	}
}

func TestUp_SecretsAreReadableByTheirOwnerOnly(t *testing.T) {
	t.Parallel()
	up := startBare(t)
	err := filepath.WalkDir(up.DataDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSocket != 0 || path == up.DataDir { // created by testkit
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
