package planapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/platform/access"
	"k8s4r.io/k8s4r/internal/protocol/plan"
	"k8s4r.io/k8s4r/internal/scheduler"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// fakeGate allows what the name of the user lists, such as "create/jobs list/robots@ns".
type fakeGate struct{}

func (fakeGate) Authenticate(r *http.Request) (*access.User, error) {
	if name := r.Header.Get("Authorization"); name != "" {
		return &access.User{Name: name}, nil
	}
	return nil, access.ErrUnauthenticated
}

func (fakeGate) IsAllowed(_ context.Context, u *access.User, do authorizationv1.ResourceAttributes) (bool, error) {
	for _, right := range strings.Fields(u.Name) {
		if right == do.Verb+"/"+do.Resource || right == do.Verb+"/"+do.Resource+"@"+do.Namespace {
			return true, nil
		}
	}
	return false, nil
}

// fakePlacer places the first replica on own, the second on lent, and no other. If blocked is not nil, it first sends
// the name of the Job, and waits until it receives from release.
type fakePlacer struct {
	isSyncing        bool
	blocked, release chan string
}

func (p *fakePlacer) HasSynced() bool { return !p.isSyncing }

func (*fakePlacer) PreviewRobots(string) map[string][]string {
	return map[string][]string{"own": {"ns"}, "lent": {"other"}}
}

func (f *fakePlacer) PreviewPlacement(_ context.Context, _ time.Time, j *v1alpha1.Job, groups []scheduler.PreviewGroup) scheduler.Preview {
	if f.blocked != nil {
		f.blocked <- j.Name
		<-f.release
	}
	p := scheduler.Preview{Robots: map[string]string{}, Rejected: map[string]*placement.Diagnosis{}}
	for _, g := range groups {
		for i := range g.Demands {
			switch name := g.Demands[i].Name(); i {
			case 0:
				p.Robots[name] = "own"
			case 1:
				p.Robots[name] = "lent"
			default:
				label := placement.Rejection{Check: placement.CheckDriver, Want: "docker", Got: "secret-driver"}
				p.Rejected[name] = &placement.Diagnosis{Robots: 2, Rejections: []placement.RejectionCount{{Rejection: label, Robots: 2}}}
			}
		}
	}
	return p
}

func newJob(name string, count int32) *v1alpha1.Job {
	j := &v1alpha1.Job{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Job"}, ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	g := v1alpha1.TaskGroupDefinition{Name: "g"}
	g.Count, g.Tasks = &count, []v1alpha1.TaskDefinition{{Name: "t", Driver: "exec"}}
	j.Spec.Type, j.Spec.TaskGroups = "service", []v1alpha1.TaskGroupDefinition{g}
	return j
}

// runningJob returns Job running with a task that runs on robot lent.
func runningJob() []runtime.Object {
	j := newJob("running", 1)
	j.UID, j.Generation, j.Status.State = "j", 1, "running"
	yes := true
	g := &v1alpha1.TaskGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "running-g", UID: "g", Generation: 1, Labels: map[string]string{v1alpha1.LabelJob: "running"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Job", Name: "running", UID: "j", Controller: &yes}}}}
	g.Spec.JobName, g.Spec.GroupName, g.Spec.TaskGroupTemplate = "running", "g", j.Spec.TaskGroups[0].TaskGroupTemplate
	t := &v1alpha1.Task{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "running-g-0-t", Labels: map[string]string{v1alpha1.LabelJob: "running", v1alpha1.LabelTaskIndex: "0", v1alpha1.LabelRevision: "old"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TaskGroup", Name: "running-g", UID: "g", Controller: &yes}}}}
	t.Spec.JobName, t.Spec.Name, t.Spec.TargetRobot = "running", "t", "lent"
	t.Status.State, t.Status.Attempt = "running", 1
	return []runtime.Object{j, g, t}
}

// bench serves plans.
type bench struct {
	*testing.T
	url    string
	placer fakePlacer
	now    time.Time
}

func newBench(t *testing.T) *bench {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fakeapi.NewBuilder(scheme).WithRuntimeObjects(runningJob()...).Build()
	b := &bench{T: t, now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	h := &Handler{Gate: fakeGate{}, Placer: &b.placer, Cache: c, Live: c, Now: func() time.Time { return b.now }, Log: logr.Discard()}
	mux := http.NewServeMux()
	h.Register(mux)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	b.url = s.URL
	return b
}

// post returns the status and the text of the answer.
func (b *bench) post(user string, object any) (int, string) {
	b.Helper()
	body, isText := object.(string)
	if !isText {
		data, err := json.Marshal(object)
		if err != nil {
			b.Fatal(err)
		}
		body = string(data)
	}
	r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, b.url+plan.Path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Authorization", user)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		b.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func TestPlan_ShowsOnlyWhatTheCallerMayRead(t *testing.T) {
	const change = "get/jobs update/jobs"
	larger := newJob("running", 3)
	for _, c := range []struct {
		name, user string
		object     any
		status     int
		wants      []string
		not        []string
	}{
		{"all rights", "create/jobs list/robots list/tasks", newJob("new", 3), 200, []string{`"robot":"own"`, `"robot":"lent"`, "secret-driver"}, []string{"hiddenRobots"}},
		{"robots of one namespace", "create/jobs list/robots@ns list/tasks", newJob("new", 3), 200, []string{`"robot":"own"`, `"robotHidden":true`, `"hiddenRobots":1`, "2: Driver"}, []string{"lent", "secret-driver"}},
		{"no robots", "create/jobs", newJob("new", 3), 200, []string{`"hiddenRobots":2`, "2: Driver"}, []string{"own", "lent", "secret-driver"}},
		{"an existing job", change + " list/robots list/tasks", larger, 200, []string{`"restart":{"total":1`, "running-g-0-t", `"robot":"lent"`, `"create":{"total":2`}, nil},
		{"an existing job, with patch", "get/jobs patch/jobs", larger, 200, []string{`"restart":{"total":1`}, []string{"running-g-0-t", "lent"}},
		{"no right to create", "get/jobs list/robots", newJob("new", 3), 403, []string{"create Jobs"}, []string{"own"}},
		{"no right to create, and no such job", change, newJob("new", 3), 403, []string{"create Jobs"}, nil},
		{"no right to read the existing job", "create/jobs update/jobs", larger, 403, []string{"get and update this Job"}, nil},
		{"no right to change the existing job", "create/jobs get/jobs", larger, 403, []string{"get and update this Job"}, nil},
		{"rights in another namespace", "create/jobs@other", newJob("new", 3), 403, []string{"create Jobs"}, nil},
		{"no credentials", "", newJob("new", 3), 401, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, text := newBench(t).post(c.user, c.object)
			if status != c.status {
				t.Errorf("%d %s, want %d", status, text, c.status)
			}
			for _, want := range c.wants {
				if !strings.Contains(text, want) {
					t.Errorf("lacks %s: %s", want, text)
				}
			}
			for _, not := range c.not {
				if strings.Contains(text, not) {
					t.Errorf("has %s: %s", not, text)
				}
			}
		})
	}
}

func TestPlan_RefusesWhatItCannotPlan(t *testing.T) {
	for _, c := range []struct {
		name   string
		object any
		status int
		want   string
	}{
		{"no JSON", "kind: Job", 400, "as JSON"},
		{"another kind", `{"apiVersion":"v1","kind":"Pod"}`, 400, "only a Job"},
		{"a Job of Volcano", `{"apiVersion":"batch.volcano.sh/v1alpha1","kind":"Job"}`, 400, "only a Job"},
		{"no name", newJob("", 1), 400, "metadata.name"},
		{"too many replicas", newJob("new", 1_000_001), 400, "spec.taskGroups[0].count: must be at most 1000000"},
		{"no groups", func() *v1alpha1.Job { j := newJob("new", 1); j.Spec.TaskGroups = nil; return j }(), 400, "spec.taskGroups: must be set"},
		{"an array that is too large", func() *v1alpha1.Job {
			j := newJob("new", 1)
			j.Spec.Type, j.Spec.TaskGroups[0].Array = "batch", &v1alpha1.Array{Size: 2_000_000}
			return j
		}(), 400, "spec.taskGroups[0].array"},
		{"a large object", fmt.Sprintf(`{"apiVersion":%q,"kind":"Job","metadata":{"name":%q}}`, v1alpha1.GroupVersion, strings.Repeat("x", plan.MaxRequestBytes)), 413, "at most 2097152 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if status, text := newBench(t).post("create/jobs", c.object); status != c.status || !strings.Contains(text, c.want) {
				t.Errorf("%d %.500s, want %d %s", status, text, c.status, c.want)
			}
		})
	}
}

func TestPlan_LimitsTheRateOfAUser(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		user   string
		passed time.Duration
		want   int
	}{
		{"create/jobs", 0, 200}, {"create/jobs", requestInterval / 2, 429}, {"create/jobs list/tasks", 0, 200}, {"create/jobs", requestInterval, 200},
	} {
		b.now = b.now.Add(c.passed)
		if status, text := b.post(c.user, newJob("new", 1)); status != c.want {
			t.Errorf("%+v: %d %s", c, status, text)
		}
	}
}

func TestPlan_WaitsForTheScheduler(t *testing.T) {
	b := newBench(t)
	b.placer.isSyncing = true
	if status, text := b.post("create/jobs", newJob("new", 1)); status != 429 || !strings.Contains(text, "has just started") {
		t.Errorf("%d %s", status, text)
	}
}

func TestPlan_LimitsConcurrentComputations(t *testing.T) {
	const alice, bob, carol = "create/jobs", "create/jobs list/tasks", "create/jobs list/robots"
	b := newBench(t)
	b.placer.blocked, b.placer.release = make(chan string), make(chan string)
	statuses := make(chan int, 2)
	start := func(user string) {
		go func() {
			status, _ := b.post(user, newJob("new", 1))
			statuses <- status
		}()
		<-b.placer.blocked
	}
	// Requests that do not send their bodies, and those of users without rights, take no slot.
	for i := range maxConcurrent {
		r, w := io.Pipe()
		defer w.Close()
		slow, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+plan.Path, r)
		if err != nil {
			t.Fatal(err)
		}
		slow.Header.Set("Authorization", fmt.Sprint("slow", i))
		slow.Header.Set("Expect", "100-continue") // then the body is sent only once the manager reads it
		go func() {
			if answer, err := http.DefaultClient.Do(slow); err == nil {
				answer.Body.Close()
			}
		}()
		if _, err := w.Write([]byte("{")); err != nil {
			t.Fatal(err)
		}
	}
	start(alice)
	b.refuses("mallory", 403, "may not create Jobs")
	b.refuses(alice, 429, "another plan of this user")
	start(bob)
	b.refuses(carol, 429, "computes other plans")
	for range maxConcurrent {
		b.placer.release <- ""
		if status := <-statuses; status != http.StatusOK {
			t.Errorf("status %d of a plan that was computed", status)
		}
	}
	start(alice)
	b.placer.release <- ""
	if status := <-statuses; status != http.StatusOK {
		t.Errorf("status %d after the slots were freed", status)
	}
}

// refuses requests a plan after the interval of the user, and requires a refusal.
func (b *bench) refuses(user string, want int, message string) {
	b.Helper()
	b.now = b.now.Add(requestInterval)
	if status, text := b.post(user, newJob("new", 1)); status != want || !strings.Contains(text, message) {
		b.Errorf("%s: %d %s, want %d %s", user, status, text, want, message)
	}
}
