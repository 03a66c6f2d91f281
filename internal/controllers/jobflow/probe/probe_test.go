package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

var flow = types.NamespacedName{Namespace: "ns", Name: "flow"}

// pod returns a Pod of the Job whose UID is u.
func pod(name, task string, phase corev1.PodPhase, ip string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"volcano.sh/task-spec": task},
			OwnerReferences: []metav1.OwnerReference{{Name: "j", UID: "u", Controller: ptr.To(true)}},
		},
		Status: corev1.PodStatus{Phase: phase, PodIP: ip},
	}
}

// once returns the result of one round.
func once(t *testing.T, p flowv1.Probe, pods ...corev1.Pod) roundResult {
	t.Helper()
	prober := New(Config{MaxParallel: 4, ListPods: func(context.Context, string, []Job) ([]corev1.Pod, error) { return pods, nil }})
	return prober.runRound(t.Context(), "ns", &Target{Probe: p, Jobs: []Job{{"j", "u"}}})
}

func TestProber_TaskStatus(t *testing.T) {
	running := flowv1.Probe{TaskStatusList: []flowv1.TaskStatus{{TaskName: "ps", Phase: "Running"}}}
	foreign := pod("p0", "ps", corev1.PodRunning, "")
	foreign.OwnerReferences[0].UID = "another"
	leaving := pod("p1", "ps", corev1.PodFailed, "")
	leaving.DeletionTimestamp = &metav1.Time{}
	for _, c := range []struct {
		name  string
		probe flowv1.Probe
		pods  []corev1.Pod
		want  roundResult
	}{
		{"holds", running, []corev1.Pod{pod("p0", "ps", corev1.PodRunning, ""), pod("w0", "w", corev1.PodPending, "")}, roundResult{}},
		{"each Pod must", running, []corev1.Pod{pod("p1", "ps", corev1.PodPending, ""), pod("p0", "ps", corev1.PodRunning, "")},
			roundResult{message: "taskStatusList[0]: Pod p1 is Pending, not Running"}},
		{"no Pod yet", running, nil, roundResult{message: "taskStatusList[0]: there is no Pod of task ps", noPods: true}},
		{"Pods of an earlier Job of that name are none", running, []corev1.Pod{foreign},
			roundResult{message: "taskStatusList[0]: there is no Pod of task ps", noPods: true}},
		{"Pods that go away are none", running, []corev1.Pod{leaving, pod("p0", "ps", corev1.PodRunning, "")}, roundResult{}},
		{"without a task all Pods, without a phase Running", flowv1.Probe{TaskStatusList: []flowv1.TaskStatus{{}}},
			[]corev1.Pod{pod("a", "a", corev1.PodRunning, ""), pod("b", "b", corev1.PodSucceeded, "")},
			roundResult{message: "taskStatusList[0]: Pod b is Succeeded, not Running"}},
		{"nothing asked", flowv1.Probe{}, nil, roundResult{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := once(t, c.probe, c.pods...); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestProber_TCP(t *testing.T) {
	open, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	probe := flowv1.Probe{TCPSocketList: []flowv1.TCPSocket{{TaskName: "ps", Port: port(open.Addr().String())}}}
	if got := once(t, probe, pod("p0", "ps", corev1.PodRunning, "127.0.0.1")); got != (roundResult{}) {
		t.Errorf("a port that is open: %+v", got)
	}
	if got := once(t, probe, pod("p0", "ps", corev1.PodRunning, "")); got != (roundResult{message: "tcpSocketList[0]: Pod p0 has no address", noPods: true}) {
		t.Errorf("no address: %+v", got)
	}
	open.Close()
	want := fmt.Sprintf("tcpSocketList[0]: Pod p0 does not accept connections on port %d: connection refused", probe.TCPSocketList[0].Port)
	if got := once(t, probe, pod("p0", "ps", corev1.PodRunning, "127.0.0.1")); got != (roundResult{message: want}) {
		t.Errorf("got %+v, want %s", got, want)
	}
}

func TestProber_HTTP(t *testing.T) {
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ready":
			if r.URL.RawQuery == "q=1" && r.Header.Get("X-Who") == "k8s4r" {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			http.Error(w, "who?", http.StatusUnauthorized)
		case "/moved":
			http.Redirect(w, r, "/nowhere", http.StatusFound)
		case "/hangs":
			<-hang
		case "/host":
			if r.Host != "example.org" {
				w.WriteHeader(http.StatusMisdirectedRequest)
			}
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	defer close(hang)
	at := port(server.Listener.Addr().String())
	for _, c := range []struct {
		name string
		get  flowv1.HTTPGet
		want string
	}{
		{"query and header go along", flowv1.HTTPGet{Path: "/ready?q=1", HTTPHeader: &flowv1.HTTPHeader{Name: "x-who", Value: "k8s4r"}}, ""},
		{"the host", flowv1.HTTPGet{Path: "host", HTTPHeader: &flowv1.HTTPHeader{Name: "Host", Value: "example.org"}}, ""},
		{"a redirection is an answer", flowv1.HTTPGet{Path: "/moved"}, ""},
		{"a refusal", flowv1.HTTPGet{Path: "/ready"}, "responds to /ready on port PORT with 401 Unauthorized"},
		{"not found", flowv1.HTTPGet{}, "responds to / on port PORT with 404 Not Found"},
		{"no answer", flowv1.HTTPGet{Path: "/hangs"}, "does not respond within 1s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.get.Port = at
			probe := flowv1.Probe{HTTPGetList: []flowv1.HTTPGet{c.get}, TimeoutSeconds: ptr.To[int32](1)}
			want := roundResult{}
			if c.want != "" {
				want.message = "httpGetList[0]: Pod p0 " + strings.ReplaceAll(c.want, "PORT", strconv.Itoa(at))
			}
			if got := once(t, probe, pod("p0", "ps", corev1.PodRunning, "127.0.0.1")); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func port(address string) int {
	_, p, _ := net.SplitHostPort(address)
	n, _ := strconv.Atoi(p)
	return n
}

// The concurrent requests of all probes never exceed the number of slots.
func TestProber_BoundsConcurrentChecks(t *testing.T) {
	var now, most atomic.Int32
	full, release := make(chan struct{}), make(chan struct{})
	closeFull := sync.OnceFunc(func() { close(full) })
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if n == 3 {
			closeFull()
		}
		<-release
	}))
	defer server.Close()
	var pods []corev1.Pod
	for i := range 20 {
		pods = append(pods, pod(fmt.Sprint("p", i), "ps", corev1.PodRunning, "127.0.0.1"))
	}
	prober := New(Config{MaxParallel: 3, ListPods: func(context.Context, string, []Job) ([]corev1.Pod, error) { return pods, nil }})
	target := Target{Probe: flowv1.Probe{HTTPGetList: []flowv1.HTTPGet{{Port: port(server.Listener.Addr().String())}}}, Jobs: []Job{{"j", "u"}}}
	found := make(chan roundResult)
	for range 2 {
		go func() { found <- prober.runRound(t.Context(), "ns", &target) }()
	}
	<-full
	close(release)
	for range 2 {
		if f := <-found; f != (roundResult{}) {
			t.Error(f)
		}
	}
	if most.Load() != 3 {
		t.Errorf("%d at once, want 3", most.Load())
	}
}

// story runs a prober with a fake clock. hold returns the Pod's phase.
type story struct {
	*Prober
	phase   atomic.Value // of the Pod; empty: it cannot be read
	rounds  atomic.Int32
	changes atomic.Int32
}

func tell(t *testing.T, run func(s *story)) {
	synctest.Test(t, func(t *testing.T) {
		s := &story{}
		s.phase.Store(corev1.PodPending)
		s.Prober = New(Config{
			ListPods: func(context.Context, string, []Job) ([]corev1.Pod, error) {
				s.rounds.Add(1)
				phase := s.phase.Load().(corev1.PodPhase)
				if phase == "" {
					return nil, errors.New("no cache")
				}
				return []corev1.Pod{pod("p0", "ps", phase, "")}, nil
			},
			OnChange: func(types.NamespacedName) { s.changes.Add(1) },
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Start(ctx) }()
		synctest.Wait()
		run(s)
		stop()
		<-ended
	})
}

// after advances the clock and returns the result of the step.
func (s *story) after(d time.Duration) Result {
	time.Sleep(d)
	synctest.Wait()
	return s.Result(flow, "step")
}

func target(change func(*flowv1.Probe)) Target {
	p := flowv1.Probe{TaskStatusList: []flowv1.TaskStatus{{TaskName: "ps", Phase: "Running"}}}
	if change != nil {
		change(&p)
	}
	return Target{Probe: p, Jobs: []Job{{"j", "u"}}}
}

var pending = Result{Waiting, "taskStatusList[0]: Pod p0 is Pending, not Running"}

func TestProber_ReportsChanges(t *testing.T) {
	tell(t, func(s *story) {
		want := func(when string, got, wanted Result, rounds, changes int32) {
			t.Helper()
			if got != wanted || s.rounds.Load() != rounds || s.changes.Load() != changes {
				t.Errorf("%s: %+v, %d rounds, %d changes; want %+v, %d, %d", when, got, s.rounds.Load(), s.changes.Load(), wanted, rounds, changes)
			}
		}
		want("nothing kept", s.Result(flow, "step"), Result{}, 0, 0)
		s.SetTargets(flow, map[string]Target{"step": target(nil)})
		want("at once", s.after(0), pending, 1, 1)
		want("an unchanged result is not reported", s.after(12*time.Second), pending, 3, 1)
		s.SetTargets(flow, map[string]Target{"step": target(nil)})
		want("kept again it goes on", s.after(0), pending, 3, 1)
		s.phase.Store(corev1.PodRunning)
		want("ready", s.after(3*time.Second), Result{State: Ready}, 4, 2)
		s.phase.Store(corev1.PodPhase(""))
		want("no longer", s.after(5*time.Second), Result{Waiting, "cannot list Pods: no cache"}, 5, 3)
		s.SetTargets(flow, map[string]Target{"other": target(nil)})
		want("another step", s.after(0), Result{}, 6, 4)
		s.SetTargets(flow, nil)
		want("a flow that is gone is not asked for", s.after(time.Hour), Result{}, 6, 4)
	})
}

func TestProber_Thresholds(t *testing.T) {
	tell(t, func(s *story) {
		s.phase.Store(corev1.PodRunning)
		thresholds := target(func(p *flowv1.Probe) {
			p.PeriodSeconds, p.SuccessThreshold, p.FailureThreshold = ptr.To[int32](10), ptr.To[int32](2), ptr.To[int32](3)
		})
		s.SetTargets(flow, map[string]Target{"step": thresholds})
		want := func(when string, got, wanted Result) {
			t.Helper()
			if got != wanted {
				t.Errorf("%s: %+v, want %+v", when, got, wanted)
			}
		}
		want("one of two", s.after(time.Second), Result{Waiting, "succeeded in 1 of 2 rounds"})
		want("two of two", s.after(10*time.Second), Result{State: Ready})
		want("more", s.after(100*time.Second), Result{State: Ready})
		s.phase.Store(corev1.PodPending)
		want("failed once", s.after(10*time.Second), pending)
		s.phase.Store(corev1.PodPhase(""))
		want("a round without Pods does not count", s.after(time.Minute), Result{Waiting, "cannot list Pods: no cache"})
		s.phase.Store(corev1.PodPending)
		want("failed twice", s.after(20*time.Second), pending)
		failed := Result{Failed, pending.Message + " (failed 3 times in a row)"}
		want("failed for the third time", s.after(10*time.Second), failed)
		s.phase.Store(corev1.PodRunning)
		rounds := s.rounds.Load()
		want("it stays so", s.after(time.Hour), failed)
		if s.rounds.Load() != rounds {
			t.Error("it asks on though it has failed")
		}
		again := thresholds
		again.Jobs = []Job{{"j", "u"}, {"k", "made again"}}
		s.SetTargets(flow, map[string]Target{"step": again})
		want("a recreated Job is probed again", s.after(0), Result{Waiting, "succeeded in 1 of 2 rounds"})
	})
}

func TestProber_EndedTargets(t *testing.T) {
	over := func(change func(*flowv1.Probe)) Target {
		out := target(change)
		out.Ended = true
		return out
	}
	for _, c := range []struct {
		name   string
		target Target
		phase  corev1.PodPhase
		want   Result
	}{
		{"it holds", over(nil), corev1.PodRunning, Result{State: Ready}},
		{"what does not hold never will", over(nil), corev1.PodSucceeded,
			Result{Failed, "the targets have ended and are not ready: taskStatusList[0]: Pod p0 is Succeeded, not Running"}},
		{"nor will who is not there come", over(func(p *flowv1.Probe) { p.TaskStatusList[0].TaskName = "nosuch" }), corev1.PodRunning,
			Result{Failed, "the targets have ended and are not ready: taskStatusList[0]: there is no Pod of task nosuch"}},
		{"who cannot be read may be there", over(nil), "", Result{Waiting, "cannot list Pods: no cache"}},
		{"one round of two holds", over(func(p *flowv1.Probe) { p.SuccessThreshold = ptr.To[int32](2) }), corev1.PodRunning,
			Result{Waiting, "succeeded in 1 of 2 rounds"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tell(t, func(s *story) {
				s.phase.Store(corev1.PodPending)
				s.SetTargets(flow, map[string]Target{"step": target(nil)})
				s.after(time.Hour)
				s.phase.Store(c.phase)
				s.SetTargets(flow, map[string]Target{"step": c.target})
				if got := s.after(0); got != c.want {
					t.Errorf("%+v, want %+v", got, c.want)
				}
			})
		})
	}
}

func TestProber_ChecksNothingBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		p := New(Config{ListPods: func(context.Context, string, []Job) ([]corev1.Pod, error) { asked++; return nil, nil }})
		p.SetTargets(flow, map[string]Target{"step": target(nil)})
		time.Sleep(time.Minute)
		if got := p.Result(flow, "step"); asked != 0 || got.State != Waiting {
			t.Errorf("asked %d times, %+v", asked, got)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go p.Start(ctx)
		synctest.Wait()
		if asked != 1 {
			t.Errorf("asked %d times after the start", asked)
		}
	})
}
