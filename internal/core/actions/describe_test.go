package actions

import (
	"strings"
	"testing"
)

type fields = map[string]any

func TestDescribe_NamesWhatAnUpdateAsksFor(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after fields
		want          string
	}{
		{"pause of a job", fields{"spec": fields{}}, fields{"spec": fields{"desiredState": "paused"}}, "pause"},
		{"resume of a job", fields{"spec": fields{"desiredState": "paused"}}, fields{"spec": fields{"desiredState": "running"}}, "resume"},
		{"cancel of a job", fields{"spec": fields{"desiredState": "paused"}}, fields{"spec": fields{"desiredState": "canceled"}}, "cancel"},
		{"requeue that reverts a cancel", fields{"spec": fields{"desiredState": "canceled"}},
			fields{"spec": fields{"desiredState": "running", "requeue": fields{"generation": int64(1)}}}, "requeue"},
		{"suspend of a flow", fields{"spec": fields{}}, fields{"spec": fields{"suspend": true}}, "suspend"},
		{"resume of a flow", fields{"spec": fields{"suspend": true}}, fields{"spec": fields{}}, "resume"},
		{"cancel of a flow", fields{"spec": fields{}}, fields{"spec": fields{"cancel": true}}, "cancel"},
		{"retry of a canceled flow", fields{"spec": fields{"cancel": true}}, fields{"spec": fields{"retry": fields{"generation": int64(1)}}}, "retry"},
		{"cordon", fields{"spec": fields{}}, fields{"spec": fields{"unschedulable": true}}, "cordon"},
		{"drain", fields{"spec": fields{}}, fields{"spec": fields{"drain": true}}, "drain"},
		{"uncordon", fields{"spec": fields{"drain": true, "unschedulable": true}}, fields{"spec": fields{}}, "uncordon"},
		{"approve", fields{"spec": fields{}}, fields{"spec": fields{"identity": fields{"approvedKey": "x"}}}, "approve"},
		{"unlock", fields{"spec": fields{}}, fields{"spec": fields{"unlockMaintenance": "m1"}}, "unlock"},
		{"revoke", fields{"spec": fields{"identity": fields{"approvedKey": "x"}}}, fields{"spec": fields{"identity": fields{"revoked": true}}}, "revoke"},
		{"approval of a robot without a key", fields{"metadata": fields{}}, fields{"metadata": fields{"annotations": fields{"robot.k8s4r.io/approved": "true"}}}, "approve"},
		{"priority", fields{"spec": fields{"priority": int64(1)}}, fields{"spec": fields{"priority": int64(80)}}, "change priority=80"},
		{"values are not shown", fields{"spec": fields{"meta": fields{}}}, fields{"spec": fields{"meta": fields{"password": "secret"}}}, "change meta"},
		{"several fields", fields{"spec": fields{"labels": fields{}}}, fields{"spec": fields{"labels": fields{"a": "b"}, "capacity": fields{}}}, "change capacity, labels"},
		{"labels", fields{"metadata": fields{}}, fields{"metadata": fields{"labels": fields{"a": "b"}}}, "change metadata.labels"},
		{"nothing but what does not count", fields{"metadata": fields{}}, fields{"metadata": fields{"annotations": fields{"ours": "x"}}}, "patch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Describe("patch", ListChanges(c.before, c.after, "ours")); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	if got := Describe("delete", []string{"suspend=true"}); got != "delete" {
		t.Errorf("a delete: %q", got)
	}
	if got := Describe("update", []string{strings.Repeat("x", 1000)}); len(got) > maxDescription {
		t.Errorf("%d bytes", len(got))
	}
	if got := DescribeCommand("AbortJob") + " " + DescribeCommand("Dance"); got != "abort command Dance" {
		t.Error(got)
	}
}
