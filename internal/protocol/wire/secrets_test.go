package wire

import (
	"fmt"
	"strings"
	"testing"
)

func TestSecrets_AreEncodedButNotPrinted(t *testing.T) {
	sent := Dispatch{Action: ActionCreate, Secrets: Secrets{"PASSWORD": "hunter2"}}
	payload, err := Encode(sent)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode[Dispatch](payload)
	if err != nil || len(got.Secrets) != 1 || got.Secrets["PASSWORD"] != "hunter2" {
		t.Errorf("decoded %d values, %v", len(got.Secrets), err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		for _, what := range []any{got, &got, got.Secrets} {
			if text := fmt.Sprintf(verb, what); strings.Contains(text, "hunter2") || strings.Contains(text, fmt.Sprintf("%x", "hunter2")) {
				t.Errorf("%s writes %s", verb, text)
			}
		}
	}
}
