package historyapi

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/platform/access"
	"k8s4r.io/k8s4r/internal/protocol/actionlog"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// fakeGate lets admin list everything, and tenant list jobs in namespace mine.
type fakeGate struct{}

func (fakeGate) Authenticate(r *http.Request) (*access.User, error) {
	if name := r.Header.Get("Authorization"); name != "" {
		return &access.User{Name: name}, nil
	}
	return nil, access.ErrUnauthenticated
}

func (fakeGate) IsAllowed(_ context.Context, u *access.User, do authorizationv1.ResourceAttributes) (bool, error) {
	return do.Verb == "list" && (u.Name == "admin" || u.Name == "tenant" && do.Namespace == "mine" && do.Resource == "jobs" && do.Group == "robot.k8s4r.io"), nil
}

func newServer(t *testing.T) string {
	t.Helper()
	store, err := archive.Open("sqlite:" + filepath.Join(t.TempDir(), "history.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	var all []archive.Action
	for i, a := range []archive.Action{
		{ID: "1", Kind: archive.Job, Namespace: "mine", NamespaceUID: "n2", Name: "a", User: "anna", Did: "pause"},
		{ID: "2", Kind: archive.Robot, Namespace: "mine", NamespaceUID: "n2", Name: "r", User: "anna", Did: "cordon"},
		{ID: "3", Kind: archive.Job, Namespace: "other", NamespaceUID: "n3", Name: "a", User: "bob", Did: "cancel"},
		{ID: "4", Kind: archive.Job, Namespace: "mine", NamespaceUID: "n1", Name: "a", User: "bob", Did: "create"},
		{ID: "5", Kind: archive.Job, Namespace: "mine", NamespaceUID: "n2", User: "bob", Did: "deletecollection"},
		{ID: "6", Kind: archive.Job, Namespace: "gone", NamespaceUID: "n4", Name: "a", User: "bob", Did: "delete"},
	} {
		a.At = at.Add(time.Duration(i) * time.Minute)
		all = append(all, a)
	}
	if err := store.RecordActions(t.Context(), all, nil); err != nil {
		t.Fatal(err)
	}
	mine := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mine", UID: types.UID("n2")}}
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other", UID: types.UID("n3")}}
	h := &Handler{Gate: fakeGate{}, Archive: store, Namespaces: fakeapi.NewBuilder(clientgoscheme.Scheme).WithObjects(mine, other).Build(), Log: logr.Discard()}
	mux := http.NewServeMux()
	h.Register(mux)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// readIDs returns the status and the ids of the actions, or the message.
func readIDs(t *testing.T, url, user, query string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+actionlog.Path+"?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		r.Header.Set("Authorization", user)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK {
		return answer.StatusCode, string(text)
	}
	var p actionlog.Page
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	ids := ""
	for _, a := range p.Items {
		ids += a.ID
	}
	return answer.StatusCode, ids
}

func TestActions_ShowsOnlyWhatTheCallerMayList(t *testing.T) {
	url := newServer(t)
	for _, c := range []struct {
		name, user, query string
		status            int
		want              string
	}{
		{"all, for an administrator", "admin", "", 200, "654321"},
		{"of a namespace, with deleted ones of its name", "admin", "namespace=mine", 200, "5421"},
		{"of a deleted namespace", "admin", "namespace=gone", 200, "6"},
		{"of an object, with deletions of many", "admin", "namespace=mine&kind=Job&name=a", 200, "541"},
		{"of a user", "admin", "user=anna", 200, "21"},
		{"since a time", "admin", "since=2026-11-22T12:03:30Z", 200, "65"},
		{"until a time", "admin", "until=2026-11-22T12:01:00Z", 200, "1"},
		{"what a tenant may list, in this namespace and no older one", "tenant", "namespace=mine", 200, "51"},
		{"an object of a tenant", "tenant", "namespace=mine&kind=Job&name=a", 200, "51"},
		{"another kind", "tenant", "namespace=mine&kind=Robot", 403, `cannot list robots in namespace`},
		{"another namespace", "tenant", "namespace=other", 403, `cannot list`},
		{"a deleted namespace", "tenant", "namespace=gone", 403, `cannot list`},
		{"all namespaces", "tenant", "", 403, "cannot list"},
		{"without credentials", "", "namespace=mine", 401, "no valid bearer token"},
		{"an unknown kind", "admin", "kind=Dog", 400, "kind=Dog"},
		{"an unknown parameter", "admin", "x=y", 400, "there is no parameter"},
		{"a foreign cursor", "admin", "continue=zzz", 400, "continue"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, got := readIDs(t, url, c.user, c.query)
			if status != c.status || status == 200 && got != c.want || !strings.Contains(got, c.want) {
				t.Errorf("%d %s, want %d %s", status, got, c.status, c.want)
			}
		})
	}
}

func TestActions_ContinuesInPages(t *testing.T) {
	url := newServer(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+actionlog.Path+"?limit=4", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "admin")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var p actionlog.Page
	if err := json.NewDecoder(answer.Body).Decode(&p); err != nil || len(p.Items) != 4 || p.Continue == "" {
		t.Fatalf("%+v, %v", p, err)
	}
	if status, ids := readIDs(t, url, "admin", "limit=4&continue="+p.Continue); status != 200 || ids != "21" {
		t.Errorf("%d %s", status, ids)
	}
}

func TestActions_WithoutAnArchive(t *testing.T) {
	h := &Handler{Gate: fakeGate{}, Namespaces: fakeapi.NewBuilder(clientgoscheme.Scheme).Build(), Log: logr.Discard()}
	mux := http.NewServeMux()
	h.Register(mux)
	s := httptest.NewServer(mux)
	defer s.Close()
	if status, text := readIDs(t, s.URL, "admin", ""); status != 503 || !strings.Contains(text, "--archive") {
		t.Errorf("%d %s", status, text)
	}
}
