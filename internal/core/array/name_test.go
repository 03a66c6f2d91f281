package array

import "testing"

func TestParseIndexTaskName(t *testing.T) {
	for name, want := range map[string]int32{
		"j-g-index-17-t": 17, "j-g-index-0-t": 0, "j-g-index-999999-t": 999999,
		"j-g-index-017-t": -1, "j-g-index-1-2-t": -1, "j-g-index-1000000-t": -1, "j-g-index--t": -1,
		"j-g-index-17-u": -1, "j-h-index-17-t": -1, "j-g-17-t": -1, "": -1,
	} {
		got, ok := ParseIndexTaskName(name, "j-g", "t")
		if ok != (want >= 0) || ok && (got != want || IndexTaskName("j-g", got, "t") != name) {
			t.Errorf("%s: index %d, %v", name, got, ok)
		}
	}
	if taken := UniqueIndexTaskName("uid", "j-g", 17, "t"); taken == "j-g-index-17-t" {
		t.Error("a name that is taken is not replaced")
	}
}

func TestGroupOfIndexTask(t *testing.T) {
	for name, want := range map[string]string{
		"demo-scan-index-17-main":    "demo-scan",
		"demo-index-3-x-index-4-run": "demo-index-3-x",
		"demo-scan-17-main":          "",
		"demo-scan-index-main":       "",
		"demo-scan-index-1-index-ab": "demo-scan",
	} {
		if got, ok := GroupOfIndexTask(name); got != want || ok != (want != "") {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
