package cli

import (
	"context"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/platform/jointoken"
	"k8s4r.io/k8s4r/internal/platform/serveraddr"
)

func TestTokenCreate_ShowsTokenOnce(t *testing.T) {
	b := newBench(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: serveraddr.Namespace, Name: serveraddr.Name}, Data: map[string]string{"url": "https://10.0.0.7:8443"}})
	if status := b.run("token", "create", "--uses", "3", "--max-robots", "2", "--robots", "rover-*", "--labels", "site=hall", "-n", "fleet"); status != ExitOK {
		t.Fatalf("%d: %s", status, b.err.String())
	}
	message := b.out.String()
	line := regexp.MustCompile(`k8s4r-agent --server=https://10\.0\.0\.7:8443 --token=(\S{6})\.(\S{16}) --robot-id=rover-NAME\n`).FindStringSubmatch(message)
	if line == nil || !strings.Contains(message, "The token admits 2 robots until 2026-03-02T12:00:00Z") {
		t.Fatalf("%s", message)
	}
	var s corev1.Secret
	if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: serveraddr.Namespace, Name: jointoken.SecretName(line[1])}, &s); err != nil {
		t.Fatal(err)
	}
	token, err := jointoken.FromSecret(&s)
	if err != nil || token.Namespace != "fleet" || token.Labels["site"] != "hall" || token.Uses != 3 || token.Quota != 2 {
		t.Errorf("%+v, %v", token, err)
	}
	if status := b.run("token", "revoke", line[1]); status != ExitOK || !strings.Contains(b.out.String(), "token "+line[1]+" revoked") {
		t.Errorf("%d: %s%s", status, b.out.String(), b.err.String())
	}
	if status := b.run("token", "revoke", line[1]); status != ExitFailed || !strings.Contains(b.err.String(), `join token "`+line[1]+`" not found`) {
		t.Errorf("%d: %s", status, b.err.String())
	}
}

func TestTokenCreate_RejectsInvalidOptions(t *testing.T) {
	for flag, value := range map[string]string{"--uses": "0", "--max-robots": "2", "--robots": "[", "--ttl": "0s"} {
		b := newBench(t)
		if status := b.run("token", "create", flag+"="+value); status != ExitUsage || !strings.Contains(b.err.String(), flag) {
			t.Errorf("%s: %d, %s", flag, status, b.err.String())
		}
	}
}

// A key that is requested between the operator's check and the write must not be approved
// instead.
func TestRobotApprove_RequiresSeenKey(t *testing.T) {
	asks := func(key string) *robotv1.IdentityRequest { return &robotv1.IdentityRequest{Key: key} }
	r1 := &robotv1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "r1"}}
	r1.Status.Identity = &robotv1.RobotIdentity{Requested: asks("sha256:k1"), Accepted: &robotv1.AcceptedIdentity{Key: "sha256:k1"}}
	r1.Spec.Identity = &robotv1.RobotIdentitySpec{Revoked: true}
	b := newBench(t, r1)
	meanwhile := true
	b.hooks.Patch = func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if meanwhile {
			meanwhile = false
			change(b, &robotv1.Robot{}, "r1", func(r *robotv1.Robot) { r.Status.Identity.Requested = asks("sha256:k2") })
		}
		return c.Patch(ctx, o, p, opts...)
	}
	if status := b.run("robot", "approve", "r1"); status != ExitFailed || !strings.Contains(b.err.String(), "--key=sha256:k2") {
		t.Errorf("%d, %s%s", status, b.out.String(), b.err.String())
	}
	if now := read(b, &robotv1.Robot{}, "r1"); !now.IsRevoked() {
		t.Errorf("approved: %+v", now.Spec.Identity)
	}
	change(b, &robotv1.Robot{}, "r1", func(r *robotv1.Robot) { r.Status.Identity.Requested = asks("sha256:k1") })
	if status := b.run("robot", "approve", "r1"); status != ExitOK {
		t.Errorf("the robot's own key: %d, %s", status, b.err.String())
	}
}

func TestRobotIdentity_ApprovesAndRevokes(t *testing.T) {
	asked := &robotv1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "r1"}}
	asked.Status.Identity = &robotv1.RobotIdentity{Requested: &robotv1.IdentityRequest{Key: "sha256:k2", Machine: "sha256:m2"}}
	b := newBench(t, asked, &robotv1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "r2"}})
	robot := func(name string) *robotv1.Robot {
		r := &robotv1.Robot{}
		if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	status := b.run("robot", "approve", "r1")
	if message := b.err.String(); status != ExitFailed || robot("r1").Spec.Identity != nil || robot("r1").Annotations != nil ||
		!strings.Contains(message, "the key must be given with --key") || !strings.Contains(message, "robot approve r1 --key=sha256:k2 --machine=sha256:m2\n") {
		t.Errorf("a key that was not given: %d, %s", status, message)
	}
	for _, other := range [][]string{{"--key=sha256:k1", "--machine=sha256:m2"}, {"--key=sha256:k2", "--machine=sha256:m1"}, {"--key=sha256:k2"}} {
		status := b.run(append([]string{"robot", "approve", "r1"}, other...)...)
		if status != ExitFailed || robot("r1").Spec.Identity != nil || !strings.Contains(b.err.String(), "--key and --machine do not match the last request") {
			t.Errorf("%v: %d, %s", other, status, b.err.String())
		}
	}
	if status := b.run("robot", "approve", "r1", "r2", "--key=sha256:k2"); status != ExitUsage {
		t.Errorf("one key for two robots: %d", status)
	}
	if status := b.run("robot", "approve", "r2", "--key=sha256:k2"); status != ExitFailed || !strings.Contains(b.err.String(), "no join request was received") {
		t.Errorf("a key that was never requested: %d, %s", status, b.err.String())
	}
	named := []string{"robot", "approve", "r1", "--key=sha256:k2", "--machine=sha256:m2"}
	for _, step := range []struct {
		args []string
		says string
		want robotv1.RobotIdentitySpec
	}{
		{named, "approved with key sha256:k2", robotv1.RobotIdentitySpec{ApprovedKey: "sha256:k2", ApprovedMachine: "sha256:m2"}},
		{[]string{"robot", "approve", "r1"}, "already approved", robotv1.RobotIdentitySpec{ApprovedKey: "sha256:k2", ApprovedMachine: "sha256:m2"}},
		{[]string{"robot", "revoke", "r1", "--reason", "stolen"}, "revoked", robotv1.RobotIdentitySpec{Revoked: true, RevokedReason: "stolen"}},
		{[]string{"robot", "revoke", "r1", "--reason", "stolen"}, "already revoked", robotv1.RobotIdentitySpec{Revoked: true, RevokedReason: "stolen"}},
		{named, "approved with key", robotv1.RobotIdentitySpec{ApprovedKey: "sha256:k2", ApprovedMachine: "sha256:m2"}},
	} {
		status := b.run(step.args...)
		if got := robot("r1").Spec.Identity; status != ExitOK || got == nil || *got != step.want || !strings.Contains(b.out.String(), step.says) {
			t.Errorf("%v: %d, %+v, %s%s", step.args, status, got, b.out.String(), b.err.String())
		}
	}
	if status := b.run("robot", "approve", "r2"); status != ExitOK || robot("r2").Annotations[annotationApproved] != "true" || robot("r2").Spec.Identity != nil {
		t.Errorf("%d: %+v", status, robot("r2"))
	}
	if status := b.run("robot", "revoke", "r3"); status != ExitFailed || !strings.Contains(b.err.String(), `robot "r3" not found`) {
		t.Errorf("%d: %s", status, b.err.String())
	}
}
