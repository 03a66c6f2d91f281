package task

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"pgregory.net/rapid"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/placement"
)

// Whatever the watch says, in whatever order: what robots hold is what their
// tasks add up to, and a cycle never gives away more than there is.
func TestTheBooksAlwaysBalance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := informed(func() time.Time { return noon })
		l := s.ledger
		name := rapid.SampledFrom([]string{"t0", "t1", "t2", "t3", "t4", "t5"})
		robot := rapid.SampledFrom([]string{"r0", "r1"})
		namespace := rapid.SampledFrom([]string{"ns", "b"})
		t.Repeat(map[string]func(*rapid.T){
			"task": func(t *rapid.T) {
				w := world(rapid.SampledFrom(lifecycle.TaskStates).Draw(t, "state"))
				w.Task.Name, w.Task.Spec.JobName = name.Draw(t, "name"), ""
				w.Task.UID = rapid.SampledFrom([]types.UID{"1", "2"}).Draw(t, "uid")
				w.Task.Labels = map[string]string{v1alpha1.LabelTaskIndex: w.Task.Name[1:]}
				w.Task.Spec.TargetRobot = rapid.SampledFrom([]string{"", "r0", "r1", "gone"}).Draw(t, "target")
				if w.Task.Namespace = namespace.Draw(t, "of"); w.Task.Namespace == "b" {
					w.Task.OwnerReferences = nil // its group is not known there
				}
				if rapid.Bool().Draw(t, "has run") {
					w.Task.Status.Attempt, w.Task.Status.Attempts = 1, history(t)
					w.Task.Status.Original = rapid.Int32Range(0, 3).Draw(t, "original")
				}
				if lifecycle.TaskState(w.Task.Status.State).OnRobot() && w.Task.Spec.TargetRobot == "" {
					t.Skip("nothing runs nowhere")
				}
				l.seeTask(w.Task)
			},
			"task gone": func(t *rapid.T) {
				l.leave(key{Namespace: namespace.Draw(t, "of"), Name: name.Draw(t, "name")})
			},
			"robot": func(t *rapid.T) {
				r := robotIn(rapid.SampledFrom(lifecycle.RobotPhases).Draw(t, "phase"))
				r.Name, r.Namespace = robot.Draw(t, "robot"), namespace.Draw(t, "in")
				if rapid.Bool().Draw(t, "shared") {
					r.Labels = map[string]string{v1alpha1.ShareLabelPrefix + "b": "true", v1alpha1.ShareLabelPrefix + "ns": "true"}
				}
				r.Spec.Capacity = map[string]resource.Quantity{"tasks": resource.MustParse("2")}
				l.seeRobot(r)
			},
			"robot gone": func(t *rapid.T) {
				l.dropRobot(key{Namespace: namespace.Draw(t, "in"), Name: robot.Draw(t, "robot")})
			},
			"want": func(t *rapid.T) {
				n := name.Draw(t, "name")
				l.want(groupG, running(nil), []placement.Demand{{Group: "g", Index: int(n[1] - '0'), Tasks: []placement.Task{{Name: n, Driver: "exec"}}}})
			},
			"release": func(t *rapid.T) { l.release(key{Namespace: "ns", Name: name.Draw(t, "name")}) },
			"forget":  func(t *rapid.T) { l.forget(key{Namespace: "ns", Name: "g"}) },
			"expire":  func(t *rapid.T) { l.expire(noon.Add(time.Hour)) },
			"time":    func(t *rapid.T) { l.pass(noon.Add(time.Minute)) },
			"cycle": func(t *rapid.T) {
				before := booked(l)
				s.cycle(noon)
				for r, n := range booked(l) {
					if n > before[r] && n > 2 {
						t.Fatalf("a cycle overbooked %s: %d tasks", r, n)
					}
				}
			},
			"": func(t *rapid.T) { balance(t, l) },
		})
	})
}

// history has the attempt that counts, which is the first, and others.
func history(t *rapid.T) []v1alpha1.TaskAttempt {
	var out []v1alpha1.TaskAttempt
	for n := range int32(rapid.IntRange(1, 3).Draw(t, "attempts")) {
		a := v1alpha1.TaskAttempt{Attempt: n + 1, Robot: rapid.SampledFrom([]string{"r0", "r1", "gone"}).Draw(t, "ran on")}
		if rapid.Bool().Draw(t, "ended") {
			a.FinishedAt = &metav1.MicroTime{Time: noon}
		}
		out = append(out, a)
	}
	return out
}

// seated counts the entries that have a seat, by robot.
func seated(l *ledger) map[string]int64 {
	out := map[string]int64{}
	for _, e := range l.entries {
		if e.seat != "" {
			out[e.seat]++
		}
	}
	return out
}

// booked counts all room that is taken, by robot.
func booked(l *ledger) map[string]int64 {
	out := seated(l)
	for r := range holding(l) {
		out[r.robot]++
	}
	return out
}

// holding are the runs that do not count and hold room.
func holding(l *ledger) map[*run]bool {
	out := map[*run]bool{}
	add := func(r *run) {
		if !r.over {
			out[r] = true
		}
	}
	for _, past := range l.runs {
		for _, r := range past.by {
			add(r)
		}
	}
	for _, r := range l.leaving {
		add(r)
	}
	return out
}

func balance(t *rapid.T, l *ledger) {
	held := map[string]int64{}
	for k, r := range l.robots {
		if r.held.Tasks != 0 {
			held[k] = r.held.Tasks
		}
		if !r.known() && r.held.Tasks == 0 {
			t.Fatalf("robot %s is kept for nothing", k)
		}
	}
	if !maps.Equal(held, booked(l)) {
		t.Fatalf("robots hold %v, what is booked is %v", held, booked(l))
	}
	for k, e := range l.entries {
		_, waits := l.waiting[k]
		if waits == (e.seat != "") {
			t.Fatalf("%s waits %v, its seat is %q", k, waits, e.seat)
		}
	}
	for _, e := range l.entries {
		if r := l.robots[e.seat]; e.seat != "" && !e.onRobot && !r.takes(e.key.Namespace) {
			t.Fatalf("%s is to go to %s, which does not take it", e.key, e.seat)
		}
	}
	for _, namespace := range []string{"ns", "b"} {
		usable, inContact := map[string]*robot{}, 0
		for id, r := range l.robots {
			if r.known() && r.objects[0].Serves(namespace) {
				usable[id] = r
				if r.inContact() {
					inContact++
				}
			}
		}
		if !maps.Equal(usable, l.fleets[namespace]) || inContact != l.contact[namespace].robots {
			t.Fatalf("%s may use %v, of which %d are in contact; the ledger has %v and %d", namespace, usable, inContact, l.fleets[namespace], l.contact[namespace].robots)
		}
	}
	if n := len(l.entries); len(l.waiting) > n || len(l.unseen) > n {
		t.Fatalf("%d entries, %d waiting, %d unseen", n, len(l.waiting), len(l.unseen))
	}
}

// informed is a scheduler whose watch has shown job j, which runs, and its group g.
func informed(now func() time.Time) *Scheduler {
	s := NewScheduler(now, logr.Discard())
	s.ledger.seeJob(running(nil))
	s.ledger.seeGroup(groupG)
	return s
}

var groupG = &v1alpha1.TaskGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g"}, Spec: v1alpha1.TaskGroupSpec{JobName: "j"}}

func TestBindAnswersAndTellsOfMore(t *testing.T) {
	s := informed(time.Now)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Start(ctx) }()
	defer func() { cancel(); <-ended }()
	told := make(chan string, 10)
	s.OnGroup(func(namespace, name string) { told <- namespace + "/" + name })
	s.change(func(l *ledger) { l.seeRobot(named(robotIn(lifecycle.RobotOnline), "r1", 1)) })
	var demands []placement.Demand
	for i := range 2 {
		demands = append(demands, placement.Demand{Group: "g", Index: i, Tasks: []placement.Task{{Name: fmt.Sprint("t", i), Driver: "exec"}}})
	}
	seats, err := s.Bind(ctx, groupG, running(nil), demands)
	if err != nil || len(seats) != 1 || seats["t0"].Name != "r1" {
		t.Fatalf("seats %v, %v", seats, err)
	}
	s.change(func(l *ledger) { l.seeRobot(named(robotIn(lifecycle.RobotOnline), "r2", 1)) })
	if got := <-told; got != "ns/g" {
		t.Errorf("told %s", got)
	}
	seats, err = s.Bind(ctx, groupG, running(nil), demands)
	if err != nil || len(seats) != 2 || seats["t1"].Name != "r2" {
		t.Errorf("seats %v, %v", seats, err)
	}
}

func named(r *v1alpha1.Robot, name string, tasks int64) *v1alpha1.Robot {
	r.Namespace, r.Name = "ns", name
	r.Spec.Capacity = map[string]resource.Quantity{"tasks": *resource.NewQuantity(tasks, resource.DecimalSI)}
	return r
}

func TestATaskThatComesBackGivesItsSeatUp(t *testing.T) {
	l := newLedger(func() time.Time { return noon })
	l.seeRobot(named(robotIn(lifecycle.RobotOnline), "r1", 1))
	on, back := world(lifecycle.TaskRunning), world(lifecycle.TaskPending)
	on.Task.Name, back.Task.Name = "t", "t"
	l.seeTask(on.Task)
	l.seeTask(back.Task)
	k := key{Namespace: "ns", Name: "t"}
	if l.waiting[k] == nil || l.entries[k].seat != "" || l.robot("r1").held.Tasks != 0 {
		t.Errorf("entry %+v", l.entries[k])
	}
}

func TestATaskThatHasEndedFreesTheSeatThatItsGroupAskedFor(t *testing.T) {
	s := informed(func() time.Time { return noon })
	l := s.ledger
	l.seeRobot(named(robotIn(lifecycle.RobotOnline), "r1", 1))
	l.want(groupG, running(nil), []placement.Demand{{Group: "g", Tasks: []placement.Task{{Name: "t0", Driver: "exec"}}}})
	s.cycle(noon)
	if seated(l)["r1"] != 1 {
		t.Fatalf("seats %v", seated(l))
	}
	for _, state := range []lifecycle.TaskState{lifecycle.TaskPending, lifecycle.TaskRunning, lifecycle.TaskCompleted} {
		l.seeTask(ofGroup(world(state).Task, "g", "t0", "r1"))
	}
	s.cycle(noon)
	if len(seated(l)) != 0 {
		t.Errorf("what nobody will create holds %v", seated(l))
	}
}

func TestAReplicaThatIsHalfThereKeepsItsRobot(t *testing.T) {
	s := informed(func() time.Time { return noon })
	l := s.ledger
	l.seeRobot(named(robotIn(lifecycle.RobotOnline), "r1", 4))
	demand := placement.Demand{Group: "g", Tasks: []placement.Task{{Name: "a", Driver: "exec"}, {Name: "b", Driver: "exec"}}}
	l.want(groupG, running(nil), []placement.Demand{demand})
	s.cycle(noon)
	l.seeRobot(named(robotIn(lifecycle.RobotOnline), "r2", 4))
	l.release(key{Namespace: "ns", Name: "a"}) // its create failed
	s.cycle(noon)
	if got := seated(l); got["r1"] != 1 || got["r2"] != 0 {
		t.Errorf("b moved while it was being created: %v", got)
	}
	l.seeTask(ofGroup(world(lifecycle.TaskRunning).Task, "g", "b", "r1"))
	l.seeTask(ofGroup(world(lifecycle.TaskPending).Task, "g", "a", ""))
	s.cycle(noon)
	if got := seated(l); got["r1"] != 2 {
		t.Errorf("the tasks of one replica are on %v", got)
	}
}

func TestANameThatAnotherGroupHoldsGivesNoSeat(t *testing.T) {
	s := informed(func() time.Time { return noon })
	l := s.ledger
	l.seeRobot(named(robotIn(lifecycle.RobotOnline), "r1", 4))
	l.seeTask(ofGroup(world(lifecycle.TaskRunning).Task, "other", "t0", "r1"))
	g := key{Namespace: "ns", Name: "g"}
	demands := []placement.Demand{{Group: "g", Tasks: []placement.Task{{Name: "t0", Driver: "exec"}}}}
	l.want(groupG, running(nil), demands)
	s.cycle(noon)
	if got := l.seats(g, demands); len(got) != 0 {
		t.Errorf("seats %v", got)
	}
}

func TestALaterJobOfTheSameNameCounts(t *testing.T) {
	l := newLedger(func() time.Time { return noon })
	j := &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j", CreationTimestamp: metav1.NewTime(noon)}}
	l.seeJob(j)
	later := j.DeepCopy()
	later.Spec.RobotSelector = map[string]string{"env": "prod"}
	l.seeJob(later) // the watch was cut off and shows no deletion
	if got := l.jobs[key{Namespace: "ns", Name: "j"}].rules.Selector["env"]; got != "prod" {
		t.Errorf("tasks would go where %q is selected", got)
	}
}

func TestADeletedTaskKeepsItsRoomUntilItsProcessHasEnded(t *testing.T) {
	now := noon
	s := informed(func() time.Time { return now })
	l := s.ledger
	l.seeRobot(named(robotIn(lifecycle.RobotOnline), "r1", 1))
	old := ofGroup(world(lifecycle.TaskRunning).Task, "g", "t0", "r1")
	old.UID, old.Spec.KillTimeout = "old", v1alpha1.NewDuration(10*time.Second)
	l.seeTask(old)
	l.leave(key{Namespace: "ns", Name: "t0"})
	next := ofGroup(world(lifecycle.TaskPending).Task, "g", "t0", "")
	next.UID = "next"
	l.seeTask(next)
	s.cycle(now)
	if robot, _ := s.seat(key{Namespace: "ns", Name: "t0"}); robot != "" {
		t.Error("the next task has a seat while the old process may live")
	}
	if got, want := l.next(), noon.Add(10*time.Second+grace); !got.Equal(want) {
		t.Errorf("looks again at %s, want %s", got, want)
	}
	now = l.next()
	s.cycle(now)
	if robot, _ := s.seat(key{Namespace: "ns", Name: "t0"}); robot != "r1" {
		t.Errorf("the next task is on %q", robot)
	}
	if !l.next().IsZero() {
		t.Error("wakes up for nothing")
	}
}

func TestATaskWhoseDeletionTheWatchDidNotShowKeepsItsRoomToo(t *testing.T) {
	s := informed(func() time.Time { return noon })
	s.ledger.seeRobot(named(robotIn(lifecycle.RobotOnline), "r1", 1))
	old := ofGroup(world(lifecycle.TaskRunning).Task, "g", "t0", "r1")
	next := ofGroup(world(lifecycle.TaskPending).Task, "g", "t0", "")
	old.UID, next.UID = "old", "next"
	s.ledger.seeTask(old)
	s.ledger.seeTask(next)
	s.cycle(noon)
	if robot, _ := s.seat(key{Namespace: "ns", Name: "t0"}); robot != "" {
		t.Error("the next task has a seat while the old process may live")
	}
}

func TestTheSchedulerWakesWhenRoomIsFreeAgain(t *testing.T) {
	s := informed(time.Now)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Start(ctx) }()
	defer func() { cancel(); <-ended }()
	told := make(chan string, 10)
	s.listen(func(_, name string) {
		if robot, _ := s.seat(key{Namespace: "ns", Name: name}); robot != "" {
			told <- robot
		}
	})
	s.change(func(l *ledger) {
		l.seeRobot(named(robotIn(lifecycle.RobotOnline), "r1", 1))
		old := ofGroup(world(lifecycle.TaskRunning).Task, "g", "t0", "r1")
		l.seeTask(old)
		l.leave(key{Namespace: "ns", Name: "t0"})
		l.leaving[0].stop = 50 * time.Millisecond
		l.seeTask(ofGroup(world(lifecycle.TaskPending).Task, "g", "t0", ""))
	})
	select {
	case robot := <-told:
		if robot != "r1" {
			t.Errorf("told of %s", robot)
		}
	case <-time.After(10 * time.Second):
		t.Error("nobody woke up")
	}
}

func TestATaskThatKeepsComingBackHoldsNoRoomWhileItWaits(t *testing.T) {
	s := informed(func() time.Time { return noon })
	s.ledger.seeRobot(named(robotIn(lifecycle.RobotOnline), "r1", 1))
	w := world(lifecycle.TaskPending, returned(4, time.Second))
	s.ledger.seeTask(ofGroup(w.Task, "g", "t0", ""))
	s.cycle(noon)
	if got := seated(s.ledger); len(got) != 0 {
		t.Errorf("seats %v", got)
	}
	at := s.ledger.next()
	if want := noon.Add(3 * time.Second); !at.Equal(want) {
		t.Fatalf("looks again at %s, want %s", at, want)
	}
	s.cycle(at)
	if got := seated(s.ledger); got["r1"] != 1 {
		t.Errorf("seats %v", got)
	}
}

func TestAJobThatStartsNothingTakesItsSeatsBack(t *testing.T) {
	for name, ends := range map[string]func(*ledger, *v1alpha1.Job){
		"deleted in the background": func(l *ledger, _ *v1alpha1.Job) { l.dropJob(key{Namespace: "ns", Name: "j"}) },
		"deleted in the foreground": func(l *ledger, j *v1alpha1.Job) { j.DeletionTimestamp = &j.CreationTimestamp; l.seeJob(j) },
		"paused":                    func(l *ledger, j *v1alpha1.Job) { j.Status.State = string(lifecycle.JobPaused); l.seeJob(j) },
	} {
		t.Run(name, func(t *testing.T) {
			s := informed(func() time.Time { return noon })
			l := s.ledger
			j := &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j"}}
			l.seeJob(j)
			l.seeRobot(named(robotIn(lifecycle.RobotOnline), "r1", 2))
			runs, waits := world(lifecycle.TaskRunning).Task, world(lifecycle.TaskPending).Task
			runs.Name, waits.Name = "runs", "waits"
			waits.Labels = map[string]string{v1alpha1.LabelTaskIndex: "1"}
			l.seeTask(runs)
			l.seeTask(waits)
			s.cycle(noon)
			if got := seated(l); got["r1"] != 2 {
				t.Fatalf("seats %v", got)
			}
			ends(l, j.DeepCopy())
			s.cycle(noon)
			if robot, _ := s.seat(key{Namespace: "ns", Name: "waits"}); robot != "" || seated(l)["r1"] != 1 {
				t.Errorf("waits for %q, seats %v", robot, seated(l))
			}
		})
	}
}

// ofGroup makes t the only replica's task of a group, under its own name.
func ofGroup(t *v1alpha1.Task, group, name, robot string) *v1alpha1.Task {
	t.Name, t.Spec.TargetRobot, t.Spec.JobName = name, robot, ""
	for i := range t.Status.Attempts {
		t.Status.Attempts[i].Robot = robot
	}
	t.Labels = map[string]string{v1alpha1.LabelTaskIndex: "0"}
	controls := true
	t.OwnerReferences = []metav1.OwnerReference{{Kind: "TaskGroup", Name: group, Controller: &controls}}
	return t
}

// A seat is taken and given back for the same room, whatever the task has
// become meanwhile: a robot would seem full, or be overbooked, for ever.
func TestATaskThatIsDefinedAnewGivesItsSeatBack(t *testing.T) {
	s := informed(func() time.Time { return noon })
	r := robotIn(lifecycle.RobotOnline)
	r.Namespace, r.Spec.Capacity = "ns", map[string]resource.Quantity{"cpu": resource.MustParse("4")}
	s.ledger.seeRobot(r)
	w := world(lifecycle.TaskPending, byHand)
	needs := func(cpu string) {
		q := resource.MustParse(cpu)
		w.Task.Spec.Resources = &v1alpha1.Resources{CPU: &q}
		s.ledger.seeTask(w.Task)
		s.cycle(noon)
	}
	for _, c := range []struct{ cpu, wantSeat string }{{"1", "r1"}, {"3", "r1"}, {"5", ""}} {
		needs(c.cpu)
		if seat, _ := s.seat(key{Namespace: "ns", Name: "t"}); seat != c.wantSeat {
			t.Errorf("%s cpus: seat %q", c.cpu, seat)
		}
	}
	needs("2")
	s.ledger.leave(key{Namespace: "ns", Name: "t"})
	if held := s.ledger.robot("r1").held; !held.Equal(placement.Room{}) {
		t.Errorf("the robot still holds %+v", held)
	}
}
