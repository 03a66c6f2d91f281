package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/console/row"
	"k8s4r.io/k8s4r/internal/console/watch"
	"k8s4r.io/k8s4r/internal/platform/serveraddr"
)

// Store provides the live objects and their events.
type Store interface {
	List(k row.Kind, namespace string) []*watch.Item
	Get(k row.Kind, namespace, name string) *watch.Item
	Owned(uid types.UID) []*watch.Item
	LastHeartbeat(r *robotv1.Robot) *metav1.MicroTime
	Namespaces() []string
	Ring() *watch.Ring
	Synced() <-chan struct{}
}

// Parts are the dependencies of a Server. All are required except Archive and App.
type Parts struct {
	// API is the configuration for the API server with the console's own credentials.
	API   *rest.Config
	Store Store
	Gate  Gate
	// Live reads namespaces from the API server with the console's own credentials.
	Live client.Reader
	// Archive of ended objects. If nil, there is no archive.
	Archive *archive.Store
	// Codes are the one-time codes for signing in.
	Codes *Codes
	// Secret returns the secret that sessions are sealed with. All replicas must have the same.
	Secret func() ([]byte, error)
	// PublicURL is the URL at which browsers open the console, besides loopback addresses. If nil,
	// there is none.
	PublicURL *url.URL
	// FindLogs returns the address of the log API.
	FindLogs func(context.Context) (serveraddr.Address, error)
	// App serves the web app. If nil, only the API is served.
	App http.Handler
	Now func() time.Time
	Log logr.Logger
}

// Server implements the API and serves the web app.
type Server struct {
	api       *rest.Config
	store     Store
	gate      Gate
	live      client.Reader
	archive   *archive.Store
	codes     *Codes
	secret    func() ([]byte, error)
	publicURL *url.URL
	findLogs  func(context.Context) (serveraddr.Address, error)
	app       http.Handler
	now       func() time.Time
	log       logr.Logger

	metrics *metrics
	scheme  *runtime.Scheme
	mapper  meta.RESTMapper
}

// NewServer creates a server.
func NewServer(p Parts) *Server {
	scheme := NewScheme()
	return &Server{
		api: p.API, store: p.Store, gate: p.Gate, live: p.Live, archive: p.Archive, codes: p.Codes, secret: p.Secret, publicURL: p.PublicURL,
		findLogs: p.FindLogs, app: p.App, now: p.Now, log: p.Log,
		metrics: newMetrics(), scheme: scheme, mapper: newRESTMapper(scheme),
	}
}

// Collectors returns the metrics of the server.
func (s *Server) Collectors() []prometheus.Collector { return s.metrics.listCollectors() }

// Handler returns the handler of all requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	s.newAPI(mux)
	api := s.requireCaller(mux)
	root := http.NewServeMux()
	root.Handle(prefix+"/", api)
	if s.app != nil {
		root.Handle("/", s.app)
	}
	return addSecurityHeaders(s.requireOwnOrigin(root))
}

// addSecurityHeaders restricts browsers to scripts and other content that the console itself
// serves.
func addSecurityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		// The terminal component of the log view adds inline styles. Scripts are allowed from
		// files only.
		h.Set("Content-Security-Policy", "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}

type requestKey struct{}

// requestFromContext returns the HTTP request of ctx.
func requestFromContext(ctx context.Context) *http.Request {
	r, _ := ctx.Value(requestKey{}).(*http.Request)
	return r
}

// isPublic reports whether a path needs no authentication.
func isPublic(path string) bool {
	return path == prefix+"/session" || strings.HasPrefix(path, prefix+"/openapi")
}

// maxBody bounds a request body, in bytes. An action has at most a thousand targets.
const maxBody = 1 << 20

// requireCaller rejects unauthenticated requests. Other requests wait until the watch cache is
// complete.
func (s *Server) requireCaller(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		ctx := context.WithValue(r.Context(), requestKey{}, r)
		if !isPublic(r.URL.Path) {
			c, err := s.identifyConnection(r)
			if err != nil {
				s.writeError(w, err)
				return
			}
			ctx = context.WithValue(ctx, callerKey{}, c)
			select {
			case <-s.store.Synced():
			case <-time.After(syncPatience):
				s.writeError(w, apierrors.NewServiceUnavailable("the console has not listed all objects from the API server yet; try again in a moment"))
				return
			case <-ctx.Done():
				return
			}
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// syncPatience bounds how long a request waits for the watch cache.
const syncPatience = 10 * time.Second

// writeError writes err as a Status.
func (s *Server) writeError(w http.ResponseWriter, err error) {
	var is *status
	if !errors.As(s.toAPIError(err), &is) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(is.Code))
	_ = json.NewEncoder(w).Encode(is) // fails only if the client has disconnected
}
