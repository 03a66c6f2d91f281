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

	"k8s4r.io/k8s4r/internal/driver"
	"k8s4r.io/k8s4r/internal/isolation"
	"k8s4r.io/k8s4r/internal/wire"
)

// target is a container that runs, for what is done to it from outside.
type target struct {
	node      *Node
	pod       *corev1.Pod
	container *corev1.Container
	podIP     string
	pid       int // of its first process
	cgroup    string
	work      string // where its commands start
}

func (w *worker) target(c *corev1.Container, r *run) target {
	t := target{
		node: w.node, pod: w.pod, container: c, podIP: w.podIP, cgroup: w.places.attempt(c.Name, r.attempt).cgroup(w.pod.UID),
		work: w.node.workDir(c, w.places.attempt(c.Name, r.attempt)),
	}
	if r.state.Started != nil {
		t.pid = r.state.Started.PID
	}
	return t
}

// streams are what a command is connected to. A nil one is to nothing.
type streams struct {
	in       io.Reader
	out, err io.Writer
	tty      bool
	resize   <-chan remotecommand.TerminalSize
}

// drainWait is how long what a command has left behind may go on writing.
const drainWait = time.Second

// exec runs a command in the container and returns its exit code. The end of ctx
// kills it.
func (t target) exec(ctx context.Context, argv []string, s streams) (code int, err error) {
	if len(argv) == 0 {
		return 0, errors.New("there is no command to run")
	}
	task := driver.Task{
		Config: wire.TaskConfig{Exec: &wire.ExecConfig{Command: argv[0], Args: argv[1:]}},
		Dir:    t.work, Env: t.environment(), Terminal: s.tty,
	}
	if task.Confinement, err = t.confinement(); err != nil {
		return 0, err
	}
	var p *plumbing
	if s.tty {
		p, err = ownTerminal(s)
	} else {
		p, err = pipes(s)
	}
	if err != nil {
		return 0, err
	}
	defer p.close()
	task.Stdin, task.Stdout, task.Stderr = p.in, p.out, p.err
	process, err := driver.Beside(task)
	p.given()
	if err != nil {
		return 0, err
	}
	return p.await(ctx, process), nil
}

// confinement puts a command where the container is.
func (t target) confinement() (c isolation.Confinement, err error) {
	if c.User, err = userOf(t.pod, t.container, t.node.host); err != nil {
		return c, err
	}
	if group, none := t.node.host.Cgroup(t.cgroup); none == nil {
		c.Cgroup = group
	}
	if t.node.mounts() {
		c.Enter = t.pid
	}
	return c, nil
}

// environment is that of the container's first process.
func (t target) environment() map[string]string {
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

// plumbing connects a process with streams.
type plumbing struct {
	in, out, err *os.File // the process's ends
	ours         []*os.File
	copies       chan struct{} // one for each output at its end
	outputs      int
}

func pipes(s streams) (*plumbing, error) {
	p := &plumbing{copies: make(chan struct{}, 2)}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.in, p.ours = r, append(p.ours, w)
	go func() {
		if s.in != nil {
			_, _ = io.Copy(w, s.in)
		}
		_ = w.Close()
	}()
	if p.out, err = p.output(s.out); err != nil {
		return nil, err
	}
	p.err, err = p.output(s.err)
	return p, err
}

func (p *plumbing) output(to io.Writer) (*os.File, error) {
	if to == nil {
		to = io.Discard
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.ours = append(p.ours, r)
	p.copy(to, r)
	return w, nil
}

func (p *plumbing) copy(to io.Writer, from io.Reader) {
	p.outputs++
	go func() {
		_, _ = io.Copy(to, from)
		p.copies <- struct{}{}
	}()
}

// ownTerminal connects a process with a terminal of its own.
func ownTerminal(s streams) (*plumbing, error) {
	ours, theirs, err := pty.Open()
	if err != nil {
		return nil, err
	}
	p := &plumbing{in: theirs, out: theirs, err: theirs, ours: []*os.File{ours}, copies: make(chan struct{}, 1)}
	if s.in != nil {
		go func() { _, _ = io.Copy(ours, s.in) }()
	}
	out := s.out
	if out == nil {
		out = io.Discard
	}
	p.copy(out, ours)
	if s.resize != nil {
		go func() {
			for size := range s.resize {
				_ = pty.Setsize(ours, &pty.Winsize{Cols: size.Width, Rows: size.Height})
			}
		}()
	}
	return p, nil
}

// given lets go of the ends that the process has now.
func (p *plumbing) given() {
	for _, f := range []*os.File{p.in, p.out, p.err} {
		_ = f.Close()
	}
}

func (p *plumbing) close() {
	for _, f := range p.ours {
		_ = f.Close()
	}
}

// await waits for the process, and for what it has written.
func (p *plumbing) await(ctx context.Context, process *driver.Process) (code int) {
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
	t, err := e.node.running(ctx, namespace, pod, container)
	if err != nil {
		return err
	}
	s := streams{in: in, tty: tty, resize: resize}
	if out != nil { // a nil WriteCloser is no nil Writer
		s.out = out
	}
	if errs != nil {
		s.err = errs
	}
	code, err := t.exec(ctx, argv, s)
	if err == nil && code != 0 {
		err = utilexec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", code), Code: code}
	}
	return err
}

// AttachContainer implements remotecommand.Attacher: what the container writes from
// now on. It has nothing to read from.
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

// running finds a container that runs.
func (n *Node) running(ctx context.Context, namespace, pod, container string) (t target, err error) {
	err = n.inspect(ctx, namespace, pod, func(w *worker) error {
		c := containerNamed(w.pod, container)
		if c == nil {
			return fmt.Errorf("container %q not found in pod %q", container, pod)
		}
		r := w.record(container).last
		if r == nil || !r.runs() {
			return fmt.Errorf("container %q in pod %q does not run", container, pod)
		}
		t = w.target(c, r)
		return nil
	})
	return t, err
}
