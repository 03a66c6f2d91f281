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
	"k8s4r.io/k8s4r/internal/core/actions"
	"k8s4r.io/k8s4r/internal/core/flow/view"
	"k8s4r.io/k8s4r/internal/core/naming"
	"k8s4r.io/k8s4r/internal/protocol/logs/query"
	"k8s4r.io/k8s4r/internal/protocol/logs/record"
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
		Short: "Print the logs of the steps of a JobFlow",
		Long: `Prints the logs of all steps of a JobFlow in their order, or of the selected steps.
Each line starts with the step and the task or container. Steps may run on robots or
in Pods. With --follow it continues until the flow has ended.`,
		Example:           "  " + d.program + " flow logs nightly\n  " + d.program + " flow logs -f nightly --step train",
		Args:              checkArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: d.completeNames(&o.conn, flowKind, 1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.name, err = flowKind.bareName(args[0]); err != nil {
				return err
			}
			return d.withCluster(&o.conn, func(c *cluster) error { return o.runFlowLogs(cmd.Context(), d, c) })
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.steps, "step", nil, "print only the logs of this step; may be repeated")
	f.BoolVarP(&o.follow, "follow", "f", false, "continue until the flow has ended")
	f.Int64Var(&o.tail, "tail", -1, "number of recent lines to print of each log; -1 means all")
	f.BoolVar(&o.stamps, "timestamps", false, "print the time before each line")
	f.StringVar(&o.server, "logs-server", "", "URL of k8s4r-server, for steps on robots; defaults to its published address")
	o.conn.addFlags(f)
	return cmd
}

func (o *logsFlowOptions) runFlowLogs(ctx context.Context, d *deps, c *cluster) error {
	ctx, stop := d.interrupt(ctx)
	defer stop()
	found, err := resolveName(ctx, c, flowKind, o.name)
	if err != nil {
		return err
	}
	flow := found.(*flowv1.JobFlow)
	for _, s := range o.steps {
		if !slices.Contains(view.StepNames(flow), s) {
			return fmt.Errorf("jobflow %s has no step %q; its steps are %s", flow.Name, s, actions.SummarizeNames(view.StepNames(flow)))
		}
	}
	l := &flowLogs{o: o, d: d, c: c, flow: flow, last: flow, started: map[string]bool{}, p: d.newJobPrinter(o.stamps)}
	if o.follow {
		err = l.followLogs(ctx)
	} else {
		err = l.readOnce(ctx)
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
	flow *flowv1.JobFlow // as it was when the command started
	p    *jobPrinter

	wg      sync.WaitGroup
	mu      sync.Mutex
	last    *flowv1.JobFlow // the latest version
	started map[string]bool // by UID: containers, and Jobs that run on robots
	errs    []error
}

// readOnce reads one step after the other.
func (l *flowLogs) readOnce(ctx context.Context) error {
	var missing []string
	for _, s := range l.selectedSteps() {
		some, err := l.readStep(ctx, s, func(read func(context.Context) error) error { return read(ctx) })
		if err != nil || ctx.Err() != nil {
			return err
		}
		if !some {
			missing = append(missing, s.Name)
		}
	}
	if len(missing) > 0 {
		fmt.Fprintf(l.d.Err, "no logs of these steps, because they have not started or the logs were removed: %s\n", actions.SummarizeNames(missing))
	}
	return nil
}

// selectedSteps returns the steps that the user selected, in their order.
func (l *flowLogs) selectedSteps() (out []view.Step) {
	l.mu.Lock()
	v := viewFlow(l.last, l.d.now())
	l.mu.Unlock()
	for _, i := range v.orderSteps() {
		if len(l.o.steps) == 0 || slices.Contains(l.o.steps, v.Steps[i].Name) {
			out = append(out, v.Steps[i])
		}
	}
	return out
}

// readStep calls do with a reader for each log of the step that was not read yet. It reports
// whether the step has any logs.
func (l *flowLogs) readStep(ctx context.Context, s view.Step, do func(read func(context.Context) error) error) (some bool, err error) {
	job := &robotv1.Job{}
	err = l.c.Get(ctx, client.ObjectKey{Namespace: l.flow.Namespace, Name: s.Job}, job)
	if err == nil && metav1.IsControlledBy(job, l.flow) {
		if !l.markStarted(string(job.UID)) {
			return true, nil
		}
		return true, do(func(ctx context.Context) error { return l.readRobotJob(ctx, s, job) })
	}
	if client.IgnoreNotFound(err) != nil {
		return false, wrapError(err, "get job %s", s.Job)
	}
	pods, err := l.listPods(ctx, s)
	if err != nil {
		return false, err
	}
	for i := range pods {
		for _, container := range startedContainers(&pods[i]) {
			if !l.markStarted(string(pods[i].UID) + "/" + container) {
				continue
			}
			if err := do(func(ctx context.Context) error { return l.readContainer(ctx, s, &pods[i], container) }); err != nil {
				return true, err
			}
		}
	}
	return len(pods) > 0, nil
}

// markStarted marks the log as started and reports whether it was not started before.
func (l *flowLogs) markStarted(what string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.started[what]
	l.started[what] = true
	return !was
}

// listPods returns the Pods of a step's Job, sorted by task and index.
func (l *flowLogs) listPods(ctx context.Context, s view.Step) ([]corev1.Pod, error) {
	job := &batchv1.Job{}
	err := l.c.Get(ctx, client.ObjectKey{Namespace: l.flow.Namespace, Name: s.Job}, job)
	if apierrors.IsNotFound(err) || err == nil && !metav1.IsControlledBy(job, l.flow) {
		return nil, nil
	}
	if err != nil {
		return nil, wrapError(err, "get job %s", s.Job)
	}
	var pods corev1.PodList
	if err := l.c.List(ctx, &pods, client.InNamespace(l.flow.Namespace), client.MatchingLabels{batchv1.KeyJobName: naming.LabelValue(s.Job)}); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	all := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return !metav1.IsControlledBy(&p, job) })
	slices.SortFunc(all, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Labels[batchv1.KeyTaskSpec], b.Labels[batchv1.KeyTaskSpec]), cmp.Compare(taskIndexOf(&a), taskIndexOf(&b)))
	})
	return all, nil
}

func taskIndexOf(p *corev1.Pod) int {
	n, _ := strconv.Atoi(p.Labels[batchv1.KeyTaskIndex])
	return n
}

// startedContainers returns the containers of a Pod that have started.
func startedContainers(p *corev1.Pod) (names []string) {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil {
			names = append(names, s.Name)
		}
	}
	return names
}

// readContainer prints the log of one container.
func (l *flowLogs) readContainer(ctx context.Context, s view.Step, p *corev1.Pod, container string) error {
	opts := corev1.PodLogOptions{Container: container, Follow: l.o.follow, Timestamps: l.o.stamps}
	if l.o.tail >= 0 {
		opts.TailLines = &l.o.tail
	}
	from := fmt.Sprintf("%s/%s-%d", s.Name, p.Labels[batchv1.KeyTaskSpec], taskIndexOf(p))
	if len(p.Spec.Containers)+len(p.Spec.InitContainers) > 1 {
		from += "/" + container
	}
	body, err := l.c.podLogs(ctx, p.Namespace, p.Name, opts)
	if apierrors.IsNotFound(err) {
		return nil // the Pod was deleted in the meantime
	}
	if err != nil {
		return fmt.Errorf("log of pod %s: %w", p.Name, err)
	}
	defer body.Close()
	print, done := l.p.printerFor(from)
	defer done()
	return eachLine(body, func(line []byte) { print(record.Record{Stream: record.Stdout, Text: line}) })
}

// eachLine calls do for each line. Lines longer than maxHeld are split.
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

// readRobotJob prints the logs of a Job that runs on robots.
func (l *flowLogs) readRobotJob(ctx context.Context, s view.Step, job *robotv1.Job) error {
	o := &logsOptions{server: l.o.server, follow: l.o.follow, stamps: l.o.stamps}
	o.query = query.Query{Follow: l.o.follow, Tail: int(max(l.o.tail, -1)), Records: true}
	tasks := &jobLogs{o: o, d: l.d, c: l.c, job: job, started: map[string]bool{}, p: l.p, before: s.Name + "/"}
	if l.o.follow {
		return tasks.followJob(ctx)
	}
	return tasks.readOnce(ctx)
}

// followLogs starts reading the logs of steps as they start. It returns when the flow and all
// logs have ended.
func (l *flowLogs) followLogs(ctx context.Context) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	look := func() {
		for _, s := range l.selectedSteps() {
			if _, err := l.readStep(ctx, s, l.newParallelReader(ctx)); err != nil && ctx.Err() == nil {
				fmt.Fprintf(l.d.Err, "%s: %s\n", s.Name, explainError(err)) // the next pass retries
			}
		}
	}
	changed := make(chan struct{}, 1)
	wake := func(u update) {
		if u.err != nil {
			return
		}
		if u.kind.kind == flowKind.kind && len(u.objects) > 0 {
			l.setFlow(u.objects[0].(*flowv1.JobFlow))
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
	for _, s := range []source{singleObject(l.c, flowKind, l.flow), pods} {
		sources.Go(func() {
			if err := followSource(watching, s, l.d.retry, wake); err != nil {
				l.recordError(err)
				stop()
			}
		})
	}
	for ended := false; !ended; {
		select {
		case <-changed:
		case <-watching.Done():
		}
		ended = watching.Err() != nil || l.hasEnded() // evaluated before the last pass, which then sees every log
		look()
	}
	stop()
	sources.Wait()
	l.wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.errs...)
}

// newParallelReader returns a function that reads each log in its own goroutine.
func (l *flowLogs) newParallelReader(ctx context.Context) func(func(context.Context) error) error {
	return func(read func(context.Context) error) error {
		l.wg.Go(func() {
			if err := read(ctx); err != nil && ctx.Err() == nil {
				l.recordError(err)
			}
		})
		return nil
	}
}

func (l *flowLogs) setFlow(f *flowv1.JobFlow) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = f
}

func (l *flowLogs) hasEnded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return viewFlow(l.last, l.d.now()).HasEnded()
}

func (l *flowLogs) recordError(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, err)
}

// newPodLogReader returns a function that opens the logs of containers through the API server.
func newPodLogReader(config *rest.Config) func(context.Context, string, string, corev1.PodLogOptions) (io.ReadCloser, error) {
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
