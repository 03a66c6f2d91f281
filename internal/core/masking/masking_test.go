package masking

import (
	"encoding/json"
	"strings"
	"testing"
)

const key = "-----BEGIN RSA PRIVATE KEY-----\nSECRET\n-----END RSA PRIVATE KEY-----\n"

func TestMaskManifest(t *testing.T) {
	for _, c := range []struct {
		name      string
		arguments []string
		want      string
	}{
		{"a key", []string{"--ssh-private-key=" + key, "--ssh-port=22"}, `["--ssh-private-key=(masked)","--ssh-port=22"]`},
		{"a key with one dash", []string{"-ssh-private-key=" + key}, `["-ssh-private-key=(masked)"]`},
		{"a key in an argument of its own", []string{"--ssh-private-key", key, "--ssh-port=22"}, `["--ssh-private-key","(masked)","--ssh-port=22"]`},
		{"a key that is no PEM text", []string{"--ssh-private-key=SECRET"}, `["--ssh-private-key=(masked)"]`},
		{"a key that looks like the argument", []string{"--ssh-private-key", "--ssh-private-key", "x"}, `["--ssh-private-key","(masked)","x"]`},
		{"a misspelt argument", []string{"--ssh-privat-key=" + key}, `["--ssh-privat-key=(masked)"]`},
		{"a key without an argument", []string{key}, `["(masked)"]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := map[string]any{"plugins": map[string]any{"ssh": c.arguments, "svc": []string{}}}
			for place, object := range map[string]any{
				"Job":         map[string]any{"spec": spec},
				"JobFlow":     map[string]any{"spec": map[string]any{"flows": []any{map[string]any{"patch": map[string]any{"jobSpec": spec}}}}},
				"kubectl":     map[string]any{"metadata": map[string]any{"annotations": map[string]any{"kubectl.kubernetes.io/last-applied-configuration": encode(t, map[string]any{"spec": spec}) + "\n"}}},
				"CronJobFlow": map[string]any{"spec": map[string]any{"jobFlowTemplate": map[string]any{"spec": map[string]any{"flows": []any{map[string]any{"patch": map[string]any{"jobSpec": spec}}}}}}},
			} {
				masked := string(MaskManifest([]byte(encode(t, object))))
				want := c.want
				if place == "kubectl" {
					want = strings.ReplaceAll(want, `"`, `\"`)
				}
				if strings.Contains(masked, "SECRET") || !strings.Contains(masked, want) {
					t.Errorf("%s: %s", place, masked)
				}
			}
		})
	}
}

func TestMaskManifest_LeavesOtherObjects(t *testing.T) {
	for _, text := range []string{
		`{"spec":{"plugins":{"ssh":["--ssh-port=22"]}}}`,
		`{"a":"{ echo ssh-private-key; }"}`,
		`{"b":1,"a":{"script":"grep 'PRIVATE KEY-----' ssh-private-key"},"n":9007199254740993}`,
	} {
		var got, want any
		decode(t, MaskManifest([]byte(text)), &got)
		decode(t, []byte(text), &want)
		if encode(t, got) != encode(t, want) {
			t.Errorf("%s became %s", text, encode(t, got))
		}
	}
	if got := string(MaskManifest([]byte(`{"n":9007199254740993,"t":"ssh-private-key"}`))); !strings.Contains(got, "9007199254740993") {
		t.Errorf("a number was rounded: %s", got)
	}
	if got := string(MaskManifest([]byte(`{"t":"ssh-private-key"`))); got != "null" {
		t.Errorf("no JSON became %s", got)
	}
}

func encode(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}
