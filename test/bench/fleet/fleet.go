package main

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/keyfile"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/server/ca"
	"k8s4r.io/k8s4r/internal/testkit"
)

// robotsPerSite is how many robots share one IP address.
const robotsPerSite = 1000

// fleet is all simulated robots.
type fleet struct {
	t      testing.TB
	auth   *ca.Authority
	trust  *x509.CertPool
	broker string // address

	robots     []*robot
	registered atomic.Int64 // robots whose registration was answered over their current connection
	resumed    atomic.Int64 // TLS sessions, since the start
	postponed  atomic.Int64 // connections that the broker postponed, since the start

	mu     sync.Mutex
	starts map[string]time.Time // of tasks, by name
	errors map[string]int       // by their text
}

func newFleet(t testing.TB, auth *ca.Authority, broker string) *fleet {
	return &fleet{t: t, auth: auth, trust: auth.TrustPool(), broker: broker, starts: map[string]time.Time{}, errors: map[string]int{}}
}

func robotID(i int) string { return fmt.Sprintf("bench-%05d", i) }

// addRobots issues the certificates of robots up to n, and starts them.
func (f *fleet) addRobots(ctx context.Context, n int) {
	var wg sync.WaitGroup
	first := len(f.robots)
	f.robots = append(f.robots, make([]*robot, max(0, n-first))...)
	for worker := range 4 {
		wg.Go(func() {
			for i := first + worker; i < n; i += 4 {
				f.robots[i] = f.newRobot(i)
			}
		})
	}
	wg.Wait()
	for _, r := range f.robots[first:] {
		go r.run(ctx)
	}
}

// newRobot issues a certificate as the server does when a robot joins.
func (f *fleet) newRobot(i int) *robot {
	id := robotID(i)
	key, _, err := keyfile.NewKey()
	if err != nil {
		f.t.Fatal(err)
	}
	c, err := f.auth.SignRobot(id, key.Public())
	if err != nil {
		f.t.Fatal(err)
	}
	site := i / robotsPerSite
	return &robot{
		id: id, fleet: f, dial: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, byte(site>>8), byte(site+1))}},
		tls: &tls.Config{
			MinVersion: tls.VersionTLS13, ServerName: "127.0.0.1", RootCAs: f.trust, ClientSessionCache: tls.NewLRUClientSessionCache(1),
			Certificates: []tls.Certificate{{Certificate: [][]byte{c.Raw}, PrivateKey: crypto.PrivateKey(key), Leaf: c}},
		},
	}
}

// awaitRegistered blocks until n robots are registered, and returns when that was.
func (f *fleet) awaitRegistered(n int, within time.Duration) time.Time {
	testkit.EventuallyNoError(f.t, within, "robots are registered", func() error {
		if have := int(f.registered.Load()); have < n {
			return fmt.Errorf("%d of %d; errors %v", have, n, f.readErrors())
		}
		return nil
	})
	return time.Now()
}

func (f *fleet) recordStart(task string, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, again := f.starts[task]; !again {
		f.starts[task] = at
	}
}

// startOf returns when a task was started, or zero.
func (f *fleet) startOf(task string) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.starts[task]
}

// countStarts returns how many tasks with a prefix were started.
func (f *fleet) countStarts(prefix string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range f.starts {
		if len(name) > len(prefix) && name[:len(prefix)] == prefix {
			n++
		}
	}
	return n
}

func (f *fleet) recordError(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var busy busyError
	if !errors.As(err, &busy) && len(f.errors) < 20 {
		f.errors[err.Error()]++
	}
}

func (f *fleet) readErrors() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprint(f.errors)
}

// idleRobot returns a random robot that is registered and has no task, or nil if a thousand tries find
// none.
func (f *fleet) idleRobot() *robot {
	for range 1000 {
		if r := f.robots[rand.N(len(f.robots))]; r.isReady() {
			return r
		}
	}
	return nil
}

// flap breaks the connections of a share of the robots again and again until ctx ends: each comes back
// after the pause of the agent, and stays for 5 to 15 seconds.
func (f *fleet) flap(ctx context.Context, share float64) (wait func()) {
	var wg sync.WaitGroup
	for range int(share * float64(len(f.robots))) {
		r := f.robots[rand.N(len(f.robots))]
		r.setFlapping(true)
		wg.Go(func() {
			defer r.setFlapping(false)
			for {
				select {
				case <-ctx.Done():
					return
				case <-time.After(5*time.Second + rand.N(10*time.Second)):
					r.breakConnection()
				}
			}
		})
	}
	return wg.Wait
}

func (r *robot) setFlapping(is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isFlapping = is
}

// breakConnection closes the connection, which run notices.
func (r *robot) breakConnection() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil {
		_ = r.conn.(*tls.Conn).NetConn().Close()
	}
}

// newDevice returns what an agent reports about a small computer.
func newDevice(id string) *wire.DeviceInfo {
	boot := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return &wire.DeviceInfo{
		Hostname: id, BootTime: &boot, Uptime: 86400, Drivers: []string{"exec", "raw_exec"}, TaskUser: "k8s4r-task",
		Platform: &wire.Platform{OS: "linux", Arch: "arm64", Platform: "debian", PlatformFamily: "debian", PlatformVersion: "13", KernelVersion: "6.12.0-rpi", KernelArch: "aarch64"},
		CPU:      &wire.CPU{PhysicalCores: 4, LogicalCores: 4, ModelName: "Cortex-A76", Vendor: "ARM", MHz: 2400, UsagePercent: 12},
		Memory:   &wire.Memory{Total: 8 << 30, Available: 6 << 30, Used: 2 << 30, Free: 5 << 30, Cached: 1 << 30, UsagePercent: 25},
		Disks:    []wire.Disk{{Device: "/dev/mmcblk0p2", MountPoint: "/", FSType: "ext4", Total: 64 << 30, Used: 16 << 30, Free: 48 << 30, UsagePercent: 25}},
		NetworkInterfaces: []wire.NetworkInterface{
			{Name: "eth0", HardwareAddr: "02:00:00:00:00:01", Addresses: []string{"192.0.2.1/24", "2001:db8::1/64"}, MTU: 1500, Flags: []string{"up", "broadcast", "multicast"}},
			{Name: "wlan0", HardwareAddr: "02:00:00:00:00:02", Addresses: []string{"198.51.100.1/24"}, MTU: 1500, Flags: []string{"up", "broadcast", "multicast"}},
		},
		Isolation: &wire.Isolations{Available: []string{"cgroup", "mount", "network", "pid", "seccomp", "user"}},
	}
}
