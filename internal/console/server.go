package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/beacon"
	"k8s4r.io/k8s4r/internal/events"
	"k8s4r.io/k8s4r/internal/events/row"
)

// World is what the console knows of live objects.
type World interface {
	List(k row.Kind, namespace string) []*events.Item
	Get(k row.Kind, namespace, name string) *events.Item
	Owned(uid types.UID) []*events.Item
	Namespaces() []string
	Ring() *events.Ring
	Current() <-chan struct{}
}

// Parts are what a Server is made of. It needs all but Archive and App.
type Parts struct {
	// API server, and who the console is there.
	API   *rest.Config
	World World
	Gate  Gate
	// Archive of what has been. Nil: there is none.
	Archive *archive.Store
	// Codes with which browsers sign in.
	Codes *Codes
	// FindLogs says where the logs of tasks are.
	FindLogs func(context.Context) (beacon.Address, error)
	// App serves the web app. Nil: only the API is served.
	App http.Handler
	Now func() time.Time
	Log logr.Logger
}

// Server answers browsers and other clients.
type Server struct {
	api      *rest.Config
	world    World
	gate     Gate
	archive  *archive.Store
	codes    *Codes
	findLogs func(context.Context) (beacon.Address, error)
	app      http.Handler
	now      func() time.Time
	log      logr.Logger

	metrics *metrics
	scheme  *runtime.Scheme
	mapper  meta.RESTMapper
}

// NewServer prepares a server.
func NewServer(p Parts) *Server {
	scheme := Scheme()
	return &Server{
		api: p.API, world: p.World, gate: p.Gate, archive: p.Archive, codes: p.Codes, findLogs: p.FindLogs, app: p.App, now: p.Now, log: p.Log,
		metrics: newMetrics(), scheme: scheme, mapper: mapper(scheme),
	}
}

// Collectors show what the server counts.
func (s *Server) Collectors() []prometheus.Collector { return s.metrics.all() }

// Handler serves everything.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	s.newAPI(mux)
	api := s.guard(mux)
	root := http.NewServeMux()
	root.Handle(prefix+"/", api)
	root.HandleFunc("GET /signin", s.signIn)
	if s.app != nil {
		root.Handle("/", s.app)
	}
	return hardened(root)
}

// hardened tells browsers to run nothing but what is served here.
func hardened(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		// The terminal of the logs writes style elements of its own; scripts are files only.
		h.Set("Content-Security-Policy", "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}

type requestKey struct{}

// requestOf is the request that is being answered.
func requestOf(ctx context.Context) *http.Request {
	r, _ := ctx.Value(requestKey{}).(*http.Request)
	return r
}

// public are the addresses that need no caller.
func public(path string) bool {
	return path == prefix+"/session" || strings.HasPrefix(path, prefix+"/openapi")
}

// maxBody bounds what a request may send: an action names a thousand objects at most.
const maxBody = 1 << 20

// guard lets in who can say who they are, once there is something to see.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		ctx := context.WithValue(r.Context(), requestKey{}, r)
		if !public(r.URL.Path) {
			c, err := s.identify(r)
			if err != nil {
				s.refuse(w, err)
				return
			}
			ctx = context.WithValue(ctx, callerKey{}, c)
			select {
			case <-s.world.Current():
			case <-time.After(syncPatience):
				s.refuse(w, apierrors.NewServiceUnavailable("the console has not read everything from the API server yet; try again in a moment"))
				return
			case <-ctx.Done():
				return
			}
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// syncPatience is how long a request waits for the first look at the cluster.
const syncPatience = 10 * time.Second

// refuse answers with a Status.
func (s *Server) refuse(w http.ResponseWriter, err error) {
	var is *status
	if !errors.As(s.problem(err), &is) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(is.Code))
	_ = json.NewEncoder(w).Encode(is) // who is gone needs no answer
}
