package console

import (
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

	"k8s4r.io/k8s4r/internal/access"
	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/beacon"
	"k8s4r.io/k8s4r/internal/events"
	"k8s4r.io/k8s4r/internal/events/mqtt"
	"k8s4r.io/k8s4r/web"
)

// Config is what an operator says of the console.
type Config struct {
	// Listener that is open already. Nil: Address is opened.
	Listener net.Listener
	Address  string
	// CertFile and KeyFile prove the console, PEM, and are read again when they change. Empty:
	// it speaks HTTP, which only Address on loopback allows.
	CertFile, KeyFile string
	// Archive is the address of the archive (archive.Open). Empty: there is none.
	Archive string
	// StateFile keeps where the stream of events is, over a restart. Empty: readers load their
	// lists anew after one.
	StateFile string
	// MQTTURL of a broker that events are published to. Empty: none.
	MQTTURL string
	// MQTT proves the console there. Nil: as the system does.
	MQTT *tls.Config
	// Codes with which browsers sign in. Nil: by token alone.
	Codes *Codes
	// Metrics takes in what the console counts. Nil: nobody does.
	Metrics prometheus.Registerer
}

// Console serves while it runs.
type Console struct {
	cfg       Config
	world     *events.World
	archive   *archive.Store // nil: none
	publisher *mqtt.Publisher
	handler   http.Handler
	log       logr.Logger
}

// New prepares a console. api is the API server, and who the console is there. The error is
// about the configuration.
func New(api *rest.Config, cfg Config, log logr.Logger) (*Console, error) {
	c := &Console{cfg: cfg, log: log}
	own, err := client.New(api, client.Options{Scheme: ownScheme()})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	if c.world, err = events.New(events.Config{API: api, StateFile: cfg.StateFile, Log: log.WithName("events")}); err != nil {
		return nil, err
	}
	if cfg.Archive != "" {
		if c.archive, err = archive.Open(cfg.Archive); err != nil {
			return nil, fmt.Errorf("--archive: %w", err)
		}
	}
	if cfg.MQTTURL != "" {
		if c.publisher, err = mqtt.New(mqtt.Config{URL: cfg.MQTTURL, TLS: cfg.MQTT, World: c.world, Log: log.WithName("mqtt")}); err != nil {
			return nil, err
		}
	}
	if cfg.Codes == nil {
		cfg.Codes = &Codes{}
	}
	server := NewServer(Parts{
		API: api, World: c.world, Gate: access.New(own, own), Archive: c.archive, Codes: cfg.Codes, App: newApp(web.Dist()), Now: time.Now, Log: log,
		FindLogs: func(ctx context.Context) (beacon.Address, error) { return beacon.Find(ctx, own) },
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
	return c, nil
}

// ownScheme is what the console itself asks the API server for.
func ownScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(s); err != nil {
		panic(err) // two types of one name, which the first test would show
	}
	return s
}

// Ready says what keeps the console from its work. Nil: nothing.
func (c *Console) Ready(ctx context.Context) error {
	select {
	case <-c.world.Current():
		return c.world.Live()
	case <-ctx.Done():
		return errors.New("not everything was read from the API server yet")
	}
}

// Run serves until the context ends.
func (c *Console) Run(ctx context.Context) error {
	l, proof, err := c.listen(ctx)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	server := &http.Server{
		Handler: c.handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, TLSConfig: proof,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	g.Go(func() error { return c.world.Run(ctx) })
	if c.publisher != nil {
		g.Go(func() error { return c.publisher.Run(ctx) })
	}
	g.Go(func() error {
		defer context.AfterFunc(ctx, func() { _ = server.Close() })() // who follows comes back to the next one
		serve := server.Serve
		if proof != nil {
			serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
		}
		if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
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

func (c *Console) listen(ctx context.Context) (net.Listener, *tls.Config, error) {
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
	// Whose client certificate it is, and whether it counts, the handler finds out.
	return l, &tls.Config{
		MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: files.GetCertificate,
	}, nil
}
