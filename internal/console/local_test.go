package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/console/row"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

const maintenanceText = "In maintenance since 2026-03-01T12:01:00Z, by bob (uid 1001): a broken arm"

// lockedRobot returns a robot in maintenance, at which a task was stopped.
func lockedRobot() *v1alpha1.Robot {
	r := &v1alpha1.Robot{ObjectMeta: metaOf("r1")}
	since := metav1.NewTime(minute(1).Time)
	r.Status.Phase = "Online"
	r.Status.Maintenance = &v1alpha1.RobotMaintenance{ID: "m1", By: "bob (uid 1001)", Reason: "a broken arm", Since: &since}
	r.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionMaintenance, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonMaintenanceOn, Message: maintenanceText, LastTransitionTime: since}}
	r.Status.StoppedTasks = []v1alpha1.StoppedTask{{UID: "u1", Namespace: "fleet", Name: "camera-0", By: "alice (uid 1000)", Since: &since}, {UID: "u2"}}
	return r
}

func TestGetObject_ShowsWhatPeopleAtTheRobotDecided(t *testing.T) {
	locked, cordoned, unlocked, free := lockedRobot(), lockedRobot(), lockedRobot(), lockedRobot()
	cordoned.Name, cordoned.Spec.Unschedulable = "r2", true
	unlocked.Name, unlocked.Spec.UnlockMaintenance = "r3", "m1"
	free.Name, free.Status.Maintenance, free.Status.StoppedTasks = "r4", nil, nil
	free.Status.Conditions[0].Status, free.Status.Conditions[0].Message = metav1.ConditionFalse, ""
	s, _ := newTestServer(&fakeGate{}, locked, cordoned, unlocked, free)
	sentence := "MaintenanceOn: " + maintenanceText
	for name, want := range map[string][]string{
		"r1": {sentence},
		"r2": {"Unschedulable", sentence},
		"r3": {sentence, "A user has requested its end: it ends when the robot receives that"},
		"r4": {},
	} {
		if got := getDetails(t, s, "robots/n/"+name).Why; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	stopped := getDetails(t, s, "robots/n/r1").StoppedTasks
	if len(stopped) != 2 || stopped[0].Namespace != "fleet" || stopped[0].Name != "camera-0" || stopped[0].By != "alice (uid 1000)" || !stopped[0].Since.Equal(minute(1)) || stopped[1].UID != "u2" || stopped[1].Since != nil {
		t.Errorf("stopped tasks %+v", stopped)
	}
	if got := getDetails(t, s, "robots/n/r4").StoppedTasks; got != nil {
		t.Errorf("of a robot without any: %+v", got)
	}
}

func TestGetObject_ShowsHolds(t *testing.T) {
	held := &v1alpha1.Robot{ObjectMeta: metaOf("r1")}
	held.Status.Phase = "Online"
	held.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionHeld, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonHeld, Message: "The robot is held by alice: a visit"}}
	released := held.DeepCopy()
	released.Name, released.Status.Conditions[0].Status = "r2", metav1.ConditionFalse
	s, _ := newTestServer(&fakeGate{}, held, released)
	if got := getDetails(t, s, "robots/n/r1").Why; !slices.Equal(got, []string{"Held: The robot is held by alice: a visit"}) {
		t.Errorf("the page of a held robot has %q", got)
	}
	if got := getDetails(t, s, "robots/n/r2").Why; len(got) != 0 {
		t.Errorf("after the release it has %q", got)
	}
}

// The API server refuses a change of the field to users without the verb, also in a dry run: the browser
// shows the refusal, and offers nothing to confirm.
func TestRunAll_UnlocksOnlyForUsersWithTheVerb(t *testing.T) {
	for _, mayUnlock := range []bool{true, false} {
		for _, dry := range []bool{true, false} {
			t.Run(fmt.Sprintf("may unlock %t, dry run %t", mayUnlock, dry), func(t *testing.T) {
				line, id := unlockRobot(t, mayUnlock, dry)
				want, wantID := "true unlock requested; the maintenance by bob (uid 1001) ends when the robot receives that", map[bool]string{false: "m1"}[dry]
				if !mayUnlock {
					want, wantID = `false robots.robot.k8s4r.io "r1" is forbidden: needs the verb unlock`, ""
				}
				if line != want || id != wantID {
					t.Errorf("got %q, and spec.unlockMaintenance %q; want %q, %q", line, id, want, wantID)
				}
			})
		}
	}
}

// unlockRobot applies the action, and returns its result and spec.unlockMaintenance afterwards.
func unlockRobot(t *testing.T, mayUnlock, dry bool) (line, id string) {
	t.Helper()
	stored := lockedRobot()
	stored.ResourceVersion = ""
	refuse := interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if !mayUnlock {
			return apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("robots").GroupResource(), o.GetName(), errors.New("needs the verb unlock"))
		}
		return c.Patch(ctx, o, p, opts...)
	}}
	d := executor{action: actUnlock, dry: dry, c: fakeapi.NewBuilder(NewScheme()).WithObjects(stored).WithInterceptorFuncs(refuse).Build()}
	d.s, _ = newTestServer(&fakeGate{}, lockedRobot())
	results := make([]result, 1)
	d.runAll(t.Context(), on(row.Robots, "r1"), results)
	var now v1alpha1.Robot
	if err := d.c.Get(t.Context(), client.ObjectKeyFromObject(stored), &now); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(results[0].OK, " ", results[0].Message), now.Spec.UnlockMaintenance
}
