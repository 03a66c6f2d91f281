package jointoken

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// The agent does not import Kubernetes, so the rule is written a second time.
func TestValidateLabel_AgreesWithKubernetes(t *testing.T) {
	part := []string{"", "a", "A1", "a-b", "-a", "a-", "a_b.c", ".a", "a b", "a;b", "$(id)", "a\n", "ä", strings.Repeat("a", 63), strings.Repeat("a", 64)}
	prefixes := []string{"", "/", "example.com/", "Example.com/", "a..b/", "-a/", "a-/", "a-.b/", "a/b/", strings.Repeat("a", 253) + "/", strings.Repeat("a", 254) + "/"}
	for _, name := range part {
		if got, want := wire.ValidateLabel("a", name), validation.IsValidLabelValue(name); (got == nil) != (len(want) == 0) {
			t.Errorf("value %q: %v, Kubernetes: %v", name, got, want)
		}
		for _, prefix := range prefixes {
			if got, want := wire.ValidateLabel(prefix+name, ""), validation.IsQualifiedName(prefix+name); (got == nil) != (len(want) == 0) {
				t.Errorf("name %q: %v, Kubernetes: %v", prefix+name, got, want)
			}
		}
	}
}

var hostileLabels = map[string]string{"site": "x; reboot"}

func TestValidate_RejectsLabelsWithOtherSyntax(t *testing.T) {
	many := map[string]string{}
	for i := range MaxLabels + 1 {
		many[fmt.Sprint(i)] = ""
	}
	for want, labels := range map[string]map[string]string{
		`--labels: label "site": the value "x; reboot" must be empty, or at most 63 letters`: hostileLabels,
		`--labels: label "-": the name must be`:                                              {"-": ""},
		"--labels: 65 are given; at most 64 are allowed":                                     many,
	} {
		err := Token{Uses: 1, Namespace: "n", Expires: noon.Add(1), Labels: labels}.Validate(noon)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A Secret can be written without the command line, and by an older one.
func TestRedeem_RefusesLabelsWithOtherSyntax(t *testing.T) {
	s, text := bench(t, Token{Uses: 3})
	id, secret, _ := strings.Cut(text, ".")
	o, token, err := s.readToken(t.Context(), id, secret)
	if err != nil {
		t.Fatal(err)
	}
	token.Labels = hostileLabels
	o.Data = token.ToSecret(s.Namespace).Data
	if err := s.Client.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if got := s.try(t, text, "rover-1", "k1"); !strings.Contains(got, `label "site": the value "x; reboot" must be`) || !strings.Contains(got, "create another") {
		t.Errorf("%q", got)
	}
}
