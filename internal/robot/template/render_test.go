package template

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

var data = Data{
	Env:    map[string]string{"PORT": "8080", "EMPTY": "", "SECRET": "hush!", "HOME": "/tasks/1", "JSON": `{"a":[1,"x"]}`},
	Meta:   map[string]string{"team": "blue"},
	Labels: map[string]string{"zone": "hall", "robot.k8s4r.io/arm": "left"},
	Attrs:  map[string]string{"os": "linux", "cpu.cores": "4"},
	Task:   Task{Name: "drive", UID: "u", Job: "patrol", Group: "g", Index: "0", Robot: "r1", Attempt: 2},
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// taskDir returns a task's directory that already has some files.
func taskDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	check(t, os.Mkdir(filepath.Join(dir, "conf"), 0o755))
	write(t, dir, "conf/old", "old")
	write(t, dir, "in.tmpl", "port {{ env \"PORT\" }}\n")
	check(t, os.Symlink("/etc", filepath.Join(dir, "out")))
	check(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	return dir
}

func write(t testing.TB, dir, name, content string) {
	t.Helper()
	check(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
}

func read(t testing.TB, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	check(t, err)
	return string(b)
}

// names returns the names, sizes and times of the files in a directory.
func names(t testing.TB, dir string) string {
	t.Helper()
	var all strings.Builder
	check(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		check(t, err)
		info, err := e.Info()
		check(t, err)
		all.WriteString(fs.FormatFileInfo(info) + info.ModTime().String() + "\n")
		return nil
	}))
	return all.String()
}

func TestRender_Functions(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"plain", "a\n", "a\n"},
		{"nothing", "", ""},
		{"env", `{{ env "PORT" }}`, "8080"},
		{"env with a default", `{{ env "NONE" "1" }}{{ envOrDefault "NONE" "2" }}{{ envOrDefault "PORT" "3" }}`, "128080"},
		{"an empty env", `{{ if env "EMPTY" }}a{{ else }}b{{ end }}{{ env "EMPTY" | default "c" }}`, "bc"},
		{"an optional env", `{{ with env "NONE" "" }}a{{ end }}{{ env "NONE" "" | default "d" }}{{ default "e" (env "PORT") }}`, "d8080"},
		{"meta, label and attr", `{{ meta "team" }} {{ label "robot.k8s4r.io/arm" }} {{ attr "cpu.cores" }}`, "blue left 4"},
		{"the dot", `{{ .Task.Name }} {{ .Task.Attempt }} {{ .Labels.zone }} {{ .Env.PORT }}`, "drive 2 hall 8080"},
		{"a file", `{{ file "conf/old" }}`, "old"},
		{"JSON", `{{ with env "JSON" | parseJSON }}{{ index .a 1 }} {{ toJSON . }} {{ join "+" .a }}{{ end }}`, `x {"a":[1,"x"]} 1+x`},
		{"words", `{{ "aB" | toLower }}{{ "aB" | toUpper }}{{ " c " | trimSpace }}{{ "abc" | trimPrefix "a" | trimSuffix "c" }}`, "abABcb"},
		{"lists", `{{ range split "," "a,b" }}<{{ . }}>{{ end }}{{ "a,b" | split "," | join ";" }}`, "<a><b>a;b"},
		{"replaced", `{{ "a.b" | replaceAll "." "-" }}{{ if contains "." "a.b" }}!{{ end }}`, "a-b!"},
		{"numbers", `{{ if gt (env "PORT" | parseInt) 80 }}high{{ end }}{{ if parseBool "true" }}!{{ end }}`, "high!"},
		{"base64", `{{ "hi" | base64Encode }} {{ "aGk=" | base64Decode }}`, "aGk= hi"},
		{"a hash", `{{ sha256Hex "" }}`, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		{"indented", `{{ "a\nb" | indent 2 }}`, "  a\n  b"},
		{"built-in functions", `{{ print 1 "a" }}{{ println "b" }}{{ printf "%03d %s" 7 "c" }}{{ html "<" }}{{ js "'" }}{{ urlquery "&" }}`, "1ab\n007 c&lt;\\'%26"},
		{"loops", `{{ range 3 }}{{ . }}{{ else }}none{{ end }}{{ range $k, $v := .Meta }}{{ $k }}={{ $v }}{{ break }}{{ end }}{{ range 0 }}{{ else }}none{{ end }}`, "012team=bluenone"},
		{"definitions", `{{ define "x" }}<{{ . }}>{{ end }}{{ template "x" 1 }}{{ block "y" 2 }}[{{ . }}]{{ end }}`, "<1>[2]"},
		{"trimmed", "a {{- /* no */ -}}  b\n{{ with .Meta }}{{ else }}{{ end }}", "ab\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := taskDir(t)
			changed, err := Render(t.Context(), Template{Embedded: tt.text, DestPath: "new/dir/f"}, data, dir)
			check(t, err)
			if got := read(t, dir, "new/dir/f"); got != tt.want || !changed {
				t.Errorf("got %q, changed %v, want %q", got, changed, tt.want)
			}
		})
	}
}

func TestRender_FailureLeavesDirectoryUnchanged(t *testing.T) {
	big := `{{ $x := "0123456789abcdef" }}{{ range 16 }}{{ $x = `
	tests := []struct {
		name string
		t    Template
		want string
	}{
		{"syntax", Template{Embedded: "a\n{{ if }}"}, "templates[3]:2: missing value for if"},
		{"an unknown function", Template{Embedded: "{{ key \"x\" }}"}, `templates[3]:1: function "key" not defined`},
		{"an unknown env", Template{Embedded: "\n\n{{ env \"NONE\" }}"}, `templates[3]:3:3: executing "templates[3]" at <env "NONE">: error calling env: the task's environment has no "NONE"; use env "NONE" "" for an empty text`},
		{"an unknown meta", Template{Embedded: `{{ meta "none" }}`}, `the job's meta has no "none"; use meta "none" ""`},
		{"an unknown label", Template{Embedded: `{{ label "none" }}`}, `the robot has no label "none"`},
		{"an unknown attribute", Template{Embedded: `{{ attr "none" }}`}, `the robot has no attribute "none"`},
		{"an unknown key", Template{Embedded: `{{ .Meta.none }}`}, `map has no entry for key "none"`},
		{"two defaults", Template{Embedded: `{{ env "A" "b" "c" }}`}, "env accepts a name and at most one default"},
		{"no number", Template{Embedded: `{{ env "SECRET" | parseInt }}`}, "the text is not an integer"},
		{"no bool", Template{Embedded: `{{ env "SECRET" | parseBool }}`}, "the text is neither true nor false"},
		{"no JSON", Template{Embedded: `{{ env "SECRET" | parseJSON }}`}, "the text is not JSON"},
		{"no base64", Template{Embedded: `{{ env "SECRET" | base64Decode }}`}, "the text is not base64"},
		{"no list", Template{Embedded: `{{ join "," 1 }}`}, "join requires a list"},
		{"an unknown function as an argument", Template{Embedded: `{{ toJSON now }}`}, "function \"now\" not defined"},
		{"a wide printf", Template{Embedded: `{{ printf "%1000000d" 1 }}`}, "a width above 999"},
		{"a printf with many verbs", Template{Embedded: big + `printf "%s%s" $x $x }}{{ end }}{{ printf "` + strings.Repeat("%[1]s", 100) + `" $x }}`}, "a text is longer than 1048576 bytes"},
		{"a wide margin", Template{Embedded: `{{ indent 1000 "a" }}`}, "indent accepts 0 to 100 spaces"},
		{"a text that doubles", Template{Embedded: big + `print $x $x }}{{ end }}`, DestPath: "f"}, ""},
		{"a text that doubles beyond the limit", Template{Embedded: big + `print $x $x }}{{ end }}{{ $x = print $x $x }}`}, "a text is longer than 1048576 bytes"},
		{"a text that grows from within", Template{Embedded: big + `replaceAll "" $x $x }}{{ end }}`}, "a text is longer than 1048576 bytes"},
		{"a list that grows", Template{Embedded: big + `print $x $x }}{{ end }}{{ join $x (split "" $x) }}`}, "a text is longer than 1048576 bytes"},
		{"a base64 that grows", Template{Embedded: big + `print $x $x }}{{ end }}{{ base64Encode $x }}`}, "a text is longer than 1048576 bytes"},
		{"too much output", Template{Embedded: `{{ range 2000000 }}0{{ end }}`}, "the result is larger than 1048576 bytes"},
		{"endless output", Template{Embedded: `{{ define "a" }}0{{ template "a" }}{{ end }}{{ template "a" }}`}, "exceeded maximum template depth"},
		{"a file outside of the task's directory", Template{Embedded: `{{ file "../x" }}`}, `"../x" is outside the task's directory`},
		{"a file behind a link", Template{Embedded: `{{ file "out/passwd" }}`}, `"out/passwd": path escapes from parent`},
		{"a directory as a file", Template{Embedded: `{{ file "conf" }}`}, `"conf" is not a file`},
		{"a pipe", Template{Embedded: `{{ file "pipe" }}`}, `"pipe" is not a file`},
		{"a source that is missing", Template{SourcePath: "none"}, `templates[3]: sourcePath "none": no such file or directory`},
		{"a source outside of the task's directory", Template{SourcePath: "/etc/passwd"}, `sourcePath "/etc/passwd" is an absolute path`},
		{"a large source", Template{SourcePath: "large"}, `sourcePath "large" is larger than 1048576 bytes`},
		{"a destination outside of the task's directory", Template{DestPath: "../f"}, `templates[3]: destPath "../f" is outside the task's directory`},
		{"a destination behind a link", Template{DestPath: "out/f"}, "destPath: "},
		{"a destination that is a directory", Template{DestPath: "conf"}, `destPath: "conf" is a directory`},
		{"a destination without a name", Template{DestPath: "conf/"}, `destPath "conf/" is not the path of a file`},
		{"the task's directory itself", Template{DestPath: "."}, `destPath "." is not the path of a file`},
		{"a destination below a file", Template{DestPath: "conf/old/f"}, "mkdirat conf/old"},
		{"bad perms", Template{Perms: "rw"}, `perms "rw" must be octal permissions`},
		{"setuid perms", Template{Perms: "4755"}, `perms "4755" must be octal permissions`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := taskDir(t)
			write(t, dir, "large", strings.Repeat("x", MaxOutput+1))
			before := names(t, dir)
			tt.t.Index = 3
			if tt.t.DestPath == "" {
				tt.t.DestPath = "new/dir/f"
			}
			changed, err := Render(t.Context(), tt.t, data, dir)
			if tt.want == "" {
				check(t, err)
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || changed {
				t.Fatalf("got %v, changed %v, want %q", err, changed, tt.want)
			}
			if !strings.HasPrefix(err.Error(), "templates[3]:") || strings.Contains(err.Error(), "hush") {
				t.Errorf("got %v", err)
			}
			if after := names(t, dir); after != before {
				t.Errorf("left %s, was %s", after, before)
			}
		})
	}
}

func TestRender_StopsEndlessTemplates(t *testing.T) {
	for name, text := range map[string]string{
		"a loop":              `{{ range 1000000000000 }}{{ end }}`,
		"a loop in branches":  `{{ if true }}{{ with 1 }}{{ range 1000000000000 }}{{ if false }}{{ end }}{{ end }}{{ end }}{{ end }}`,
		"a loop in an else":   `{{ if false }}{{ else }}{{ with 0 }}{{ else }}{{ range 0 }}{{ else }}{{ range 1000000000000 }}{{ end }}{{ end }}{{ end }}{{ end }}`,
		"a loop with a value": `{{ range $i := 1000000000000 }}{{ $i = 1 }}{{ end }}`,
		"a loop in another":   `{{ define "a" }}{{ range 1000000000000 }}{{ end }}{{ end }}{{ template "a" }}`,
		"a tree of templates": `{{ define "a" }}{{ end }}{{ range 1000000000000 }}{{ template "a" }}{{ end }}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := taskDir(t)
			before := names(t, dir)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			_, err := Render(ctx, Template{Embedded: text, DestPath: "f"}, data, dir)
			if err == nil || !strings.Contains(err.Error(), "deadline exceeded") {
				t.Errorf("got %v", err)
			}
			if after := names(t, dir); after != before {
				t.Errorf("left %s, was %s", after, before)
			}
		})
	}
}

func TestRender_ReportsChanges(t *testing.T) {
	dir := taskDir(t)
	text := Template{SourcePath: "in.tmpl", DestPath: "conf/f", Perms: "0640"}
	d := data
	step := func(what string, want bool, content string, perms fs.FileMode) {
		t.Helper()
		changed, err := Render(t.Context(), text, d, dir)
		check(t, err)
		info, err := os.Lstat(filepath.Join(dir, "conf/f"))
		check(t, err)
		if got := read(t, dir, "conf/f"); changed != want || got != content || info.Mode() != perms {
			t.Errorf("%s: changed %v, %q, %v", what, changed, got, info.Mode())
		}
	}
	step("a new file", true, "port 8080\n", 0o640)
	step("again", false, "port 8080\n", 0o640)
	text.Perms = "600"
	step("other perms", false, "port 8080\n", 0o600)
	d.Env = map[string]string{"PORT": "9090"}
	step("other data of the same length", true, "port 9090\n", 0o600)
	write(t, dir, "conf/f", "longer than before\n")
	step("a file that the task has changed", true, "port 9090\n", 0o600)
	check(t, os.Remove(filepath.Join(dir, "conf/f")))
	check(t, os.Symlink("old", filepath.Join(dir, "conf/f")))
	step("a link", true, "port 9090\n", 0o600)
	if got := read(t, dir, "conf/old"); got != "old" {
		t.Errorf("it has written through the link: %q", got)
	}
	text.Perms = ""
	step("the default perms", false, "port 9090\n", 0o644)
}

func TestRender_UsesOtherDelimiters(t *testing.T) {
	dir := taskDir(t)
	_, err := Render(t.Context(), Template{Embedded: `{{ a }} [[ env "PORT" ]]`, DestPath: "f", LeftDelim: "[[", RightDelim: "]]"}, data, dir)
	check(t, err)
	if got := read(t, dir, "f"); got != "{{ a }} 8080" {
		t.Errorf("got %q", got)
	}
}

func TestRender_FailsWithoutDirectory(t *testing.T) {
	_, err := Render(t.Context(), Template{DestPath: "f"}, data, filepath.Join(t.TempDir(), "none"))
	if err == nil || !strings.Contains(err.Error(), "templates[0]: open the task's directory") {
		t.Errorf("got %v", err)
	}
}

func FuzzRender(f *testing.F) {
	f.Add(`{{ range 3 }}{{ env "PORT" | printf "%s-%d" "a" }}{{ end }}`)
	f.Add(`{{ define "a" }}{{ template "a" }}{{ end }}{{ with .Meta }}{{ template "a" . }}{{ end }}`)
	f.Add(`{{ range $k, $v := .Env }}{{ if $v }}{{ $k | toJSON | split "" | join "," }}{{ else }}{{ continue }}{{ end }}{{ end }}`)
	f.Fuzz(func(t *testing.T, text string) {
		dir := taskDir(t)
		before := names(t, dir)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := Render(ctx, Template{Embedded: text, DestPath: "new/f"}, data, dir); err != nil && names(t, dir) != before {
			t.Errorf("%v, but it left something", err)
		}
	})
}
