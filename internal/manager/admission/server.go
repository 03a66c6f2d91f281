package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// server serves the webhook. It is a manager.Runnable.
type server struct {
	cfg    Config
	client client.Client
	live   client.Reader // uncached: a cache would hold all Secrets to read one
	log    logr.Logger

	current atomic.Pointer[tls.Certificate] // nil until there is one
	called  atomic.Bool                     // the API server calls the webhook
}

// NeedLeaderElection returns false: the Service routes to all replicas.
func (s *server) NeedLeaderElection() bool { return false }

// checkReady returns nil once the webhook has a certificate and, if the API server must reach it by
// URL, once the API server calls it. Behind a Service this is not awaited, because a Service only
// routes to ready replicas.
func (s *server) checkReady(*http.Request) error {
	if s.current.Load() == nil {
		return errors.New("the webhook has no certificate yet")
	}
	if s.ownsRegistration() && !s.called.Load() {
		return errors.New("the API server does not call the webhook yet")
	}
	return nil
}

// ownsRegistration reports whether this process creates the registration, with failurePolicy Fail.
func (s *server) ownsRegistration() bool { return s.cfg.URL != "" && !s.cfg.Unreachable }

// Start serves the webhook until ctx ends.
func (s *server) Start(ctx context.Context) error {
	l := s.cfg.Listener
	if l == nil {
		var err error
		if l, err = net.Listen("tcp", s.cfg.Address); err != nil {
			return fmt.Errorf("serve admission: %w", err)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.keepCertificate(ctx) })
	group.Go(func() error { return s.serveTLS(ctx, l) })
	err := group.Wait()
	if s.cfg.URL != "" {
		err = errors.Join(err, s.removeRegistrations(context.WithoutCancel(ctx)))
	}
	return err
}

func (s *server) serveTLS(ctx context.Context, l net.Listener) error {
	answers := &http.Server{
		Handler: newHandler(&actionHandler{s.cfg.Archive, s.client, s.cfg.Now, s.log}), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.getCertificate, NextProtos: []string{"h2", "http/1.1"}},
		// A client that aborts the handshake is not an error of the manager.
		ErrorLog: log.New(quiet{s.log}, "", 0),
	}
	defer context.AfterFunc(ctx, func() { answers.Close() })()
	if err := answers.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve admission: %w", err)
	}
	return nil
}

// quiet is a writer that logs lines at verbosity 1.
type quiet struct{ logr.Logger }

// Write logs a line.
func (q quiet) Write(line []byte) (int, error) {
	q.V(1).Info(string(line))
	return len(line), nil
}

func (s *server) getCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := s.current.Load(); c != nil {
		return c, nil
	}
	return nil, errors.New("no certificate yet")
}

// keepCertificate keeps a valid certificate until ctx ends.
func (s *server) keepCertificate(ctx context.Context) error {
	if s.cfg.CertDir != "" {
		return s.keepFiles(ctx)
	}
	// Until there is a certificate, flows cannot be created, so the first retries are quick.
	for pause := min(time.Second, s.cfg.Every); ; pause = min(2*pause, s.cfg.Every) {
		err := s.renewCertificate(ctx)
		if err != nil && ctx.Err() == nil {
			s.log.Error(err, "cannot renew the certificate of the webhook")
		}
		if err == nil {
			pause = s.cfg.Every
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// keepFiles reloads the certificate from its files when they change, until ctx ends.
func (s *server) keepFiles(ctx context.Context) error {
	files, err := certwatcher.New(filepath.Join(s.cfg.CertDir, "tls.crt"), filepath.Join(s.cfg.CertDir, "tls.key"))
	if err != nil {
		return fmt.Errorf("--webhook-cert-dir: %w", err)
	}
	take := func(c tls.Certificate) { s.current.Store(&c) }
	files.RegisterCallback(take)
	first, err := files.GetCertificate(nil)
	if err != nil {
		return fmt.Errorf("--webhook-cert-dir: %w", err)
	}
	take(*first)
	return files.Start(ctx)
}
