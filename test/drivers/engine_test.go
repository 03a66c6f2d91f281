package drivers

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/robot/driver"
)

// image contains only busybox.
const image = "k8s4r/busybox:1"

// engine is a Docker engine that runs for one test.
type engine struct {
	t       *testing.T
	dir     string
	socket  string
	process *exec.Cmd
	client  *client.Client
	// through is the command that starts the engine's. If nil, it is started directly.
	through []string
}

// startEngine starts an engine that has the image, if necessary through another command.
func startEngine(t *testing.T, through ...string) *engine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("an engine needs root: sudo -E make test")
	}
	// The path of a socket has at most 107 characters, and test names may be long.
	dir, err := os.MkdirTemp("", "k8s4r-engine-")
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{t: t, dir: dir, socket: filepath.Join(dir, "sock"), through: through}
	t.Cleanup(func() { e.cleanUp() })
	if e.client, err = client.New(client.WithHost("unix://" + e.socket)); err != nil {
		t.Fatal(err)
	}
	e.start()
	e.importImage(image)
	return e
}

// start starts the engine with the data of an earlier one.
func (e *engine) start() {
	e.t.Helper()
	at := func(name string) string { return filepath.Join(e.dir, name) }
	log, err := os.OpenFile(at("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		e.t.Fatal(err)
	}
	defer log.Close()
	// The engine's programs may not be on the user's PATH.
	e.t.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin")
	command := append(slices.Clone(e.through), "dockerd", "--bridge=none", "--iptables=false", "--ip6tables=false", "--live-restore",
		// This storage driver works on any file system.
		"--storage-driver=vfs", "--data-root="+at("data"), "--exec-root="+at("exec"), "--pidfile="+at("pid"), "--host=unix://"+e.socket)
	e.process = exec.Command(command[0], command[1:]...)
	e.process.Stdout, e.process.Stderr = log, log
	e.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: e.stopSignal()}
	if err := e.process.Start(); err != nil {
		e.t.Fatalf("no engine (hack/deps installs Debian's): %v", err)
	}
	for until := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if _, err = e.client.Ping(context.Background(), client.PingOptions{}); err == nil {
			return
		}
		if time.Now().After(until) {
			log, _ := os.ReadFile(at("log"))
			e.t.Fatalf("the engine does not respond: %v\n%s", err, log)
		}
	}
}

// stop stops the engine. Its containers keep running, unless it has namespaces of its own.
func (e *engine) stop() {
	_ = e.process.Process.Signal(e.stopSignal())
	_ = e.process.Wait()
}

// stopSignal returns the signal that stops the engine. A command that starts it may ignore SIGTERM.
func (e *engine) stopSignal() syscall.Signal {
	if e.through == nil {
		return syscall.SIGTERM
	}
	return syscall.SIGKILL
}

func (e *engine) cleanUp() {
	for _, name := range e.containers() {
		e.t.Errorf("container %s was left", name)
		_, _ = e.client.ContainerRemove(context.Background(), name, client.ContainerRemoveOptions{Force: true})
	}
	if v, err := e.client.VolumeList(context.Background(), client.VolumeListOptions{}); err != nil || len(v.Items) > 0 {
		e.t.Errorf("volumes %+v were left, %v", v.Items, err)
	}
	e.stop()
	e.unmount()
	if err := os.RemoveAll(e.dir); err != nil {
		e.t.Error(err)
	}
}

// unmount unmounts what the engine has left mounted.
func (e *engine) unmount() {
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		if at := strings.Fields(line)[1]; strings.HasPrefix(at, e.dir+"/") {
			_ = unix.Unmount(at, unix.MNT_DETACH)
		}
	}
}

// list returns all containers with these labels.
func (e *engine) list(labels ...string) []container.Summary {
	found, err := e.client.ContainerList(context.Background(), client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", labels...)})
	if err != nil {
		e.t.Error(err)
	}
	return found.Items
}

// containers returns the names of all containers with these labels.
func (e *engine) containers(labels ...string) (names []string) {
	for _, c := range e.list(labels...) {
		names = append(names, strings.TrimPrefix(c.Names[0], "/"))
	}
	return names
}

// left returns the containers that are left of an attempt.
func (e *engine) left(a driver.Attempt) []string {
	return e.containers("io.k8s4r.task-uid="+a.UID, fmt.Sprintf("io.k8s4r.attempt=%d", a.Number), "io.k8s4r.robot="+a.Robot)
}

// hasImage gives the image another name.
func (e *engine) hasImage(name string) {
	e.t.Helper()
	if _, err := e.client.ImageTag(context.Background(), client.ImageTagOptions{Source: image, Target: name}); err != nil {
		e.t.Fatal(err)
	}
}

// importImage adds the image, or one of another name that has settings of its own besides.
func (e *engine) importImage(name string, settings ...string) {
	e.t.Helper()
	settings = append(settings, `ENTRYPOINT ["echo", "entry", "point"]`, `CMD ["image"]`, `ENV PATH=/bin`, `VOLUME /scratch`)
	r, err := e.client.ImageImport(context.Background(), client.ImageImportSource{Source: rootfs(e.t), SourceName: "-"}, name, client.ImageImportOptions{Changes: settings})
	if err != nil {
		e.t.Fatal(err)
	}
	defer r.Close()
	if output, err := io.ReadAll(r); err != nil || bytes.Contains(output, []byte("error")) {
		e.t.Fatalf("import the image: %v\n%s", err, output)
	}
}

// passwd is /etc/passwd of the image. Some accounts are root under another name, and some lines are
// malformed.
const passwd = "nobody" + `:x:65534:65534::/:/bin/sh
root:x:0:0::/:/bin/sh
pilot:x:1234:4321::/:/bin/sh
toor:x:0:0::/:/bin/sh
wide:x:4294967296:0::/:/bin/sh
word:x:zero:0::/:/bin/sh
short:x
short:x:1234:1234::/:/bin/sh
 padded:x:0:0::/:/bin/sh
padded:x:1234:1234::/:/bin/sh
`

// rootfs returns a tar with busybox and links to it.
func rootfs(t *testing.T) io.Reader {
	t.Helper()
	path, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatalf("%v: hack/deps installs busybox-static", err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	names, err := exec.Command(path, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	add := func(h tar.Header, content []byte) {
		h.Size = int64(len(content))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write(content)
	}
	for dir, mode := range map[string]int64{"./": 0o755, "bin/": 0o755, "etc/": 0o755, "tmp/": 0o1777} {
		add(tar.Header{Name: dir, Mode: mode, Typeflag: tar.TypeDir}, nil)
	}
	add(tar.Header{Name: "etc/passwd", Mode: 0o644}, []byte(passwd))
	add(tar.Header{Name: "bin/busybox", Mode: 0o755}, program)
	for name := range strings.FieldsSeq(string(names)) {
		if name != "busybox" {
			add(tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, nil)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}
