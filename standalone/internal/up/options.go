package up

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// The parts that --without can leave out.
const (
	partManager = "manager"
	partServer  = "server"
	partBroker  = "broker"
	partRobots  = "robots"
)

var parts = []string{partManager, partServer, partBroker, partRobots}

// maxRobots bounds --robots: each is a process on this machine.
const maxRobots = 1000

type options struct {
	dataDir        string
	bindAddress    string
	securePort     int
	kubeconfig     string // empty: the embedded control plane
	mqttAddress    string
	mqttURL        string // empty: the embedded broker
	metricsAddress string // empty: no metrics
	robots         int
	robotNamespace string
	offlineAfter   time.Duration
	controllers    []string
	without        []string
}

func (o *options) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.dataDir, "data-dir", DefaultDataDir(), "directory that holds everything: objects, keys, logs and the state of the robots")
	f.StringVar(&o.bindAddress, "bind-address", "127.0.0.1", "IP address that the API server listens on")
	f.IntVar(&o.securePort, "secure-port", 6443, "port of the API server; 0 picks a free one")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "use the cluster of this kubeconfig instead of the embedded API server; K8s4r must not be deployed there as well")
	f.StringVar(&o.mqttAddress, "mqtt-address", "127.0.0.1:1883", "address that the MQTT broker listens on; port 0 picks a free one")
	f.StringVar(&o.mqttURL, "mqtt-url", "", "use the broker at this URL (mqtt://host:port) instead of the embedded one")
	f.StringVar(&o.metricsAddress, "metrics-address", "127.0.0.1:0", "address that serves Prometheus metrics; port 0 picks a free one; empty: none")
	f.IntVar(&o.robots, "robots", 3, "number of robots to run on this machine")
	f.StringVar(&o.robotNamespace, "robot-namespace", "default", "namespace in which robots register")
	f.DurationVar(&o.offlineAfter, "offline-after", 5*time.Minute, "how long a robot may be silent before it is Offline. Less than three heartbeats, 90s, calls robots lost that are not")
	f.StringSliceVar(&o.controllers, "controllers", []string{"*"}, "controllers of the manager to run: * is all, name is one, -name is all but this one")
	f.StringSliceVar(&o.without, "without", nil, "parts to leave out: "+strings.Join(parts, ", "))
}

// DefaultDataDir is $HOME/.k8s4r, or .k8s4r here for a user without a home.
func DefaultDataDir() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return ".k8s4r"
	}
	return filepath.Join(home, ".k8s4r")
}

// runs reports whether this part is to run in or under this process.
func (o *options) runs(part string) bool {
	switch {
	case slices.Contains(o.without, part):
		return false
	case part == partBroker:
		return o.mqttURL == ""
	case part == partRobots:
		return o.robots > 0
	}
	return true
}

func (o *options) embedsCluster() bool { return o.kubeconfig == "" }

func (o *options) apiAddress() string {
	return net.JoinHostPort(o.bindAddress, strconv.Itoa(o.securePort))
}

// robotIDs are the names of the local robots.
func (o *options) robotIDs() []string {
	if !o.runs(partRobots) {
		return []string{}
	}
	ids := make([]string, o.robots)
	for i := range ids {
		ids[i] = fmt.Sprintf("robot-%d", i+1)
	}
	return ids
}

func (o *options) validate() error {
	return errors.Join(
		o.validateParts(),
		o.validateAddresses(),
		check(o.dataDir != "", "--data-dir is empty"),
		check(o.robots >= 0 && o.robots <= maxRobots, "--robots=%d: must be from 0 to %d", o.robots, maxRobots),
		check(o.robotNamespace != "", "--robot-namespace is empty"),
		check(o.offlineAfter > 0, "--offline-after=%s: must be more than nothing", o.offlineAfter),
	)
}

func (o *options) validateParts() error {
	var errs []error
	for _, part := range o.without {
		errs = append(errs, check(slices.Contains(parts, part),
			"--without=%s: no such part; there are %s", part, strings.Join(parts, ", ")))
	}
	speaks := o.runs(partServer) || o.runs(partRobots)
	errs = append(errs, check(!speaks || o.runs(partBroker) || o.mqttURL != "",
		"--without=broker: server and robots need a broker; name it with --mqtt-url or leave them out too"))
	return errors.Join(errs...)
}

func (o *options) validateAddresses() error {
	return errors.Join(
		check(net.ParseIP(o.bindAddress) != nil, "--bind-address=%s: must be an IP address", o.bindAddress),
		check(o.securePort >= 0 && o.securePort <= 65535, "--secure-port=%d: must be from 0 to 65535", o.securePort),
		checkHostPort("mqtt-address", o.mqttAddress),
		checkHostPort("metrics-address", o.metricsAddress),
	)
}

func checkHostPort(flag, address string) error {
	if flag == "metrics-address" && address == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	return check(err == nil, "--%s=%s: must be host:port", flag, address)
}

func check(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}
