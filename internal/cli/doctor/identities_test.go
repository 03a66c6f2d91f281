package doctor

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// robot returns a robot with conditions.
func robot(namespace, name string, conditions ...metav1.Condition) client.Object {
	return &robotv1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Status: robotv1.RobotStatus{Conditions: conditions}}
}

func TestCheckIdentities_ReportsRobotsByProblem(t *testing.T) {
	authenticated := func(status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: robotv1.ConditionAuthenticated, Status: status, Reason: reason}
	}
	conflict := func(status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: robotv1.ConditionIdentityConflict, Status: status}
	}
	fine := Finding{OK, "robot identities", "no conflicts and no unauthenticated robots", ""}
	unauthenticated := func(robots string) Finding {
		return Finding{Warn, "robot identities", robots + " not authenticated: clients that reach the broker can act as these robots and read their messages",
			"let them join (token create), then start the server without --allow-legacy-agents and --allow-anonymous-agents"}
	}
	plaintext := func(robots string) Finding {
		return Finding{Warn, "robot identities", robots + " connected through a broker without TLS: an attacker on the network between broker and server can run commands on robots",
			"give the server an mqtts:// address in --mqtt-url, then start it without --allow-plaintext-broker"}
	}
	conflicting := func(robots string) Finding {
		return Finding{Warn, "robot identities", robots + " claimed by another key or machine",
			"see the condition IdentityConflict of the Robot; then run robot approve, or give the other machine its own robot id"}
	}
	for _, c := range []struct {
		name   string
		robots []client.Object
		want   []Finding
	}{
		{"no robots", nil, []Finding{fine}},
		{"a robot that never connected", []client.Object{robot("n", "r1")}, []Finding{fine}},
		{"an authenticated robot", []client.Object{robot("n", "r1", authenticated(metav1.ConditionTrue, "Certificate"), conflict(metav1.ConditionFalse))}, []Finding{fine}},
		{"an unknown state", []client.Object{robot("n", "r1", authenticated(metav1.ConditionUnknown, "Disconnected"))}, []Finding{fine}},
		{"one legacy agent", []client.Object{robot("n", "r1", authenticated(metav1.ConditionFalse, robotv1.ReasonLegacyAgent))}, []Finding{unauthenticated("r1 is")}},
		{"several unauthenticated robots of two namespaces", []client.Object{
			robot("m", "r2", authenticated(metav1.ConditionFalse, robotv1.ReasonLegacyAgent)), robot("n", "r1", authenticated(metav1.ConditionFalse, "Anything")),
			robot("n", "r3", authenticated(metav1.ConditionFalse, robotv1.ReasonLegacyAgent)),
		}, []Finding{unauthenticated("r2 and 2 more are")}},
		{"one robot on a plaintext broker", []client.Object{robot("n", "r1", authenticated(metav1.ConditionFalse, robotv1.ReasonPlaintextBroker))}, []Finding{plaintext("r1 is")}},
		{"one conflict", []client.Object{robot("n", "r1", authenticated(metav1.ConditionTrue, "Certificate"), conflict(metav1.ConditionTrue))}, []Finding{conflicting("r1 is")}},
		{"all problems, one of them twice", []client.Object{
			robot("n", "r1", authenticated(metav1.ConditionFalse, robotv1.ReasonLegacyAgent), conflict(metav1.ConditionTrue)),
			robot("n", "r2", authenticated(metav1.ConditionFalse, robotv1.ReasonPlaintextBroker), conflict(metav1.ConditionTrue)),
		}, []Finding{unauthenticated("r1 is"), plaintext("r2 is"), conflicting("r1 and 1 more are")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			equalFindings(t, checkIdentities(t.Context(), newCluster(t, interceptor.Funcs{}, c.robots...)), c.want...)
		})
	}
	t.Run("robots cannot be listed", func(t *testing.T) {
		equalFindings(t, checkIdentities(t.Context(), newCluster(t, failLists(errForbidden))), unknownFor("robot identities"))
	})
}
