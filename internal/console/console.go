package console

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/klauspost/compress/gzhttp"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/console/publish"
	"k8s4r.io/k8s4r/internal/console/watch"
	"k8s4r.io/k8s4r/internal/platform/access"
	"k8s4r.io/k8s4r/internal/platform/connlimit"
	"k8s4r.io/k8s4r/internal/platform/serveraddr"
	"k8s4r.io/k8s4r/web"
)

// Config is the configuration of a Console.
type Config struct {
	// Listener accepts connections. If nil, the console listens on Address.
	Listener net.Listener
	Address  string
	// CertFile and KeyFile are the PEM files of the console's certificate. They are reloaded when
	// they change. If empty, the console serves HTTP; main allows that only on loopback
	// addresses.
	CertFile, KeyFile string
	// SessionKeyFile is a file with a secret that sessions are sealed with, at least 32 bytes, the
	// same for all replicas. It is read again when it changes. If empty, KeyFile is used; without
	// both, sessions end with the process.
	SessionKeyFile string
	// PublicURL is the URL at which browsers open the console, such as https://console.example.com.
	// If empty, they must use localhost or an IP address.
	PublicURL string
	// Archive is the address of the archive (archive.Open). If empty, the console has no archive.
	Archive string
	// MQTTURL is the URL of a broker to which events are published. If empty, events are not
	// published.
	MQTTURL string
	// MQTT is the TLS configuration for the broker. If nil, the system's CAs are used.
	MQTT *tls.Config
	// Codes are one-time codes for signing in. If nil, users sign in by token only.
	Codes *Codes
	// Metrics registers the metrics of the console. If nil, they are not registered.
	Metrics prometheus.Registerer
}

// Console serves the web app and the API. Create it with New.
type Console struct {
	cfg       Config
	store     *watch.Store
	archive   *archive.Store // nil without an archive
	publisher *publish.Publisher
	handler   http.Handler
	// connections bounds the open connections.
	connections *connlimit.Limiter
	log         logr.Logger
}

const (
	// connectionsPerUser is higher than that of other servers: a connection that a proxy shares among
	// users counts for the first of them.
	connectionsPerUser = 1024
	// authenticateWithin suffices to load the pages over a slow network, before the first request that
	// has a session.
	authenticateWithin = 2 * time.Minute
)

// New creates a console that connects to the API server with the console's own credentials. It
// returns an error if the configuration is invalid.
func New(api *rest.Config, cfg Config, log logr.Logger) (*Console, error) {
	c := &Console{cfg: cfg, log: log}
	own, err := client.New(api, client.Options{Scheme: newOwnScheme()})
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	if c.store, err = watch.New(watch.Config{API: api, Log: log.WithName("events")}); err != nil {
		return nil, err
	}
	if cfg.Archive != "" {
		if c.archive, err = archive.Open(cfg.Archive); err != nil {
			return nil, fmt.Errorf("--archive: %w", err)
		}
	}
	if cfg.MQTTURL != "" {
		if c.publisher, err = publish.New(publish.Config{URL: cfg.MQTTURL, TLS: cfg.MQTT, Store: c.store, Log: log.WithName("mqtt")}); err != nil {
			return nil, err
		}
	}
	if cfg.Codes == nil {
		cfg.Codes = &Codes{}
	}
	secret, err := newSecret(cmp.Or(cfg.SessionKeyFile, cfg.KeyFile))
	if err != nil {
		return nil, fmt.Errorf("key of sessions: %w", err)
	}
	public, err := ParsePublicURL(cfg.PublicURL)
	if err != nil {
		return nil, fmt.Errorf("--public-url: %w", err)
	}
	server := NewServer(Parts{
		API: api, Store: c.store, Gate: access.New(own, own), Live: own, Archive: c.archive, Codes: cfg.Codes, App: newApp(web.Dist()), Now: time.Now, Log: log,
		Secret: secret, PublicURL: public,
		FindLogs: func(ctx context.Context) (serveraddr.Address, error) { return serveraddr.FindAddress(ctx, own) },
	})
	if cfg.Metrics != nil {
		for _, m := range server.Collectors() {
			if err := cfg.Metrics.Register(m); err != nil {
				return nil, fmt.Errorf("metrics: %w", err)
			}
		}
	}
	pack, err := gzhttp.NewWrapper(gzhttp.ExceptContentTypes([]string{"text/event-stream", "text/plain"}))
	if err != nil {
		return nil, err
	}
	c.handler = pack(server.Handler())
	c.connections = connlimit.New(connlimit.Config{
		AuthenticateWithin: authenticateWithin, PerIdentity: connectionsPerUser, CountRefused: server.metrics.countRefusedConnection,
	})
	return c, nil
}

// newOwnScheme returns the scheme of the client that uses the console's own credentials.
func newOwnScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(s); err != nil {
		panic(err) // a programming error that every test detects
	}
	return s
}

// Ready returns an error while the console cannot serve complete data.
func (c *Console) Ready(ctx context.Context) error {
	select {
	case <-c.store.Synced():
		return c.store.Live()
	case <-ctx.Done():
		return errors.New("not all kinds are listed from the API server yet")
	}
}

// Run serves until ctx ends.
func (c *Console) Run(ctx context.Context) error {
	l, proof, err := c.openListener(ctx)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	server := &http.Server{
		Handler: c.handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, TLSConfig: proof,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: c.connections.WithConn,
	}
	g.Go(func() error { return c.store.Run(ctx) })
	if c.publisher != nil {
		g.Go(func() error { return c.publisher.Run(ctx) })
	}
	g.Go(func() error {
		defer context.AfterFunc(ctx, func() { _ = server.Close() })() // clients of the event stream reconnect to the next process
		serve := server.Serve
		if proof != nil {
			serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
		}
		if err := serve(c.connections.Listen(l)); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve the console: %w", err)
		}
		return nil
	})
	err = g.Wait()
	if c.archive != nil {
		err = errors.Join(err, c.archive.Close())
	}
	return err
}

func (c *Console) openListener(ctx context.Context) (net.Listener, *tls.Config, error) {
	l := c.cfg.Listener
	if l == nil {
		var err error
		if l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", c.cfg.Address); err != nil {
			return nil, nil, fmt.Errorf("--bind-address=%s: %w", c.cfg.Address, err)
		}
	}
	if c.cfg.CertFile == "" {
		return l, nil, nil
	}
	files, err := certwatcher.New(c.cfg.CertFile, c.cfg.KeyFile)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("certificate of the console: %w", err), l.Close())
	}
	go func() { _ = files.Start(ctx) }()
	// The handler verifies client certificates through the API server's authentication.
	return l, &tls.Config{
		MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: files.GetCertificate,
	}, nil
}
