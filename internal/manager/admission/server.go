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

// server answers the API server. It is a Runnable of a manager.
type server struct {
	cfg    Config
	client client.Client
	live   client.Reader // the cache would keep all Secrets for the sake of one
	log    logr.Logger

	current atomic.Pointer[tls.Certificate] // nil: none yet
	asked   atomic.Bool                     // the API server heeds the registration
}

// NeedLeaderElection tells the manager that every replica answers: a Service leads to
// any of them.
func (s *server) NeedLeaderElection() bool { return false }

// ready is nil once requests can be answered, by the certificate that the
// registration trusts, and, where that was made here, once the API server heeds it.
// Behind a Service one is asked only once one is ready.
func (s *server) ready(*http.Request) error {
	if s.current.Load() == nil {
		return errors.New("the webhook has no certificate yet")
	}
	if s.registers() && !s.asked.Load() {
		return errors.New("the API server does not ask the webhook yet")
	}
	return nil
}

// registers tells whether the registration is made here, for an API server that is held to it.
func (s *server) registers() bool { return s.cfg.URL != "" && !s.cfg.Unreachable }

// Start answers until ctx is done.
func (s *server) Start(ctx context.Context) error {
	l := s.cfg.Listener
	if l == nil {
		var err error
		if l, err = net.Listen("tcp", s.cfg.Address); err != nil {
			return fmt.Errorf("serve admission: %w", err)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.keep(ctx) })
	group.Go(func() error { return s.serve(ctx, l) })
	err := group.Wait()
	if s.cfg.URL != "" {
		err = errors.Join(err, s.withdraw(context.WithoutCancel(ctx)))
	}
	return err
}

func (s *server) serve(ctx context.Context, l net.Listener) error {
	answers := &http.Server{
		Handler: handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.certificate, NextProtos: []string{"h2", "http/1.1"}},
		// A scanner that breaks off a handshake is none of our errors.
		ErrorLog: log.New(quiet{s.log}, "", 0),
	}
	defer context.AfterFunc(ctx, func() { answers.Close() })()
	if err := answers.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve admission: %w", err)
	}
	return nil
}

// quiet logs what only somebody who looks for it wants to know.
type quiet struct{ logr.Logger }

// Write logs a line.
func (q quiet) Write(line []byte) (int, error) {
	q.V(1).Info(string(line))
	return len(line), nil
}

func (s *server) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := s.current.Load(); c != nil {
		return c, nil
	}
	return nil, errors.New("no certificate yet")
}

// keep has a certificate at hand until ctx is done.
func (s *server) keep(ctx context.Context) error {
	if s.cfg.CertDir != "" {
		return s.keepFiles(ctx)
	}
	// Until there is a certificate nobody can create a flow, so the first tries are
	// soon.
	for pause := min(time.Second, s.cfg.Every); ; pause = min(2*pause, s.cfg.Every) {
		err := s.renew(ctx)
		if err != nil && ctx.Err() == nil {
			s.log.Error(err, "the webhook's certificate could not be looked after")
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

// keepFiles follows the files of a directory.
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
