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
	"google.golang.org/grpc"

	"k8s4r.io/k8s4r/standalone/internal/component"
)

const (
	// etcdQuota is the largest size of the database that etcd supports, in bytes. With the default
	// of 2 GiB, a burst of Tasks with long histories stops all writes.
	etcdQuota = 8 << 30
	// etcdSnapshotCount is the number of writes between two snapshots of the log on the disk.
	etcdSnapshotCount = 10_000
	// etcdCatchUpEntries is the number of writes that stay in memory for a slow follower. There is none.
	etcdCatchUpEntries = 100
	// etcdReadBuffer is the size of the buffer of a connection, in bytes.
	etcdReadBuffer = 4 << 10
	// electionTick and electionTimeout are in milliseconds. A member without peers still waits this
	// long before it elects itself.
	electionTick, electionTimeout = 50, 250
)

// etcd is a single etcd member in this process. It listens on a unix socket in its directory and
// has no peers.
type etcd struct {
	dir  *os.File
	cfg  *embed.Config
	done chan struct{}

	mu     sync.Mutex
	server *embed.Etcd // nil before Start and after Stop
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
	e.cfg = etcdConfig(dir, e.socketPath(), log)
	return e, nil
}

// socketPath returns the path of etcd's socket through the open directory's descriptor. The path of
// the directory itself may exceed the 107 bytes of a unix socket's name.
func (e *etcd) socketPath() string {
	return fmt.Sprintf("/proc/self/fd/%d/client.sock", e.dir.Fd())
}

func (e *etcd) clientEndpoint() string { return "unix://" + e.socketPath() }

func etcdConfig(dir, socket string, log *zap.Logger) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Dir = dir
	// Advertised addresses must have the form host:port. Without peers they are not used, so the
	// defaults stay.
	cfg.ListenPeerUrls = nil
	cfg.ListenClientUrls = []url.URL{{Scheme: "unix", Path: socket}}
	cfg.EnableGRPCGateway = false
	cfg.TickMs, cfg.ElectionMs = electionTick, electionTimeout
	// Zero, which NewConfig leaves, would log every request.
	cfg.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	cfg.QuotaBackendBytes = etcdQuota
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = etcdSnapshotCount, etcdCatchUpEntries
	// The API server opens a connection for each of its 80 kinds.
	cfg.GRPCAdditionalServerOptions = []grpc.ServerOption{grpc.ReadBufferSize(etcdReadBuffer), grpc.SharedWriteBuffer(true)}
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(log)
	return cfg
}

// Start implements component.Component.
func (e *etcd) Start(context.Context) error {
	if err := removeUnusedMember(e.cfg.Dir); err != nil {
		return err
	}
	server, err := embed.StartEtcd(e.cfg)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.server = server
	go e.awaitEnd(server)
	return nil
}

// awaitEnd blocks until the server ends and stores its error. Stop clears e.server before it closes
// the server.
func (e *etcd) awaitEnd(server *embed.Etcd) {
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
		return errors.New("has no leader yet")
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

// Done implements component.Monitored.
func (e *etcd) Done() <-chan struct{} { return e.done }

// Err implements component.Monitored.
func (e *etcd) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}
