package logapi

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"k8s4r.io/k8s4r/internal/beacon"
)

// ServeConfig says where the API is served.
type ServeConfig struct {
	// Listener that is open already. Nil: Address is opened.
	Listener net.Listener
	Address  string
	// URL that clients reach it by. Empty: https, this machine's address and the
	// port.
	URL string
	// CertFile and KeyFile prove the server, and are read again when they change.
	// Empty: it makes a certificate of its own at each start.
	CertFile, KeyFile string
	// CAFile vouches for CertFile. Empty: clients' systems do.
	CAFile string
	// Proof makes certificates without CertFile. Nil: the server makes one of its
	// own at each start.
	Proof Proof
	// Hosts are names and addresses that Proof is to hold for, beside those of URL
	// and of this machine.
	Hosts []string
}

// Proof is an authority that clients know.
type Proof interface {
	// Serving proves these names and addresses.
	Serving(hosts ...string) func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Trust vouches for that, in PEM.
	Trust() []byte
}

// serverName is in the certificate that the server makes.
const serverName = "k8s4r-server.k8s4r-system.svc"

// Service serves the API while it runs.
type Service struct {
	cfg      ServeConfig
	handler  http.Handler
	announce func(context.Context, beacon.Address) error
	log      logr.Logger
}

// NewService prepares to serve handler, and to announce where.
func NewService(cfg ServeConfig, handler http.Handler, announce func(context.Context, beacon.Address) error, log logr.Logger) *Service {
	return &Service{cfg: cfg, handler: handler, announce: announce, log: log}
}

// NeedLeaderElection tells the controller manager that only the server that takes
// logs in can read them.
func (s *Service) NeedLeaderElection() bool { return true }

// Start serves until ctx ends. Requests that follow a log are cut off then, so
// that their clients look for the next server.
func (s *Service) Start(ctx context.Context) error {
	l := s.cfg.Listener
	if l == nil {
		var err error
		if l, err = net.Listen("tcp", s.cfg.Address); err != nil {
			return fmt.Errorf("serve logs: %w", err)
		}
	}
	address, proof, err := s.prove(ctx, l.Addr().(*net.TCPAddr))
	if err != nil {
		return errors.Join(err, l.Close())
	}
	server := &http.Server{
		Handler: s.handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
		TLSConfig:   proof,
		ErrorLog:    quiet(s.log),
	}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	go s.tell(ctx, address)
	s.log.Info("serving the API", "url", address.URL)
	if err := server.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve logs: %w", err)
	}
	return nil
}

// tell announces the address, until it has been heard.
func (s *Service) tell(ctx context.Context, a beacon.Address) {
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		err := s.announce(ctx, a)
		if err == nil || ctx.Err() != nil {
			return
		}
		s.log.Error(err, "clients cannot find the logs")
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// prove finds or makes what the server proves itself with.
func (s *Service) prove(ctx context.Context, at *net.TCPAddr) (beacon.Address, *tls.Config, error) {
	a := beacon.Address{URL: s.cfg.URL}
	if a.URL == "" {
		a.URL = "https://" + net.JoinHostPort(hostOf(at.IP), strconv.Itoa(at.Port))
	}
	// Who the client is, the handler finds out: its certificate is one way of two.
	proof := &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2", "http/1.1"}}
	if s.cfg.CertFile != "" {
		return s.proveWithFiles(ctx, a, proof)
	}
	if s.cfg.Proof != nil {
		proof.GetCertificate = s.cfg.Proof.Serving(s.hosts(a.URL)...)
		a.CA, a.ServerName = s.cfg.Proof.Trust(), serverName
		return a, proof, nil
	}
	pair, ca, err := selfSigned(a.URL)
	if err != nil {
		return a, nil, fmt.Errorf("make a certificate: %w", err)
	}
	proof.Certificates = []tls.Certificate{pair}
	a.CA, a.ServerName = ca, serverName
	return a, proof, nil
}

func (s *Service) proveWithFiles(ctx context.Context, a beacon.Address, proof *tls.Config) (beacon.Address, *tls.Config, error) {
	files, err := certwatcher.New(s.cfg.CertFile, s.cfg.KeyFile)
	if err != nil {
		return a, nil, fmt.Errorf("certificate of the API: %w", err)
	}
	proof.GetCertificate = files.GetCertificate
	go func() { _ = files.Start(ctx) }()
	if s.cfg.CAFile != "" {
		if a.CA, err = os.ReadFile(s.cfg.CAFile); err != nil {
			return a, nil, fmt.Errorf("CA of the API: %w", err)
		}
	}
	return a, proof, nil
}

// hosts are all that clients may call this server.
func (s *Service) hosts(address string) []string {
	all := append([]string{serverName, "localhost", "127.0.0.1", "::1"}, s.cfg.Hosts...)
	if u, err := url.Parse(address); err == nil && !slices.Contains(all, u.Hostname()) {
		all = append(all, u.Hostname())
	}
	return all
}

// hostOf is an address of this machine that others can reach.
func hostOf(ip net.IP) string {
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

// selfSigned makes a certificate for the host of a URL.
func selfSigned(address string) (pair tls.Certificate, ca []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair, nil, err
	}
	u, err := url.Parse(address)
	if err != nil {
		return pair, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return pair, nil, err
	}
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: serverName}, DNSNames: []string{serverName, "localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil {
		c.IPAddresses = append(c.IPAddresses, ip)
	} else {
		c.DNSNames = append(c.DNSNames, u.Hostname())
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		return pair, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
