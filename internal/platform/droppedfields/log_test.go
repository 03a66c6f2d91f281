package droppedfields

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"
)

func TestLogOnce_LogsEachFieldOncePerKind(t *testing.T) {
	warnings := []string{
		`299 - "unknown field \"status.jobStatusList[0].uid\""`, `299 - "unknown field \"status.jobStatusList[12].uid\""`,
		`299 - "unknown field \"status.steps\"", 299 - "another warning"`, `299 - "metadata.name: should not be used"`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Warning"] = slices.Clone(warnings)
	}))
	defer server.Close()
	var lines []string
	config := &rest.Config{Host: server.URL}
	LogOnce(config, funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"/apis/flow.volcano.sh/v1alpha1/namespaces/ns/jobflows/f/status", "/apis/flow.volcano.sh/v1alpha1/namespaces/other/jobflows/g/status",
		"/behind/apis/batch.volcano.sh/v1alpha1/namespaces/ns/jobs", "/apis/flow.volcano.sh/v1alpha1/jobflows",
	} {
		answer, err := client.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if got := answer.Header["Warning"]; !slices.Equal(got, warnings[2:]) {
			t.Errorf("%s: warnings for the handler %q, want those that are not about a dropped field", path, got)
		}
	}
	const message = `"level"=0 "msg"="The API server drops a field, because its definition of the kind does not have it; k8s4r doctor lists all of them" `
	want := []string{
		message + `"resource"="jobflows.flow.volcano.sh" "field"="status.jobStatusList[].uid"`,
		message + `"resource"="jobs.batch.volcano.sh" "field"="status.jobStatusList[].uid"`,
	}
	if !slices.Equal(lines, want) {
		t.Errorf("log %q,\nwant %q", lines, want)
	}
}

func TestLogOnce_RemembersBoundedNumberOfFields(t *testing.T) {
	n := 0
	l := &fieldLog{log: funcr.New(func(_, _ string) { n++ }, funcr.Options{}), logged: map[field]bool{}}
	for i := range maxLogged + 5 {
		l.logOnce(field{"jobflows.flow.volcano.sh", string(rune('a' + i))})
	}
	if n != maxLogged || len(l.logged) != maxLogged {
		t.Errorf("%d lines, %d fields", n, len(l.logged))
	}
}
