package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/child"
	"k8s4r.io/k8s4r/internal/flowview"
	"k8s4r.io/k8s4r/internal/logquery"
	"k8s4r.io/k8s4r/internal/tasklog"
	"k8s4r.io/k8s4r/internal/wish"
)

type logsFlowOptions struct {
	conn   connection
	name   string
	steps  []string
	server string
	tail   int64
	follow bool
	stamps bool
}

func logsFlowCommand(d *deps) *cobra.Command {
	var o logsFlowOptions
	cmd := &cobra.Command{
		Use:   "logs FLOW",
		Short: "Show what the steps of a JobFlow have written",
		Long: `Shows the output of all steps of a JobFlow in their order, or of some, with the step
and the task or container before each line. Steps on robots and steps of Pods are
shown alike. With --follow it goes on until the flow has ended.`,
		Example:           "  " + d.program + " flow logs nightly\n  " + d.program + " flow logs -f nightly --step train",
		Args:              args(cobra.ExactArgs(1)),
		ValidArgsFunction: d.completeNames(&o.conn, flowKind, 1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.name, err = flowKind.bareName(args[0]); err != nil {
				return err
			}
			return d.withCluster(&o.conn, func(c *cluster) error { return o.run(cmd.Context(), d, c) })
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.steps, "step", nil, "only this step; may be repeated")
	f.BoolVarP(&o.follow, "follow", "f", false, "go on until the flow has ended")
	f.Int64Var(&o.tail, "tail", -1, "only the last so many lines of each; -1 is all")
	f.BoolVar(&o.stamps, "timestamps", false, "the time before each line")
	f.StringVar(&o.server, "logs-server", "", "URL of k8s4r-server, for steps on robots; default is what it has published")
	o.conn.addFlags(f)
	return cmd
}

func (o *logsFlowOptions) run(ctx context.Context, d *deps, c *cluster) error {
	ctx, stop := d.interrupt(ctx)
	defer stop()
	found, err := resolve(ctx, c, flowKind, o.name)
	if err != nil {
		return err
	}
	flow := found.(*flowv1.JobFlow)
	for _, s := range o.steps {
		if !slices.Contains(flowview.StepNames(flow), s) {
			return fmt.Errorf("jobflow %s has no step %s; there are %s", flow.Name, s, wish.Few(flowview.StepNames(flow)))
		}
	}
	l := &flowLogs{o: o, d: d, c: c, flow: flow, last: flow, begun: map[string]bool{},
		p: &jobPrinter{out: d.Out, err: d.Err, stamps: o.stamps, color: d.terminal.color}}
	if o.follow {
		err = l.follow(ctx)
	} else {
		err = l.once(ctx)
	}
	if ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// flowLogs reads the logs of the steps of one flow.
type flowLogs struct {
	o    *logsFlowOptions
	d    *deps
	c    *cluster
	flow *flowv1.JobFlow // as it was found
	p    *jobPrinter

	wg    sync.WaitGroup
	mu    sync.Mutex
	last  *flowv1.JobFlow // as it is
	begun map[string]bool // containers and Jobs on robots, by UID
	errs  []error
}

// once reads one step after the other.
func (l *flowLogs) once(ctx context.Context) error {
	var missing []string
	for _, s := range l.steps() {
		some, err := l.step(ctx, s, func(read func(context.Context) error) error { return read(ctx) })
		if err != nil || ctx.Err() != nil {
			return err
		}
		if !some {
			missing = append(missing, s.Name)
		}
	}
	if len(missing) > 0 {
		fmt.Fprintf(l.d.Err, "no log, because they have not started or nothing is kept of them: %s\n", wish.Few(missing))
	}
	return nil
}

// steps that are asked for, in their order.
func (l *flowLogs) steps() (out []flowview.Step) {
	l.mu.Lock()
	v := viewFlow(l.last, l.d.now())
	l.mu.Unlock()
	for _, i := range v.order() {
		if len(l.o.steps) == 0 || slices.Contains(l.o.steps, v.Steps[i].Name) {
			out = append(out, v.Steps[i])
		}
	}
	return out
}

// step hands each of the step's logs that was not read yet to do, and tells whether
// there are any at all.
func (l *flowLogs) step(ctx context.Context, s flowview.Step, do func(read func(context.Context) error) error) (some bool, err error) {
	job := &robotv1.Job{}
	err = l.c.Get(ctx, client.ObjectKey{Namespace: l.flow.Namespace, Name: s.Job}, job)
	if err == nil && metav1.IsControlledBy(job, l.flow) {
		if !l.begin(string(job.UID)) {
			return true, nil
		}
		return true, do(func(ctx context.Context) error { return l.robots(ctx, s, job) })
	}
	if client.IgnoreNotFound(err) != nil {
		return false, wrap(err, "get job %s", s.Job)
	}
	pods, err := l.pods(ctx, s)
	if err != nil {
		return false, err
	}
	for i := range pods {
		for _, container := range containersOf(&pods[i]) {
			if !l.begin(string(pods[i].UID) + "/" + container) {
				continue
			}
			if err := do(func(ctx context.Context) error { return l.container(ctx, s, &pods[i], container) }); err != nil {
				return true, err
			}
		}
	}
	return len(pods) > 0, nil
}

// begin tells whether a log was not begun before.
func (l *flowLogs) begin(what string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	had := l.begun[what]
	l.begun[what] = true
	return !had
}

// pods of a step's Job that have started, by task and index.
func (l *flowLogs) pods(ctx context.Context, s flowview.Step) ([]corev1.Pod, error) {
	job := &batchv1.Job{}
	err := l.c.Get(ctx, client.ObjectKey{Namespace: l.flow.Namespace, Name: s.Job}, job)
	if apierrors.IsNotFound(err) || err == nil && !metav1.IsControlledBy(job, l.flow) {
		return nil, nil
	}
	if err != nil {
		return nil, wrap(err, "get job %s", s.Job)
	}
	var pods corev1.PodList
	if err := l.c.List(ctx, &pods, client.InNamespace(l.flow.Namespace), client.MatchingLabels{batchv1.KeyJobName: child.Label(s.Job)}); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	all := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return !metav1.IsControlledBy(&p, job) })
	slices.SortFunc(all, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Labels[batchv1.KeyTaskSpec], b.Labels[batchv1.KeyTaskSpec]), cmp.Compare(indexOf(&a), indexOf(&b)))
	})
	return all, nil
}

func indexOf(p *corev1.Pod) int {
	n, _ := strconv.Atoi(p.Labels[batchv1.KeyTaskIndex])
	return n
}

// containersOf a Pod that have started.
func containersOf(p *corev1.Pod) (names []string) {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil {
			names = append(names, s.Name)
		}
	}
	return names
}

// container reads the log of one container.
func (l *flowLogs) container(ctx context.Context, s flowview.Step, p *corev1.Pod, container string) error {
	opts := corev1.PodLogOptions{Container: container, Follow: l.o.follow, Timestamps: l.o.stamps}
	if l.o.tail >= 0 {
		opts.TailLines = &l.o.tail
	}
	from := fmt.Sprintf("%s/%s-%d", s.Name, p.Labels[batchv1.KeyTaskSpec], indexOf(p))
	if len(p.Spec.Containers)+len(p.Spec.InitContainers) > 1 {
		from += "/" + container
	}
	body, err := l.c.podLogs(ctx, p.Namespace, p.Name, opts)
	if apierrors.IsNotFound(err) {
		return nil // it went meanwhile
	}
	if err != nil {
		return fmt.Errorf("log of pod %s: %w", p.Name, err)
	}
	defer body.Close()
	print, done := l.p.of(from)
	defer done()
	return eachLine(body, func(line []byte) { print(tasklog.Record{Stream: tasklog.Stdout, Text: line}) })
}

// eachLine hands on the lines of a text, of any length.
func eachLine(r io.Reader, do func([]byte)) error {
	for lines := bufio.NewReaderSize(r, maxHeld); ; {
		line, err := lines.ReadSlice('\n')
		if n := len(line); n > 0 && line[n-1] == '\n' {
			do(line[:n-1])
		} else if n > 0 {
			do(line)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

// robots reads the logs of a Job on robots.
func (l *flowLogs) robots(ctx context.Context, s flowview.Step, job *robotv1.Job) error {
	o := &logsOptions{server: l.o.server, follow: l.o.follow, stamps: l.o.stamps}
	o.query = logquery.Query{Follow: l.o.follow, Tail: int(max(l.o.tail, -1)), Records: true}
	tasks := &jobLogs{o: o, d: l.d, c: l.c, job: job, begun: map[string]bool{}, p: l.p, before: s.Name + "/"}
	if l.o.follow {
		return tasks.follow(ctx)
	}
	return tasks.once(ctx)
}

// follow begins the logs of steps as they start, until the flow has ended and with it
// all logs.
func (l *flowLogs) follow(ctx context.Context) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	look := func() {
		for _, s := range l.steps() {
			if _, err := l.step(ctx, s, l.beside(ctx)); err != nil && ctx.Err() == nil {
				fmt.Fprintf(l.d.Err, "%s: %s\n", s.Name, explain(err)) // the next look may do better
			}
		}
	}
	changed := make(chan struct{}, 1)
	wake := func(u update) {
		if u.err != nil {
			return
		}
		if u.kind.kind == flowKind.kind && len(u.objects) > 0 {
			l.see(u.objects[0].(*flowv1.JobFlow))
		}
		if u.kind.kind == flowKind.kind && len(u.objects) == 0 {
			stop()
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	var sources sync.WaitGroup
	pods := source{client: l.c, kind: podKind, opts: []client.ListOption{client.InNamespace(l.flow.Namespace), client.HasLabels{batchv1.KeyJobName}},
		match: func(client.Object) bool { return true }}
	for _, s := range []source{only(l.c, flowKind, l.flow), pods} {
		sources.Go(func() {
			if err := follow(watching, s, l.d.retry, wake); err != nil {
				l.fail(err)
				stop()
			}
		})
	}
	for ended := false; !ended; {
		select {
		case <-changed:
		case <-watching.Done():
		}
		ended = watching.Err() != nil || l.ended() // before the look, which then sees all
		look()
	}
	stop()
	sources.Wait()
	l.wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.errs...)
}

// beside reads logs beside one another.
func (l *flowLogs) beside(ctx context.Context) func(func(context.Context) error) error {
	return func(read func(context.Context) error) error {
		l.wg.Go(func() {
			if err := read(ctx); err != nil && ctx.Err() == nil {
				l.fail(err)
			}
		})
		return nil
	}
}

func (l *flowLogs) see(f *flowv1.JobFlow) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = f
}

func (l *flowLogs) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return viewFlow(l.last, l.d.now()).Ended()
}

func (l *flowLogs) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, err)
}

// podLogsOf reads the logs of containers through the API server.
func podLogsOf(config *rest.Config) func(context.Context, string, string, corev1.PodLogOptions) (io.ReadCloser, error) {
	return func(ctx context.Context, namespace, pod string, o corev1.PodLogOptions) (io.ReadCloser, error) {
		own := rest.CopyConfig(config)
		own.Timeout = 0
		own.NegotiatedSerializer = serializer.NewCodecFactory(newScheme()).WithoutConversion()
		c, err := rest.UnversionedRESTClientFor(own)
		if err != nil {
			return nil, fmt.Errorf("make client: %w", err)
		}
		request := c.Get().AbsPath("/api/v1/namespaces", namespace, "pods", pod, "log").
			Param("container", o.Container).Param("follow", strconv.FormatBool(o.Follow)).Param("timestamps", strconv.FormatBool(o.Timestamps))
		if o.TailLines != nil {
			request.Param("tailLines", strconv.FormatInt(*o.TailLines, 10))
		}
		return request.Stream(ctx)
	}
}
