package hostnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/creack/pty"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/isolation"
)

// target is a running container, for probes, hooks and kubectl exec.
type target struct {
	node      *Node
	pod       *corev1.Pod
	container *corev1.Container
	podIP     string
	pid       int // of its first process
	cgroup    string
	work      string // where its commands start
}

func (w *worker) newTarget(c *corev1.Container, r *run) target {
	t := target{
		node: w.node, pod: w.pod, container: c, podIP: w.podIP, cgroup: w.paths.attemptPath(c.Name, r.attempt).cgroupName(w.pod.UID),
		work: w.node.workDir(c, w.paths.attemptPath(c.Name, r.attempt)),
	}
	if r.state.Started != nil {
		t.pid = r.state.Started.PID
	}
	return t
}

// streams are the standard streams of a command. A nil one is not connected.
type streams struct {
	in       io.Reader
	out, err io.Writer
	tty      bool
	resize   <-chan remotecommand.TerminalSize
}

// drainWait bounds how long background processes of a command may keep writing.
const drainWait = time.Second

// runCommand runs a command in the container and returns its exit code. When ctx is done, the
// command is killed.
func (t target) runCommand(ctx context.Context, argv []string, s streams) (code int, err error) {
	if len(argv) == 0 {
		return 0, errors.New("command must not be empty")
	}
	task := driver.Task{
		Config: wire.TaskConfig{Exec: &wire.ExecConfig{Command: argv[0], Args: argv[1:]}},
		Dir:    t.work, Env: t.readEnv(), Terminal: s.tty,
	}
	if task.Confinement, err = t.openConfinement(); err != nil {
		return 0, err
	}
	var p *stdioPipes
	if s.tty {
		p, err = openTerminal(s)
	} else {
		p, err = openPipes(s)
	}
	if err != nil {
		return 0, err
	}
	defer p.closeAll()
	task.Stdin, task.Stdout, task.Stderr = p.in, p.out, p.err
	process, err := driver.StartBeside(task)
	p.closeChildEnds()
	if err != nil {
		return 0, err
	}
	return p.awaitProcess(ctx, process), nil
}

// openConfinement returns the Confinement that runs a command in the container.
func (t target) openConfinement() (c isolation.Confinement, err error) {
	if c.User, err = userOf(t.pod, t.container, t.node.host); err != nil {
		return c, err
	}
	if group, none := t.node.host.Cgroup(t.cgroup); none == nil {
		c.Cgroup = group
	}
	if t.node.usesMounts() {
		c.Enter = t.pid
	}
	return c, nil
}

// readEnv returns the environment of the container's first process.
func (t target) readEnv() map[string]string {
	env := hostEnvironment()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", t.pid))
	if err != nil {
		return env
	}
	for v := range bytes.SplitSeq(b, []byte{0}) {
		if name, value, ok := strings.Cut(string(v), "="); ok {
			env[name] = value
		}
	}
	return env
}

// stdioPipes connects a process with streams.
type stdioPipes struct {
	in, out, err *os.File // the process's ends
	nodeEnds     []*os.File
	copies       chan struct{} // receives once for each output at end of file
	outputs      int
}

func openPipes(s streams) (*stdioPipes, error) {
	p := &stdioPipes{copies: make(chan struct{}, 2)}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.in, p.nodeEnds = r, append(p.nodeEnds, w)
	go func() {
		if s.in != nil {
			_, _ = io.Copy(w, s.in)
		}
		_ = w.Close()
	}()
	if p.out, err = p.openOutput(s.out); err != nil {
		return nil, err
	}
	p.err, err = p.openOutput(s.err)
	return p, err
}

func (p *stdioPipes) openOutput(to io.Writer) (*os.File, error) {
	if to == nil {
		to = io.Discard
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.nodeEnds = append(p.nodeEnds, r)
	p.copyStream(to, r)
	return w, nil
}

func (p *stdioPipes) copyStream(to io.Writer, from io.Reader) {
	p.outputs++
	go func() {
		_, _ = io.Copy(to, from)
		p.copies <- struct{}{}
	}()
}

// openTerminal connects a process with a new terminal.
func openTerminal(s streams) (*stdioPipes, error) {
	ours, theirs, err := pty.Open()
	if err != nil {
		return nil, err
	}
	p := &stdioPipes{in: theirs, out: theirs, err: theirs, nodeEnds: []*os.File{ours}, copies: make(chan struct{}, 1)}
	if s.in != nil {
		go func() { _, _ = io.Copy(ours, s.in) }()
	}
	out := s.out
	if out == nil {
		out = io.Discard
	}
	p.copyStream(out, ours)
	if s.resize != nil {
		go func() {
			for size := range s.resize {
				_ = pty.Setsize(ours, &pty.Winsize{Cols: size.Width, Rows: size.Height})
			}
		}()
	}
	return p, nil
}

// closeChildEnds closes the ends that the process has inherited.
func (p *stdioPipes) closeChildEnds() {
	for _, f := range []*os.File{p.in, p.out, p.err} {
		_ = f.Close()
	}
}

func (p *stdioPipes) closeAll() {
	for _, f := range p.nodeEnds {
		_ = f.Close()
	}
}

// awaitProcess waits until the process has exited and its output has been copied.
func (p *stdioPipes) awaitProcess(ctx context.Context, process *driver.Process) (code int) {
	ended := make(chan int, 1)
	go func() { ended <- process.Reap().Code }()
	select {
	case code = <-ended:
	case <-ctx.Done():
		process.Signal(syscall.SIGKILL)
		code = <-ended
	}
	late := time.NewTimer(drainWait)
	defer late.Stop()
	for range p.outputs {
		select {
		case <-p.copies:
		case <-late.C:
			return code
		}
	}
	return code
}

// executor serves kubectl exec and attach.
type executor struct{ node *Node }

// ExecInContainer implements remotecommand.Executor.
func (e executor) ExecInContainer(ctx context.Context, name, _, container string, argv []string, in io.Reader, out, errs io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	namespace, pod, _ := strings.Cut(name, "/")
	t, err := e.node.findRunning(ctx, namespace, pod, container)
	if err != nil {
		return err
	}
	s := streams{in: in, tty: tty, resize: resize}
	if out != nil { // a nil WriteCloser would become a non-nil Writer
		s.out = out
	}
	if errs != nil {
		s.err = errs
	}
	code, err := t.runCommand(ctx, argv, s)
	if err == nil && code != 0 {
		err = utilexec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", code), Code: code}
	}
	return err
}

// AttachContainer implements remotecommand.Attacher. It copies the output of the container from
// now on. The container's standard input is not connected.
func (e executor) AttachContainer(ctx context.Context, name, _, container string, _ io.Reader, out, errs io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize) error {
	namespace, pod, _ := strings.Cut(name, "/")
	dir, err := e.node.logsOf(ctx, namespace, pod, container, false)
	if err != nil {
		return err
	}
	o := logOptions{follow: true, since: time.Now(), limit: -1, tail: -1}
	return writeLogs(ctx, dir, o, func(text []byte, stderr bool) error {
		to := out
		if stderr && errs != nil {
			to = errs
		}
		if to == nil {
			return nil
		}
		_, err := to.Write(text)
		return err
	})
}

// findRunning returns a running container.
func (n *Node) findRunning(ctx context.Context, namespace, pod, container string) (t target, err error) {
	err = n.inspectPod(ctx, namespace, pod, func(w *worker) error {
		c := findContainer(w.pod, container)
		if c == nil {
			return fmt.Errorf("container %q not found in pod %q", container, pod)
		}
		r := w.recordOf(container).last
		if r == nil || !r.isRunning() {
			return fmt.Errorf("container %q in pod %q is not running", container, pod)
		}
		t = w.newTarget(c, r)
		return nil
	})
	return t, err
}
