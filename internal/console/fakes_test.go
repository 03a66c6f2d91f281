package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/console/row"
	"k8s4r.io/k8s4r/internal/console/watch"
	"k8s4r.io/k8s4r/internal/platform/access"
)

// noon is the time in all tests.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// minute returns noon plus minutes.
func minute(n int) *metav1.MicroTime {
	t := metav1.NewMicroTime(noon.Add(time.Duration(n) * time.Minute))
	return &t
}

// fakeStore holds a fixed set of objects.
type fakeStore struct {
	items  []*watch.Item
	ring   *watch.Ring
	synced chan struct{}
	slice  *robotv1.HeartbeatSlice
}

func newFakeStore(objects ...client.Object) *fakeStore {
	w := &fakeStore{ring: watch.NewRing("test", watch.Limits{}), synced: make(chan struct{})}
	close(w.synced)
	for _, o := range objects {
		w.items = append(w.items, &watch.Item{Row: row.Describe(o), Object: o})
	}
	return w
}

func (w *fakeStore) filter(matches func(*watch.Item) bool) (out []*watch.Item) {
	for _, i := range w.items {
		if matches(i) {
			out = append(out, i)
		}
	}
	return out
}

func (w *fakeStore) List(k row.Kind, namespace string) []*watch.Item {
	return w.filter(func(i *watch.Item) bool { return i.Row.Kind == k && (namespace == "" || i.Row.Namespace == namespace) })
}

func (w *fakeStore) Get(k row.Kind, namespace, name string) *watch.Item {
	for _, i := range w.List(k, namespace) {
		if i.Row.Name == name {
			return i
		}
	}
	return nil
}

func (w *fakeStore) Owned(uid types.UID) []*watch.Item {
	return w.filter(func(i *watch.Item) bool {
		by := metav1.GetControllerOfNoCopy(i.Object)
		return by != nil && by.UID == uid
	})
}

func (w *fakeStore) LastHeartbeat(r *robotv1.Robot) *metav1.MicroTime {
	return r.LastHeartbeat(w.slice)
}

func (w *fakeStore) Namespaces() (out []string) {
	for _, i := range w.items {
		if !slices.Contains(out, i.Row.Namespace) {
			out = append(out, i.Row.Namespace)
		}
	}
	return out
}

func (w *fakeStore) Ring() *watch.Ring       { return w.ring }
func (w *fakeStore) Synced() <-chan struct{} { return w.synced }
func (w *fakeStore) publish(e watch.Event)   { _ = w.ring.Publish(e) }

// fakeGate knows users by token. A request with the header X-Certificate stands for one with a client certificate.
type fakeGate struct {
	users map[string]string
	err   error
	// allow decides on permissions. If nil, everything is allowed.
	allow func(user string, do authorizationv1.ResourceAttributes) (bool, error)
	asked []authorizationv1.ResourceAttributes
}

func (g *fakeGate) Authenticate(r *http.Request) (*access.User, error) {
	if g.err != nil {
		return nil, g.err
	}
	if name := r.Header.Get("X-Certificate"); name != "" {
		return &access.User{Name: name, UID: "u1", Groups: []string{"fleet"}, Extra: map[string][]string{"k": {"v"}}}, nil
	}
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if name := g.users[token]; name != "" {
		return &access.User{Name: name}, nil
	}
	return nil, access.ErrUnauthenticated
}

func (g *fakeGate) IsAllowed(_ context.Context, u *access.User, do authorizationv1.ResourceAttributes) (bool, error) {
	g.asked = append(g.asked, do)
	if g.allow == nil {
		return true, nil
	}
	return g.allow(u.Name, do)
}

// errReview is the error of a review while the API server is unreachable.
var errReview = errors.New("review: connection refused")

// newTestServer returns a server with the objects, in which the token "secret" belongs to ann.
func newTestServer(gate *fakeGate, objects ...client.Object) (*Server, *fakeStore) {
	gate.users = map[string]string{"secret": "ann"}
	w := newFakeStore(objects...)
	s := NewServer(Parts{API: &rest.Config{Host: "https://api:6443"}, Store: w, Gate: gate, Live: fake.NewClientBuilder().Build(), Codes: &Codes{}, Now: func() time.Time { return noon }, Log: logr.Discard(),
		Secret: func() ([]byte, error) { return bytes.Repeat([]byte("k"), minSecret), nil }})
	return s, w
}

// asAnn returns a context in which ann sent the request.
func asAnn(ctx context.Context) context.Context {
	return context.WithValue(ctx, callerKey{}, &caller{User: &access.User{Name: "ann"}, token: "secret"})
}

// serve sends a request of ann to the server and decodes its JSON. It returns the status code.
func serve(t *testing.T, s *Server, method, path, body string, into any) int {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer secret")
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	if into != nil {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			t.Fatalf("%s %s: %v in %q", method, path, err, w.Body)
		}
	}
	return w.Code
}

// metaOf returns the metadata of an object in namespace n, whose UID is its name.
func metaOf(name string, owner ...metav1.OwnerReference) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(name), ResourceVersion: "7", CreationTimestamp: metav1.NewTime(noon), OwnerReferences: owner}
}

// ownedBy returns a controller reference.
func ownedBy(version, kind, name string) metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: types.UID(name), Controller: &yes}
}
