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

// check is one entry of a list of a probe.
type check struct {
	name string // for people
	task string // empty: all
	// remote: ask needs the Pod's address, and takes a place.
	remote bool
	ask    func(ctx context.Context, pod *corev1.Pod) error
}

// checks of a probe, in the order in which what does not hold is told.
func checks(p *flowv1.Probe) []check {
	var out []check
	for i, s := range p.TaskStatusList {
		out = append(out, check{name: fmt.Sprintf("taskStatusList[%d]", i), task: s.TaskName, ask: phaseIs(corev1.PodPhase(s.Phase))})
	}
	for i, s := range p.TCPSocketList {
		out = append(out, check{name: fmt.Sprintf("tcpSocketList[%d]", i), task: s.TaskName, remote: true, ask: connects(s.Port)})
	}
	for i, g := range p.HTTPGetList {
		out = append(out, check{name: fmt.Sprintf("httpGetList[%d]", i), task: g.TaskName, remote: true, ask: answers(g)})
	}
	return out
}

// round asks everything once.
func (p *Prober) round(ctx context.Context, namespace string, t *Target) finding {
	pods, err := p.config.Pods(ctx, namespace, t.Jobs)
	if err != nil {
		return finding{message: "the Pods could not be read: " + err.Error(), unread: true}
	}
	pods = slices.DeleteFunc(slices.Clone(pods), func(pod corev1.Pod) bool { return !ownedBy(&pod, t.Jobs) })
	// By name, so that the same failure is always told in the same words: each change
	// of them is a write of the flow's status.
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	all := checks(&t.Probe)
	timeout := seconds(t.Probe.TimeoutSeconds, 2)
	var questions []question
	for i := range all {
		of, missing := podsOf(pods, &all[i])
		if missing != "" {
			return finding{message: all[i].name + ": " + missing, early: true}
		}
		for _, pod := range of {
			questions = append(questions, question{&all[i], pod})
		}
	}
	return p.askAll(ctx, questions, timeout)
}

// question is a check of one Pod.
type question struct {
	*check
	pod *corev1.Pod
}

// askAll is the first of the questions that does not hold.
func (p *Prober) askAll(ctx context.Context, questions []question, timeout time.Duration) finding {
	wrong := make([]error, len(questions))
	var group errgroup.Group
	group.SetLimit(p.config.Parallel)
	for i, q := range questions {
		group.Go(func() error { wrong[i] = p.askOne(ctx, q, timeout); return nil })
	}
	_ = group.Wait() // the answers are in wrong
	for i, err := range wrong {
		if err != nil {
			return finding{message: fmt.Sprintf("%s: Pod %s %s", questions[i].name, questions[i].pod.Name, err)}
		}
	}
	return finding{}
}

// askOne waits for a place, which does not count against the timeout.
func (p *Prober) askOne(ctx context.Context, q question, timeout time.Duration) error {
	if !q.remote {
		return q.ask(ctx, q.pod)
	}
	select {
	case p.places <- struct{}{}:
		defer func() { <-p.places }()
	case <-ctx.Done():
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := q.ask(ctx, q.pod)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("does not answer within %s", timeout)
	}
	return err
}

// ownedBy tells whether a Pod is one of the Jobs', and not going away.
func ownedBy(pod *corev1.Pod, jobs []Job) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && pod.DeletionTimestamp == nil &&
		slices.ContainsFunc(jobs, func(j Job) bool { return j.UID == owner.UID })
}

// podsOf are the Pods that a check is about, or why they cannot be asked yet.
func podsOf(pods []corev1.Pod, c *check) (of []*corev1.Pod, missing string) {
	for i := range pods {
		pod := &pods[i]
		if c.task != "" && pod.Labels[batchv1.KeyTaskSpec] != c.task {
			continue
		}
		if c.remote && pod.Status.PodIP == "" {
			return nil, fmt.Sprintf("Pod %s has no address yet", pod.Name)
		}
		of = append(of, pod)
	}
	if len(of) == 0 && c.task != "" {
		return nil, fmt.Sprintf("there is no Pod of task %s yet", c.task)
	}
	if len(of) == 0 {
		return nil, "there is no Pod yet"
	}
	return of, ""
}

// phaseIs asks for a phase. Empty: Running.
func phaseIs(want corev1.PodPhase) func(context.Context, *corev1.Pod) error {
	want = cmp.Or(want, corev1.PodRunning)
	return func(_ context.Context, pod *corev1.Pod) error {
		if pod.Status.Phase != want {
			return fmt.Errorf("is %s, not %s", cmp.Or(pod.Status.Phase, corev1.PodPending), want)
		}
		return nil
	}
}

// connects asks for a connection.
func connects(port int) func(context.Context, *corev1.Pod) error {
	return func(ctx context.Context, pod *corev1.Pod) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(port)))
		if err != nil {
			return fmt.Errorf("does not take a connection at port %d: %s", port, cause(err))
		}
		return conn.Close()
	}
}

// client for Pods: each request by itself, and a redirection is an answer.
var client = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// answers asks for a status from 200 to 399. Port 0: 80.
func answers(g flowv1.HTTPGet) func(context.Context, *corev1.Pod) error {
	port := cmp.Or(g.Port, 80)
	return func(ctx context.Context, pod *corev1.Pod) error {
		response, err := get(ctx, net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(port)), g)
		if err != nil {
			return fmt.Errorf("does not answer %s at port %d: %s", cmp.Or(g.Path, "/"), port, cause(err))
		}
		defer response.Body.Close()
		_, _ = io.CopyN(io.Discard, response.Body, 10<<10) // some servers complain of those who do not listen
		if response.StatusCode < 200 || response.StatusCode > 399 {
			return fmt.Errorf("answers %s at port %d with %s", cmp.Or(g.Path, "/"), port, response.Status)
		}
		return nil
	}
}

// get sends a probe's request.
func get(ctx context.Context, host string, g flowv1.HTTPGet) (*http.Response, error) {
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
	return client.Do(request)
}

// cause is the innermost error: those around it name ports that differ each time.
func cause(err error) string {
	if call, ok := errors.AsType[*os.SyscallError](err); ok {
		return call.Err.Error()
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}
