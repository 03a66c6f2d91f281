package robotidentity

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

type change func(*v1alpha1.Robot)

func robot(changes ...change) *v1alpha1.Robot {
	r := &v1alpha1.Robot{ObjectMeta: metav1.ObjectMeta{Name: "r1", Namespace: "hall"}}
	for _, f := range changes {
		f(r)
	}
	return r
}

func id(r *v1alpha1.Robot) *v1alpha1.RobotIdentity {
	if r.Status.Identity == nil {
		r.Status.Identity = &v1alpha1.RobotIdentity{}
	}
	return r.Status.Identity
}

func requested(key, machine string) change {
	return func(r *v1alpha1.Robot) {
		id(r).Requested = &v1alpha1.IdentityRequest{Key: key, Machine: machine, Hostname: "host", Address: "10.0.0.9"}
	}
}

func accepted(key, machine string) change {
	return func(r *v1alpha1.Robot) {
		id(r).Accepted = &v1alpha1.AcceptedIdentity{Key: key, Machine: machine, By: byToken}
	}
}

func identitySpec(s v1alpha1.RobotIdentitySpec) change {
	return func(r *v1alpha1.Robot) { r.Spec.Identity = &s }
}

func condition(kind string, is metav1.ConditionStatus, reason string) change {
	return func(r *v1alpha1.Robot) {
		meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{Type: kind, Status: is, Reason: reason})
	}
}

func TestPlan(t *testing.T) {
	revoked := identitySpec(v1alpha1.RobotIdentitySpec{Revoked: true, RevokedReason: "stolen"})
	approves := func(key string) change { return identitySpec(v1alpha1.RobotIdentitySpec{ApprovedKey: key}) }
	for _, c := range []struct {
		name         string
		manual       bool
		in           *v1alpha1.Robot
		wantAccepted string // key, or ""
		identity     string // status and reason of the condition; empty if the status does not change
		conflict     string
		warning      string
	}{
		{name: "a robot that never joined is ignored", in: robot()},
		{name: "a new robot with a token is accepted", in: robot(requested("k1", "m1")), wantAccepted: "k1", identity: "True Accepted"},
		{name: "manual approval: it waits", manual: true, in: robot(requested("k1", "m1")), identity: "False WaitingForApproval"},
		{name: "manual approval: an operator approves it", manual: true, in: robot(requested("k1", "m1"), approves("k1")), wantAccepted: "k1", identity: "True Accepted"},
		{name: "an approval of another key does not count", manual: true, in: robot(requested("k1", "m1"), approves("k2")), identity: "False WaitingForApproval"},
		{name: "a new key on the same machine is refused", in: robot(requested("k2", "m1"), accepted("k1", "m1")),
			wantAccepted: "k1", identity: "True Accepted", conflict: "True Reimaged", warning: "k8s4r robot approve r1"},
		{name: "another machine is refused", in: robot(requested("k2", "m2"), accepted("k1", "m1")),
			wantAccepted: "k1", identity: "True Accepted", conflict: "True Cloned", warning: "another machine (host at 10.0.0.9)"},
		{name: "a copy with the same key is refused", in: robot(requested("k1", "m2"), accepted("k1", "m1")),
			wantAccepted: "k1", identity: "True Accepted", conflict: "True Cloned", warning: "another machine"},
		{name: "an operator approves the new key", in: robot(requested("k2", "m2"), accepted("k1", "m1"), approves("k2")), wantAccepted: "k2", identity: "True Accepted"},
		{name: "an operator approves the new machine", in: robot(requested("k1", "m2"), accepted("k1", "m1"),
			identitySpec(v1alpha1.RobotIdentitySpec{ApprovedKey: "k1", ApprovedMachine: "m2"})), wantAccepted: "k1", identity: "True Accepted"},
		{name: "a key that is approved for one machine is not for its copy", in: robot(requested("k1", "m2"), accepted("k1", "m1"),
			identitySpec(v1alpha1.RobotIdentitySpec{ApprovedKey: "k1", ApprovedMachine: "m1"})), wantAccepted: "k1", identity: "True Accepted", conflict: "True Cloned", warning: "another machine"},
		{name: "a request of the robot itself ends the conflict", in: robot(requested("k1", "m1"), accepted("k1", "m1"), condition(v1alpha1.ConditionIdentityConflict, "True", "Cloned")),
			wantAccepted: "k1", identity: "True Accepted", conflict: "False NoConflict"},
		{name: "a revoked robot is refused", in: robot(requested("k1", "m1"), accepted("k1", "m1"), revoked), wantAccepted: "k1", identity: "False Revoked"},
		{name: "one that is revoked before it joins, too", in: robot(revoked), identity: "False Revoked"},
		{name: "a revoked robot with a token is not accepted again", in: robot(requested("k1", "m1"), revoked), identity: "False Revoked"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(noon, Config{Manual: c.manual}, c.in)
			if c.identity == "" {
				if got.Status != nil {
					t.Errorf("the status changes to %+v", got.Status)
				}
				return
			}
			if got.Status == nil {
				t.Fatal("the status does not change")
			}
			if a := got.Status.Identity.Accepted; (a == nil) != (c.wantAccepted == "") || a != nil && a.Key != c.wantAccepted {
				t.Errorf("accepted %+v", a)
			}
			if is := conditionText(got.Status, v1alpha1.ConditionIdentity); is != c.identity {
				t.Errorf("identity is %s", is)
			}
			if is := conditionText(got.Status, v1alpha1.ConditionIdentityConflict); is != c.conflict {
				t.Errorf("conflict is %s", is)
			}
			if !strings.Contains(got.Warning, c.warning) || (got.Warning == "") != (c.warning == "") {
				t.Errorf("warning %q", got.Warning)
			}
			again := c.in.DeepCopy()
			again.Status = *got.Status
			if more := Plan(noon.Add(time.Hour), Config{Manual: c.manual}, again); more.Status != nil || more.Warning != "" {
				t.Errorf("the plan is not stable: %+v", more)
			}
		})
	}
}

func conditionText(s *v1alpha1.RobotStatus, kind string) string {
	c := meta.FindStatusCondition(s.Conditions, kind)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}
