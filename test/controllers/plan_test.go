package controllers

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/manager"
	"k8s4r.io/k8s4r/internal/platform/apiserve"
	"k8s4r.io/k8s4r/internal/protocol/plan"
	"k8s4r.io/k8s4r/internal/testkit"
)

// planner requests plans as users of one namespace.
type planner struct {
	*space
	url    string
	client *http.Client
}

// newUser creates a user with verbs on resources of ours, and returns a token of it.
func (p *planner) newUser(name string, rights map[string][]string) (token string) {
	p.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: p.name, Name: name}}
	p.must(p.Create(p.Context(), account))
	for resource, verbs := range rights {
		p.allow("system:serviceaccount:"+p.name+":"+name, resource, verbs...)
	}
	request := &authenticationv1.TokenRequest{}
	p.must(p.SubResource("token").Create(p.Context(), account, request))
	return request.Status.Token
}

// request returns the status and the answer for a Job.
func (p *planner) request(token string, j *v1alpha1.Job) (int, string) {
	p.Helper()
	j.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Job"}
	body, err := json.Marshal(j)
	p.must(err)
	r, err := http.NewRequestWithContext(p.Context(), http.MethodPost, p.url+plan.Path, bytes.NewReader(body))
	p.must(err)
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := p.client.Do(r)
	p.must(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	p.must(err)
	return answer.StatusCode, string(text)
}

// plan returns the plan for a Job. It repeats requests that the manager refuses for now, and until a
// condition holds, because the manager's caches may be behind.
func (p *planner) plan(token string, j *v1alpha1.Job, holds func(*plan.Plan) bool) (out plan.Plan) {
	p.Helper()
	testkit.EventuallyNoError(p, waitTimeout, "plan of job "+j.Name, func() error {
		status, text := p.request(token, j)
		out = plan.Plan{}
		if err := json.Unmarshal([]byte(text), &out); status != http.StatusOK || err != nil || !holds(&out) {
			return fmt.Errorf("%d %s", status, text)
		}
		return nil
	})
	return out
}

// TestPlan_IsWhatThenHappens compares plans with what the manager does when the Job is applied.
func TestPlan_IsWhatThenHappens(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := startApart(t, apartServer, manager.Config{OfflineAfter: time.Hour, API: apiserve.Config{Listener: l}}, "plan").namespace(t, "plan")
	p := &planner{space: s, url: "https://" + l.Addr().String(), client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}} // the test is not about certificates
	p.limited("1", "plan-a", "plan-b", "plan-c")
	all := p.newUser("operator", map[string][]string{"jobs": {"create", "get", "update"}, "tasks": {"list"}, "robots": {"list"}})
	j := &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: p.name, Name: "j"}, Spec: v1alpha1.JobSpec{Type: "service", TaskGroups: []v1alpha1.TaskGroupDefinition{healthyAfter(group("g", 2, "t"), 0)}}}

	predicted := p.plan(all, p.dryRun(j), func(x *plan.Plan) bool { return x.TaskGroups[0].NoRoom == nil })
	p.must(p.Create(p.Context(), j.DeepCopy()))
	for _, want := range predicted.TaskGroups[0].Create.Tasks {
		if task := p.awaitTask(want.Name, lifecycle.TaskDispatching); task.Spec.TargetRobot != want.Robot {
			t.Errorf("%s is on %s, predicted %s", want.Name, task.Spec.TargetRobot, want.Robot)
		}
		p.report(want.Name, lifecycle.TaskStarted)
	}
	p.predictsNothing(all)
	p.predictsChange(all)
	p.hidesFromOthers()
}

// dryRun returns a Job as the API server would store it.
func (p *planner) dryRun(j *v1alpha1.Job) *v1alpha1.Job {
	p.Helper()
	out := j.DeepCopy()
	p.must(p.Create(p.Context(), out, client.DryRunAll))
	return out
}

func (p *planner) storedJob() *v1alpha1.Job {
	p.Helper()
	var j v1alpha1.Job
	p.must(p.Get(p.Context(), p.key("j"), &j))
	return &j
}

func (p *planner) predictsNothing(token string) {
	p.Helper()
	if got := p.plan(token, p.storedJob(), func(*plan.Plan) bool { return true }); got.HasChanges() {
		p.Errorf("the same job: %+v", got)
	}
}

// predictsChange compares a plan with a changed command and two more replicas, one of which has no room.
func (p *planner) predictsChange(token string) {
	p.Helper()
	next := p.storedJob()
	replicas(4)(&next.Spec)
	withWord(0, "new")(&next.Spec)
	predicted := p.plan(token, next, func(x *plan.Plan) bool {
		return x.TaskGroups[0].Restart != nil && x.TaskGroups[0].Restart.Total == 2 && len(x.TaskGroups[0].NoRoom) == 1
	}).TaskGroups[0]
	if got := predicted.NoRoom[0]; got.Tasks != 1 || got.Reason != "0 of 3 robots: 3: task limit reached" {
		p.Errorf("%+v", got)
	}
	testkit.EventuallyNoError(p, waitTimeout, "change the job", func() error {
		return p.updateJobSpec("j", func(s *v1alpha1.JobSpec) { replicas(4)(s); withWord(0, "new")(s) })
	})
	var created []string
	for _, want := range predicted.Create.Tasks {
		created = append(created, want.Name)
		if want.Robot != "" {
			if task := p.awaitTask(want.Name, lifecycle.TaskDispatching); task.Spec.TargetRobot != want.Robot {
				p.Errorf("%s is on %s, predicted %s", want.Name, task.Spec.TargetRobot, want.Robot)
			}
		}
	}
	p.awaitWhy(created[slices.IndexFunc(predicted.Create.Tasks, func(x plan.Task) bool { return x.Robot == "" })], predicted.NoRoom[0].Reason)
	first := predicted.Restart.Steps[0].Tasks[0].Name
	testkit.EventuallyNoError(p, waitTimeout, "evict "+first, func() error {
		var task v1alpha1.Task
		if err := p.Get(p.Context(), p.key(first), &task); err != nil || task.Spec.EvictAttempt == 0 {
			return fmt.Errorf("evictAttempt %d, %w", task.Spec.EvictAttempt, err)
		}
		return nil
	})
}

// hidesFromOthers checks what users with fewer rights see.
func (p *planner) hidesFromOthers() {
	p.Helper()
	next := p.storedJob()
	withWord(0, "newest")(&next.Spec)
	blind := p.newUser("blind", map[string][]string{"jobs": {"get", "update"}})
	got := p.plan(blind, next, func(x *plan.Plan) bool { return x.TaskGroups[0].Restart != nil })
	text, err := json.Marshal(got)
	p.must(err)
	if strings.Contains(string(text), "plan-a") || strings.Contains(string(text), "j-g-0-t") {
		p.Errorf("a user without rights to robots and tasks sees %s", text)
	}
	for name, rights := range map[string]map[string][]string{
		"reader": {"jobs": {"get"}, "tasks": {"list"}, "robots": {"list"}}, "author": {"jobs": {"create"}},
	} {
		token := p.newUser(name, rights)
		testkit.EventuallyNoError(p, waitTimeout, "refuse the "+name, func() error {
			if status, text := p.request(token, next); status != http.StatusForbidden {
				return fmt.Errorf("%d %s", status, text)
			}
			return nil
		})
	}
	if status, text := p.request("no-such-token", next); status != http.StatusUnauthorized {
		p.Errorf("an unknown token: %d %s", status, text)
	}
}
