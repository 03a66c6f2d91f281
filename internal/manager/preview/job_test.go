package preview

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/job"
	"k8s4r.io/k8s4r/internal/controllers/taskgroup"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/protocol/plan"
	"k8s4r.io/k8s4r/internal/scheduler"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// newJob returns a Job of one group of replicas with tasks a and b.
func newJob(kind string, count int32, changes ...func(*v1alpha1.Job)) *v1alpha1.Job {
	j := &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j", UID: "job", Generation: 1}}
	g := v1alpha1.TaskGroupDefinition{Name: "g"}
	g.Count = &count
	for _, name := range []string{"a", "b"} {
		t := v1alpha1.TaskDefinition{Name: name, Driver: "exec"}
		t.Config.ExecConfig = &v1alpha1.ExecConfig{Command: "v1"}
		g.Tasks = append(g.Tasks, t)
	}
	j.Spec.Type, j.Spec.TaskGroups = kind, []v1alpha1.TaskGroupDefinition{g}
	for _, change := range changes {
		change(j)
	}
	return j
}

func commandOfB(command string) func(*v1alpha1.Job) {
	return func(j *v1alpha1.Job) {
		j.Spec.TaskGroups[0].Tasks[1].Config.ExecConfig = &v1alpha1.ExecConfig{Command: command}
	}
}

func inWaves(j *v1alpha1.Job) { j.Spec.Update = &v1alpha1.JobUpdate{Strategy: v1alpha1.UpdateRollout} }

// running returns a world in which the tasks of a Job run, each on a robot of its own.
func running(t *testing.T, j *v1alpha1.Job) World {
	t.Helper()
	actions := job.Plan(noon, time.Second, job.Input{Job: j})
	w := World{Job: j, Groups: map[string]*v1alpha1.TaskGroup{}, Tasks: map[types.UID][]*v1alpha1.Task{}, Robots: robots(2)}
	j.Status.State, j.Status.ObservedGeneration = "running", j.Generation
	if r := actions.Revisions.Create; r != nil {
		w.Revisions, j.Status.CurrentRevision, j.Status.UpdateRevision = []*appsv1.ControllerRevision{r}, r.Revision, r.Revision
	}
	for _, g := range actions.Create {
		g.UID, g.Generation = types.UID(g.Name), 1
		g.Status.State, g.Status.ObservedGeneration = "running", 1
		w.Groups[g.Spec.GroupName] = g
		p, err := taskgroup.PreviewGroup(noon, w.Config, taskgroup.PreviewInput{Group: g, Job: j, Robots: w.Robots})
		if err != nil {
			t.Fatal(err)
		}
		for i, task := range p.Create {
			if task.Spec.TargetRobot == "" {
				task.Spec.TargetRobot = fmt.Sprintf("r%d", i/2)
			}
			task.Status = v1alpha1.TaskStatus{State: "running", Attempt: 1, Attempts: []v1alpha1.TaskAttempt{{Attempt: 1, State: "running", StartedAt: &metav1.MicroTime{Time: noon.Add(-time.Hour)}}}}
			w.Tasks[g.UID] = append(w.Tasks[g.UID], task)
		}
	}
	return w
}

func robots(n int) (all []v1alpha1.Robot) {
	for i := range n {
		r := v1alpha1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("r%d", i)}}
		r.Status.Phase, r.Status.DeviceInfo = "online", &v1alpha1.DeviceInfo{Drivers: []string{"exec"}}
		all = append(all, r)
	}
	return all
}

// placeTwo gives the first two demands of each group a robot.
func placeTwo(_ time.Time, _ *v1alpha1.Job, groups []scheduler.PreviewGroup) scheduler.Preview {
	p := scheduler.Preview{Robots: map[string]string{}, Rejected: map[string]*placement.Diagnosis{}, Preempted: map[string][]string{}}
	full := []placement.RejectionCount{{Rejection: placement.Rejection{Check: placement.CheckPhase, Got: "Offline"}, Robots: 2}}
	for _, g := range groups {
		for i := range g.Demands {
			name := g.Demands[i].Name()
			if i < 2 {
				p.Robots[name] = fmt.Sprintf("free%d", i)
				continue
			}
			p.Rejected[name] = &placement.Diagnosis{Robots: 2, Rejections: full}
			p.Preempted[name] = []string{"victim"}
		}
	}
	return p
}

func TestPlanJob(t *testing.T) {
	for _, c := range []struct {
		name  string
		was   *v1alpha1.Job // nil: it is created
		next  *v1alpha1.Job
		want  plan.Action
		wants []string // parts of the plan as JSON
		not   []string
	}{
		{"a new job", nil, newJob("batch", 3), plan.Create, []string{
			`"create":{"total":6,"tasks":[{"name":"j-g-0-a","robot":"free0"},{"name":"j-g-0-b","robot":"free0"},{"name":"j-g-1-a","robot":"free1"}`,
			`"noRoom":[{"tasks":2,"reason":"0 of 2 robots: 2: phase is Offline","preempts":["victim"],"preemptsTotal":1}]`}, nil},
		{"a new job on every robot", nil, newJob("system", 1), plan.Create, []string{`"total":4`, `{"name":"j-g-1-b","robot":"r1"}`, `"revision":1`}, []string{"noRoom"}},
		{"more than the window", nil, newJob("batch", 400), plan.Create, []string{`"total":500`, `"createLater":300`}, nil},
		{"the same job", newJob("service", 2), newJob("service", 2), plan.None, nil, []string{"taskGroups"}},
		{"another file of kubectl apply", newJob("service", 2), newJob("service", 2, func(j *v1alpha1.Job) {
			j.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}"}
		}), plan.None, nil, []string{"taskGroups"}},
		{"a label", newJob("service", 2), newJob("service", 2, func(j *v1alpha1.Job) { j.Labels = map[string]string{"team": "a"} }), plan.Update, []string{"no task changes"}, []string{"taskGroups"}},
		{"a command", newJob("service", 2), newJob("service", 2, commandOfB("v2")), plan.Update, []string{
			`"restart":{"total":2,"maxParallel":1,"minHealthySeconds":10,"steps":[{"total":1,"tasks":[{"name":"j-g-0-b","robot":"r0"}]},{"total":1,"tasks":[{"name":"j-g-1-b","robot":"r1"}]}]}`,
			`"revision":2`}, []string{`"create"`, `"stop"`}},
		{"a command, for a rollout", newJob("service", 2, inWaves), newJob("service", 2, inWaves, commandOfB("v2")), plan.Update, []string{
			"makes revision 2 and changes no task that runs", `"action":"none"`}, []string{"restart", `"create"`}},
		{"more replicas", newJob("service", 1), newJob("service", 3), plan.Update, []string{`"create":{"total":4,"tasks":[{"name":"j-g-1-a","robot":"free0"}`}, []string{"restart", "stop", "noRoom"}},
		{"more replicas, for a rollout", newJob("service", 1, inWaves), newJob("service", 2, inWaves), plan.Update, []string{`"create":{"total":2`}, []string{"restart", "makes revision"}},
		{"fewer replicas", newJob("service", 3), newJob("service", 1), plan.Update, []string{`"stop":{"total":4,"tasks":[{"name":"j-g-1-a","robot":"r1"}`}, []string{"restart", `"create"`}},
		{"fewer robots match", newJob("system", 1), newJob("system", 1, func(j *v1alpha1.Job) { j.Spec.RobotSelector = map[string]string{"site": "b"} }), plan.Update, []string{`"stop":{"total":4`}, nil},
		{"a priority", newJob("service", 2), newJob("service", 2, func(j *v1alpha1.Job) { p := int32(90); j.Spec.Priority = &p }), plan.Update, []string{"priority changes from 50 to 90"}, []string{"restart", `"create"`, "stop"}},
		{"meta", newJob("service", 2), newJob("service", 2, func(j *v1alpha1.Job) { j.Spec.Meta = map[string]string{"a": "b"} }), plan.Update, nil, []string{"restart", `"create"`, "stop", "changeInPlace"}},
		{"a job that has ended", newJob("batch", 2, completed), newJob("batch", 2, commandOfB("v2")), plan.Update, []string{"has ended (completed)"}, []string{"restart", `"create"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := World{Robots: robots(2)}
			if c.was != nil {
				ended := c.was.Status
				w = running(t, c.was)
				if ended.State != "" {
					endTasks(&w, ended)
				}
				c.next.Status, c.next.Generation = c.was.Status, 2
			}
			w.Place = placeTwo
			p, err := PlanJob(noon, w, c.next)
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			if p.Action != c.want {
				t.Errorf("action %s, want %s", p.Action, c.want)
			}
			for _, want := range c.wants {
				if !strings.Contains(string(text), want) {
					t.Errorf("lacks %s: %s", want, text)
				}
			}
			for _, not := range c.not {
				if strings.Contains(string(text), not) {
					t.Errorf("has %s: %s", not, text)
				}
			}
		})
	}
}

func completed(j *v1alpha1.Job) { j.Status.State = "completed" }

// endTasks makes all tasks of a world complete, and gives the Job a status.
func endTasks(w *World, s v1alpha1.JobStatus) {
	w.Job.Status.State = s.State
	for _, tasks := range w.Tasks {
		for _, t := range tasks {
			t.Status.State = "completed"
			w.Job.Status.TotalTasks, w.Job.Status.SucceededTasks = w.Job.Status.TotalTasks+1, w.Job.Status.SucceededTasks+1
		}
	}
	for _, g := range w.Groups {
		g.Status.State, g.Status.CompletedAt = "completed", &metav1.MicroTime{Time: noon}
	}
}

func TestPlanJob_HidesWhatRobotsHave(t *testing.T) {
	p, err := PlanJob(noon, World{Place: placeTwo, HideValues: true}, newJob("batch", 3))
	if err != nil {
		t.Fatal(err)
	}
	if got := p.TaskGroups[0].NoRoom[0].Reason; got != "0 of 2 robots: 2: Phase" {
		t.Error(got)
	}
}

// TestPlanJob_BoundsThePlacedReplicas has a Job whose groups need more robots together than a plan places.
func TestPlanJob_BoundsThePlacedReplicas(t *testing.T) {
	next := newJob("service", 900)
	for _, name := range []string{"h", "gang", "i"} {
		g := *next.Spec.TaskGroups[0].DeepCopy()
		if g.Name = name; name == "gang" {
			g.Gang, g.Count = true, new(int32(250))
		}
		next.Spec.TaskGroups = append(next.Spec.TaskGroups, g)
	}
	asked := map[string]int{}
	w := World{Place: func(_ time.Time, _ *v1alpha1.Job, groups []scheduler.PreviewGroup) scheduler.Preview {
		for _, g := range groups {
			asked[g.Group.Spec.GroupName] = len(g.Demands)
		}
		return scheduler.Preview{IsPartial: true}
	}}
	p, err := PlanJob(noon, w, next)
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]int{"g": 900, "h": 900, "i": 200}; !maps.Equal(asked, want) {
		t.Errorf("asked for %v, want %v", asked, want)
	}
	notes := strings.Join(p.Notes, "\n")
	for _, want := range []string{"2950 new replicas need a robot, and the first 2000 are placed", "the time for a plan ran out: new tasks"} {
		if !strings.Contains(notes, want) {
			t.Errorf("notes %q lack %q", notes, want)
		}
	}
}

func TestPlanJob_OmitsGroupsWhenTheTimeRunsOut(t *testing.T) {
	next := newJob("service", 1)
	second := *next.Spec.TaskGroups[0].DeepCopy()
	second.Name = "h"
	next.Spec.TaskGroups = append(next.Spec.TaskGroups, second)
	p, err := PlanJob(noon, World{IsExpired: func() bool { return true }}, next)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.TaskGroups) > 0 || len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "the last 2 task groups of the Job are not in it") {
		t.Errorf("%+v", p)
	}
}
