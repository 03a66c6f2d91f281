package vcjob

import (
	"flag"
	"regexp"
	"strings"
	"testing"

	"k8s4r.io/k8s4r/config"
)

// TestPlugins_EqualAdmission compares the table with the patterns of the admission policy.
func TestPlugins_EqualAdmission(t *testing.T) {
	policy, err := config.FS.ReadFile("admission/vcjobs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	samples := map[string]string{"": "=true", "=BOOL": "=false", "=PORT": "=65535", "=SECONDS": "=86400", "=PATH": "=/x"}
	for _, p := range plugins {
		text := regexp.MustCompile(`'`+p.name+`': '([^']*)'`).FindAllStringSubmatch(string(policy), -1)
		if len(text) != 2 {
			t.Fatalf("%s: %d entries, want a pattern and a sentence", p.name, len(text))
		}
		pattern, sentence := regexp.MustCompile(text[0][1]), text[1][1]
		f := flag.NewFlagSet(p.name, flag.ContinueOnError)
		p.define(f)
		f.VisitAll(func(one *flag.Flag) {
			value, ok := samples[one.Usage]
			if !ok {
				value = "=x"
			}
			for _, arg := range []string{"--" + one.Name + value, "-" + one.Name + value, "--" + one.Name} {
				if !pattern.MatchString(arg) {
					t.Errorf("%s: admission rejects %s", p.name, arg)
				}
			}
			if !strings.Contains(sentence, "--"+one.Name) {
				t.Errorf("%s: %q does not name --%s", p.name, sentence, one.Name)
			}
		})
		for _, arg := range []string{"--nosuch", "--nosuch=x", "-p", "--porte=1"} {
			if pattern.MatchString(arg) {
				t.Errorf("%s: admission accepts %s", p.name, arg)
			}
		}
	}
}
