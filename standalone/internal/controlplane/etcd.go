package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"k8s4r.io/k8s4r/standalone/internal/component"
)

const (
	// etcdQuota is the largest database that etcd is made for, in bytes. At the
	// default of 2 GiB a burst of Tasks with long histories stops all writes.
	etcdQuota = 8 << 30
	// etcdSnapshotCount is the number of writes between two snapshots of the
	// log. etcd keeps that many entries in memory beside the database.
	etcdSnapshotCount = 10_000
	// electionTick and electionTimeout, in milliseconds: a member without peers
	// has nobody to wait for, but waits this long before it elects itself.
	electionTick, electionTimeout = 50, 250
)

// etcd is a single etcd member in this process. It has one listener, a unix
// socket in its own directory, and no peers.
type etcd struct {
	dir  *os.File
	cfg  *embed.Config
	done chan struct{}

	mu     sync.Mutex
	server *embed.Etcd // nil: not started, or stopped
	err    error
}

func newEtcd(dir string, log *zap.Logger) (*etcd, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	handle, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	e := &etcd{dir: handle, done: make(chan struct{})}
	e.cfg = etcdConfig(dir, e.socket(), log)
	return e, nil
}

// socket is the path of etcd's socket by way of the open directory. Such a
// path is short: the path of the directory itself may well be longer than the
// 107 bytes that the name of a unix socket can have.
func (e *etcd) socket() string {
	return fmt.Sprintf("/proc/self/fd/%d/client.sock", e.dir.Fd())
}

func (e *etcd) endpoint() string { return "unix://" + e.socket() }

func etcdConfig(dir, socket string, log *zap.Logger) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Dir = dir
	// What a member advertises must look like host:port; without peers nobody
	// ever connects to it, so the defaults stay.
	cfg.ListenPeerUrls = nil
	cfg.ListenClientUrls = []url.URL{{Scheme: "unix", Path: socket}}
	cfg.EnableGRPCGateway = false
	cfg.TickMs, cfg.ElectionMs = electionTick, electionTimeout
	// Zero, which NewConfig leaves, would log every single request.
	cfg.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	cfg.QuotaBackendBytes = etcdQuota
	cfg.SnapshotCount = etcdSnapshotCount
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(log)
	return cfg
}

// Start implements component.Component.
func (e *etcd) Start(context.Context) error {
	if err := removeUnborn(e.cfg.Dir); err != nil {
		return err
	}
	server, err := embed.StartEtcd(e.cfg)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.server = server
	go e.watch(server)
	return nil
}

// watch waits for the end. Stop takes the server away before it closes it.
func (e *etcd) watch(server *embed.Etcd) {
	defer close(e.done)
	var err error
	select {
	case err = <-server.Err():
	case <-server.Server.StopNotify():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.server != nil {
		e.err = errors.Join(component.ErrEnded, err)
	}
}

// Ready implements component.Component.
func (e *etcd) Ready(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.server == nil {
		return errors.New("not started")
	}
	select {
	case <-e.server.Server.ReadyNotify():
		return nil
	default:
		return errors.New("has not elected itself yet")
	}
}

// Stop implements component.Component.
func (e *etcd) Stop(context.Context) error {
	e.mu.Lock()
	server := e.server
	e.server = nil
	e.mu.Unlock()
	if server == nil {
		return nil
	}
	server.Close()
	return e.dir.Close()
}

// Done implements component.Mortal.
func (e *etcd) Done() <-chan struct{} { return e.done }

// Err implements component.Mortal.
func (e *etcd) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}
