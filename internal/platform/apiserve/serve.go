// Package apiserve serves an HTTPS API of a program on its leader, and publishes where it is.
package apiserve

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"k8s4r.io/k8s4r/internal/platform/connlimit"
	"k8s4r.io/k8s4r/internal/platform/pki"
	"k8s4r.io/k8s4r/internal/platform/serveraddr"
	"k8s4r.io/k8s4r/internal/protocol/keyfile"
)

// Config configures the address and the certificate of the API.
type Config struct {
	// ServerName is in all certificates, so that clients reach the program under any address.
	ServerName string
	// Listener is an open listener. If nil, Address is opened.
	Listener net.Listener
	Address  string
	// URL for clients. Default: https, this machine's address and the port.
	URL string
	// CertFile and KeyFile are reloaded when they change. If empty, Certificates or a
	// self-signed certificate is used.
	CertFile, KeyFile string
	// CAFile has the CA of CertFile. If empty, clients use their system's CAs.
	CAFile string
	// Certificates is used without CertFile. If nil, a self-signed certificate is
	// created at each start.
	Certificates CertificateSource
	// Hosts are names and addresses for Certificates, beside those of URL and of this
	// machine.
	Hosts []string
	// Connections bounds the open connections.
	Connections connlimit.Config
}

// CertificateSource is a CA that clients know.
type CertificateSource interface {
	// ServingCertificate returns certificates for these names and addresses.
	ServingCertificate(hosts ...string) func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// TrustPEM returns the CAs for clients.
	TrustPEM() []byte
}

const (
	// readTimeout bounds the TLS handshake, and the time to read the header of a request.
	readTimeout = 10 * time.Second
	// idleTimeout bounds the time between two requests of an authenticated client.
	idleTimeout = 2 * time.Minute
	// maxStreams bounds the requests at the same time on one HTTP/2 connection.
	maxStreams = 100
)

// Service serves the API while it runs.
type Service struct {
	cfg      Config
	handler  http.Handler
	announce func(context.Context, serveraddr.Address) error
	log      logr.Logger
}

// New returns a service that serves handler and publishes its address with
// announce.
func New(cfg Config, handler http.Handler, announce func(context.Context, serveraddr.Address) error, log logr.Logger) *Service {
	return &Service{cfg: cfg, handler: handler, announce: announce, log: log}
}

// NeedLeaderElection reports that only the leader serves: it has the logs of the server, and the
// reservations of the manager.
func (s *Service) NeedLeaderElection() bool { return true }

// Start serves until ctx ends. Requests with follow are aborted then, so that their
// clients look for the next server.
func (s *Service) Start(ctx context.Context) error {
	l := s.cfg.Listener
	if l == nil {
		var err error
		if l, err = net.Listen("tcp", s.cfg.Address); err != nil {
			return fmt.Errorf("serve the API: %w", err)
		}
	}
	address, config, err := s.tlsConfig(ctx, l.Addr().(*net.TCPAddr))
	if err != nil {
		return errors.Join(err, l.Close())
	}
	connections := connlimit.New(s.cfg.Connections)
	server := &http.Server{
		Handler: s.handler, ReadHeaderTimeout: readTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: connections.WithConn,
		HTTP2:       &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		TLSConfig:   config,
		ErrorLog:    newErrorLog(s.log),
	}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	go s.publishAddress(ctx, address)
	s.log.Info("serving the API", "url", address.URL)
	if err := server.ServeTLS(connections.Listen(l), "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the API: %w", err)
	}
	return nil
}

// addressInterval is the longest time between a change of the CA and its publication.
const addressInterval = time.Minute

// publishAddress publishes the address, with retries, and again when its CA changes.
func (s *Service) publishAddress(ctx context.Context, a serveraddr.Address) {
	isPublished, pause := false, time.Second
	for {
		if ca := s.currentCA(a.CA); !isPublished || !bytes.Equal(ca, a.CA) {
			a.CA = ca
			err := s.announce(ctx, a)
			if err != nil && ctx.Err() == nil {
				s.log.Error(err, "cannot publish the address of the API")
			}
			isPublished = err == nil
		}
		if pause = min(2*pause, addressInterval); isPublished {
			pause = addressInterval
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// currentCA returns the CA that clients should trust now. ca is that of the start.
func (s *Service) currentCA(ca []byte) []byte {
	if s.cfg.CertFile == "" && s.cfg.Certificates != nil {
		return s.cfg.Certificates.TrustPEM()
	}
	return ca
}

// tlsConfig returns the address and the TLS configuration of the server.
func (s *Service) tlsConfig(ctx context.Context, at *net.TCPAddr) (serveraddr.Address, *tls.Config, error) {
	a := serveraddr.Address{URL: s.cfg.URL}
	if a.URL == "" {
		a.URL = "https://" + net.JoinHostPort(reachableHost(at.IP), strconv.Itoa(at.Port))
	}
	// The handler authenticates clients, by certificate or token.
	config := &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2", "http/1.1"}}
	if s.cfg.CertFile != "" {
		return s.tlsConfigFromFiles(ctx, a, config)
	}
	if s.cfg.Certificates != nil {
		config.GetCertificate = s.cfg.Certificates.ServingCertificate(s.serverNames(a.URL)...)
		a.CA, a.ServerName = s.cfg.Certificates.TrustPEM(), s.cfg.ServerName
		return a, config, nil
	}
	pair, ca, err := newSelfSigned(a.URL, s.cfg.ServerName)
	if err != nil {
		return a, nil, fmt.Errorf("create a self-signed certificate: %w", err)
	}
	config.Certificates = []tls.Certificate{pair}
	a.CA, a.ServerName = ca, s.cfg.ServerName
	return a, config, nil
}

func (s *Service) tlsConfigFromFiles(ctx context.Context, a serveraddr.Address, config *tls.Config) (serveraddr.Address, *tls.Config, error) {
	files, err := certwatcher.New(s.cfg.CertFile, s.cfg.KeyFile)
	if err != nil {
		return a, nil, fmt.Errorf("--api-cert-file: %w", err)
	}
	config.GetCertificate = files.GetCertificate
	go func() { _ = files.Start(ctx) }()
	if s.cfg.CAFile != "" {
		if a.CA, err = os.ReadFile(s.cfg.CAFile); err != nil {
			return a, nil, fmt.Errorf("--api-ca-file: %w", err)
		}
	}
	return a, config, nil
}

// serverNames returns all names by which clients reach this program.
func (s *Service) serverNames(address string) []string {
	all := append([]string{s.cfg.ServerName, "localhost", "127.0.0.1", "::1"}, s.cfg.Hosts...)
	if u, err := url.Parse(address); err == nil && !slices.Contains(all, u.Hostname()) {
		all = append(all, u.Hostname())
	}
	return all
}

// reachableHost returns an address of this machine that others can reach.
func reachableHost(ip net.IP) string {
	if !ip.IsUnspecified() {
		return ip.String()
	}
	addresses, _ := net.InterfaceAddrs()
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return "127.0.0.1"
}

// newSelfSigned makes a certificate for a name and the host of a URL.
func newSelfSigned(address, serverName string) (pair tls.Certificate, ca []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair, nil, err
	}
	u, err := url.Parse(address)
	if err != nil {
		return pair, nil, err
	}
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: serverName}, DNSNames: []string{serverName, "localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		// From 1970, so that it stays valid when the clock is set back.
		NotBefore: time.Unix(0, 0), NotAfter: time.Now().AddDate(10, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
	}
	pki.AddHost(c, u.Hostname())
	signed, err := pki.SignCertificate(c, key.Public(), nil, key)
	if err != nil {
		return pair, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{signed.Raw}, PrivateKey: key}, keyfile.EncodeCertificates(signed), nil
}
