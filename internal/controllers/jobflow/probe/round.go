package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// check is one entry of a list of the probe.
type check struct {
	name string // as shown in messages
	task string // empty: all tasks
	// remote checks need the Pod's address and a slot.
	remote bool
	run    func(ctx context.Context, pod *corev1.Pod) error
}

// newChecks returns the checks of a probe in the order in which failures are reported.
func newChecks(p *flowv1.Probe) []check {
	var out []check
	for i, s := range p.TaskStatusList {
		out = append(out, check{name: fmt.Sprintf("taskStatusList[%d]", i), task: s.TaskName, run: newPhaseCheck(corev1.PodPhase(s.Phase))})
	}
	for i, s := range p.TCPSocketList {
		out = append(out, check{name: fmt.Sprintf("tcpSocketList[%d]", i), task: s.TaskName, remote: true, run: newTCPCheck(s.Port)})
	}
	for i, g := range p.HTTPGetList {
		out = append(out, check{name: fmt.Sprintf("httpGetList[%d]", i), task: g.TaskName, remote: true, run: newHTTPCheck(g)})
	}
	return out
}

// runRound runs all checks once.
func (p *Prober) runRound(ctx context.Context, namespace string, t *Target) roundResult {
	pods, err := p.config.ListPods(ctx, namespace, t.Jobs)
	if err != nil {
		return roundResult{message: "cannot list Pods: " + err.Error(), listFailed: true}
	}
	pods = slices.DeleteFunc(slices.Clone(pods), func(pod corev1.Pod) bool { return !isOwnedBy(&pod, t.Jobs) })
	// Sorted by name, so that the same failure always gives the same message: each change
	// of it is a write of the flow's status.
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	all := newChecks(&t.Probe)
	timeout := secondsOr(t.Probe.TimeoutSeconds, 2)
	var podChecks []podCheck
	for i := range all {
		of, missing := selectPods(pods, &all[i])
		if missing != "" {
			return roundResult{message: all[i].name + ": " + missing, noPods: true}
		}
		for _, pod := range of {
			podChecks = append(podChecks, podCheck{&all[i], pod})
		}
	}
	return p.runChecks(ctx, podChecks, timeout)
}

// podCheck is a check of one Pod.
type podCheck struct {
	*check
	pod *corev1.Pod
}

// runChecks runs checks concurrently and returns the first in order that fails.
func (p *Prober) runChecks(ctx context.Context, podChecks []podCheck, timeout time.Duration) roundResult {
	errs := make([]error, len(podChecks))
	var group errgroup.Group
	group.SetLimit(p.config.MaxParallel)
	for i, q := range podChecks {
		group.Go(func() error { errs[i] = p.runCheck(ctx, q, timeout); return nil })
	}
	_ = group.Wait() // errors are collected in errs
	for i, err := range errs {
		if err != nil {
			return roundResult{message: fmt.Sprintf("%s: Pod %s %s", podChecks[i].name, podChecks[i].pod.Name, err)}
		}
	}
	return roundResult{}
}

// runCheck runs one check. Waiting for a slot does not count against the timeout.
func (p *Prober) runCheck(ctx context.Context, q podCheck, timeout time.Duration) error {
	if !q.remote {
		return q.run(ctx, q.pod)
	}
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := q.run(ctx, q.pod)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("does not respond within %s", timeout)
	}
	return err
}

// isOwnedBy reports whether one of the Jobs controls the Pod and the Pod is not being
// deleted.
func isOwnedBy(pod *corev1.Pod, jobs []Job) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && pod.DeletionTimestamp == nil &&
		slices.ContainsFunc(jobs, func(j Job) bool { return j.UID == owner.UID })
}

// selectPods returns the Pods that a check covers, or why they cannot be checked yet.
func selectPods(pods []corev1.Pod, c *check) (of []*corev1.Pod, missing string) {
	for i := range pods {
		pod := &pods[i]
		if c.task != "" && pod.Labels[batchv1.KeyTaskSpec] != c.task {
			continue
		}
		if c.remote && pod.Status.PodIP == "" {
			return nil, fmt.Sprintf("Pod %s has no address", pod.Name)
		}
		of = append(of, pod)
	}
	if len(of) == 0 && c.task != "" {
		return nil, fmt.Sprintf("there is no Pod of task %s", c.task)
	}
	if len(of) == 0 {
		return nil, "there is no Pod"
	}
	return of, ""
}

// newPhaseCheck checks for a phase; Running if want is empty.
func newPhaseCheck(want corev1.PodPhase) func(context.Context, *corev1.Pod) error {
	want = cmp.Or(want, corev1.PodRunning)
	return func(_ context.Context, pod *corev1.Pod) error {
		if pod.Status.Phase != want {
			return fmt.Errorf("is %s, not %s", cmp.Or(pod.Status.Phase, corev1.PodPending), want)
		}
		return nil
	}
}

// newTCPCheck checks that the Pod accepts connections.
func newTCPCheck(port int) func(context.Context, *corev1.Pod) error {
	return func(ctx context.Context, pod *corev1.Pod) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(port)))
		if err != nil {
			return fmt.Errorf("does not accept connections on port %d: %s", port, innermostError(err))
		}
		return conn.Close()
	}
}

// httpClient opens a connection per request and treats a redirect as the response.
var httpClient = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// newHTTPCheck checks for a status from 200 to 399. The port defaults to 80.
func newHTTPCheck(g flowv1.HTTPGet) func(context.Context, *corev1.Pod) error {
	port := cmp.Or(g.Port, 80)
	return func(ctx context.Context, pod *corev1.Pod) error {
		response, err := sendRequest(ctx, net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(port)), g)
		if err != nil {
			return fmt.Errorf("does not respond to %s on port %d: %s", cmp.Or(g.Path, "/"), port, innermostError(err))
		}
		defer response.Body.Close()
		_, _ = io.CopyN(io.Discard, response.Body, 10<<10) // some servers log an error if the body is not read
		if response.StatusCode < 200 || response.StatusCode > 399 {
			return fmt.Errorf("responds to %s on port %d with %s", cmp.Or(g.Path, "/"), port, response.Status)
		}
		return nil
	}
}

func sendRequest(ctx context.Context, host string, g flowv1.HTTPGet) (*http.Response, error) {
	where, err := url.Parse("http://" + host + "/" + strings.TrimPrefix(g.Path, "/"))
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, where.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", "k8s4r-probe")
	if h := g.HTTPHeader; h != nil {
		request.Header.Set(h.Name, h.Value)
		if strings.EqualFold(h.Name, "Host") {
			request.Host = h.Value
		}
	}
	return httpClient.Do(request)
}

// innermostError returns the message of the innermost error. Outer errors contain source
// ports, which differ each time.
func innermostError(err error) string {
	if call, ok := errors.AsType[*os.SyscallError](err); ok {
		return call.Err.Error()
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}
