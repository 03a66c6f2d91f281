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

	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/console"
	"k8s4r.io/k8s4r/internal/controllers/retention"
	"k8s4r.io/k8s4r/internal/platform/program"
	"k8s4r.io/k8s4r/internal/platform/tracing"
	"k8s4r.io/k8s4r/internal/server/ca"
	"k8s4r.io/k8s4r/internal/server/gateway"
	"k8s4r.io/k8s4r/standalone/internal/controlplane"
)

// The parts that --without can leave out.
const (
	partManager = "manager"
	partServer  = "server"
	partBroker  = "broker"
	partRobots  = "robots"
	partNode    = "node"
	partConsole = "console"
)

var parts = []string{partManager, partServer, partBroker, partRobots, partNode, partConsole}

// The limits of the lifetimes of certificates.
const (
	// minCertificateDuration leaves a robot enough time to renew its certificate.
	minCertificateDuration = 5 * time.Second
	// minCertificatesPerCA lets each robot renew while the next CA is trusted and does not sign yet,
	// which is a quarter of the CA's lifetime.
	minCertificatesPerCA = 8
	// minClusterDuration is longer than a start on a slow machine.
	minClusterDuration = 30 * time.Second
	maxDuration        = 100 * 365 * 24 * time.Hour
)

// noArchive is the value of --archive without an archive: no history is kept, and no deletion waits
// for it.
const noArchive = "none"

// maxRobots is the limit of --robots: each is a process on this machine.
const maxRobots = 1000

type options struct {
	dataDir             string
	ephemeral           bool // the data directory is new and removed at the end
	bindAddress         string
	securePort          int
	kubeconfig          string // if empty, the embedded control plane
	mqttAddress         string
	mqttURL             string // if empty, the embedded broker
	mqttsAddress        string // if empty, derived from advertise
	advertise           string // if empty, robots on this machine only
	allowLegacy         bool
	allowAnonymous      bool
	allowPlaintext      bool
	certificates        time.Duration // of robots
	robotCA             time.Duration
	clusterCertificates time.Duration
	metricsAddress      string // if empty, no metrics
	profile             bool
	tracing             tracing.Config
	logsAddress         string
	plansAddress        string
	webhookAddress      string
	consoleAddress      string
	publicURL           string // of the console; if empty, none
	publishEvents       bool   // to the broker
	robots              int
	robotNamespace      string
	nodeCapacity        map[string]string
	podRange            string
	offlineAfter        time.Duration
	controllers         []string
	archive             string // if empty, a file in the data directory
	retention           archive.Retention
	finished            retention.Limits
	without             []string
}

func (o *options) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.dataDir, "data-dir", DefaultDataDir(), "directory for all data: objects, keys, logs and the state of the robots")
	f.BoolVar(&o.ephemeral, "ephemeral", false, "use a new data directory that is removed at the end, and free ports for all that no flag sets")
	f.StringVar(&o.bindAddress, "bind-address", "127.0.0.1", "IP address that the API server listens on")
	f.IntVar(&o.securePort, "secure-port", 6443, "port of the API server; 0 selects a free port")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of a cluster to use instead of the embedded API server; K8s4r must not be deployed there as well")
	f.StringVar(&o.advertise, "advertise-address", "", "IP address or host name by which robots on other machines reach this one; empty: only robots on this machine can join")
	f.StringVar(&o.mqttsAddress, "mqtts-address", "", "address that the MQTT broker listens on for robots with certificates; port 0 selects a free port; empty: 127.0.0.1:8883, or :8883 with --advertise-address")
	f.StringVar(&o.mqttAddress, "mqtt-address", "127.0.0.1:1883", "address without TLS that the MQTT broker listens on with --allow-legacy-agents or --allow-anonymous-agents; port 0 selects a free port")
	f.BoolVar(&o.allowLegacy, "allow-legacy-agents", false, "accept legacy agents, which are not authenticated: clients that reach --mqtt-address can act as any of them")
	f.BoolVar(&o.allowAnonymous, "allow-anonymous-agents", false, "accept clients without certificates at --mqtt-address: they can run commands on all robots that are not authenticated, and read the messages to all robots")
	f.BoolVar(&o.allowPlaintext, "allow-plaintext-broker", false, "connect to a broker on another machine (--mqtt-url) without TLS: attackers on the network can run commands on robots and act as any robot")
	f.DurationVar(&o.certificates, "robot-certificate-duration", ca.DefaultRobotLifetime, "how long a robot's certificate is valid; the robot renews it after two thirds of that time")
	f.DurationVar(&o.robotCA, "robot-ca-duration", ca.DefaultLifetime, "how long a CA of robots is valid that is created from now on; the next one replaces it when a quarter of that time is left, or 90 days")
	f.DurationVar(&o.clusterCertificates, "cluster-certificate-duration", controlplane.DefaultLifetime, "how long the certificates of the API server and its clients are valid; they are renewed when a third of that time is left")
	f.StringVar(&o.mqttURL, "mqtt-url", "", "URL of an MQTT broker to use instead of the embedded one (mqtts://host:port); a broker without TLS must be on this machine, unless --allow-plaintext-broker is set")
	f.StringVar(&o.metricsAddress, "metrics-address", "127.0.0.1:0", "address that serves Prometheus metrics; port 0 selects a free port; empty: none")
	f.BoolVar(&o.profile, "profile", false, "serve the profiles of Go's runtime to the user of this process, on a free port of 127.0.0.1")
	o.tracing.AddFlags(f)
	f.StringVar(&o.plansAddress, "plans-address", "", "address that serves the plan API; port 0 selects a free port; empty: 127.0.0.1:0, or :8444 with --advertise-address")
	f.StringVar(&o.logsAddress, "logs-address", "", "address that serves the log API and the join API; port 0 selects a free port; empty: 127.0.0.1:0, or :8443 with --advertise-address")
	f.StringVar(&o.webhookAddress, "webhook-address", "127.0.0.1:0", "address of the admission webhook that validates workflows; port 0 selects a free port")
	f.StringVar(&o.consoleAddress, "console-address", "127.0.0.1:8800", "loopback address that serves the console to browsers on this machine; port 0 selects a free port")
	f.StringVar(&o.publicURL, "public-url", "", "URL at which browsers open the console through a proxy on this machine that serves HTTPS, such as https://console.example.com; empty: they must use localhost or an IP address")
	f.BoolVar(&o.publishEvents, "publish-events", false, "publish events to the MQTT broker, on topics k8s4r/events/...")
	f.IntVar(&o.robots, "robots", 3, "number of robots to run on this machine")
	f.StringVar(&o.robotNamespace, "robot-namespace", "default", "namespace in which robots register")
	f.StringToStringVar(&o.nodeCapacity, "node-capacity", nil, "capacity that the node reports instead of that of this machine, such as cpu=8,memory=32Gi,nvidia.com/gpu=1")
	f.StringVar(&o.podRange, "pod-range", "10.244.77.0/24", "IPv4 range from which pods get addresses on this machine; used only as root")
	f.DurationVar(&o.offlineAfter, "offline-after", 5*time.Minute, "how long a robot may send no heartbeat before it is Offline; less than three heartbeat intervals (90s) marks connected robots Offline")
	f.StringSliceVar(&o.controllers, "controllers", []string{"*"}, "controllers of the manager to run: * selects all, NAME one, -NAME excludes one")
	f.StringVar(&o.archive, "archive", "", "archive of ended objects: sqlite:PATH, postgres://USER@HOST/DATABASE, or "+noArchive+"; empty: history.db in the data directory")
	f.DurationVar(&o.retention.Age, "archive-max-age", 0, "how long the archive keeps ended objects, such as 2160h; 0: forever")
	f.Int64Var(&o.retention.Bytes, "archive-max-bytes", 0, "size limit of the archive in bytes; the objects that ended first are removed; 0: no limit")
	f.DurationVar(&o.finished.Age, "finished-retention", retention.DefaultAge, "how long after their end jobs, flows and vcjobs without ttlSecondsAfterFinished are deleted; 0, the default with --archive=none or --kubeconfig: they are kept; replaced in a namespace by its annotation robot.k8s4r.io/finished-retention")
	f.IntVar(&o.finished.Count, "finished-max-objects", retention.DefaultCount, "how many of them a namespace keeps until then; of more, those that ended first are deleted; 0: no limit; replaced in a namespace by its annotation robot.k8s4r.io/finished-max-objects")
	f.StringSliceVar(&o.without, "without", nil, "parts to leave out: "+strings.Join(parts, ", "))
}

// DefaultDataDir returns $HOME/.k8s4r, or .k8s4r in the working directory if there is no home
// directory.
func DefaultDataDir() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return ".k8s4r"
	}
	return filepath.Join(home, ".k8s4r")
}

// includesPart reports whether the part runs in this process or as its child.
func (o *options) includesPart(part string) bool {
	switch {
	case slices.Contains(o.without, part):
		return false
	case part == partBroker:
		return o.mqttURL == ""
	case part == partRobots:
		return o.robots > 0
	case part == partNode: // an external cluster has its own nodes and cannot reach ours
		return o.embedsCluster()
	}
	return true
}

// authenticatesRobots reports whether the embedded broker authenticates robots, which needs the server in
// this process.
func (o *options) authenticatesRobots() bool {
	return o.includesPart(partBroker) && o.includesPart(partServer)
}

// listensPlain reports whether the broker accepts connections without TLS.
func (o *options) listensPlain() bool { return o.allowLegacy || o.allowAnonymous }

// robotAddress returns the listen address of a port that robots on other machines may need.
func (o *options) robotAddress(given, port string, local string) string {
	switch {
	case given != "":
		return given
	case o.advertise != "":
		return ":" + port
	}
	return net.JoinHostPort("127.0.0.1", local)
}

func (o *options) mqttsListenAddress() string { return o.robotAddress(o.mqttsAddress, "8883", "8883") }
func (o *options) logsListenAddress() string  { return o.robotAddress(o.logsAddress, "8443", "0") }
func (o *options) plansListenAddress() string { return o.robotAddress(o.plansAddress, "8444", "0") }

func (o *options) embedsCluster() bool { return o.kubeconfig == "" }

func (o *options) apiAddress() string {
	return net.JoinHostPort(o.bindAddress, strconv.Itoa(o.securePort))
}

// robotIDs returns the ids of the local robots.
func (o *options) robotIDs() []string {
	if !o.includesPart(partRobots) {
		return []string{}
	}
	ids := make([]string, o.robots)
	for i := range ids {
		ids[i] = fmt.Sprintf("robot-%d", i+1)
	}
	return ids
}

// archiveAddress returns the address of the archive. If there is none, it is empty.
func (o *options) archiveAddress() string {
	switch o.archive {
	case "":
		return "sqlite:" + filepath.Join(o.dataDir, "history.db")
	case noArchive:
		return ""
	}
	return o.archive
}

// completeRetention switches the default of --finished-retention off without an archive, because the
// history would be lost, and in an external cluster, whose objects others may need.
func (o *options) completeRetention(f *pflag.FlagSet) {
	if !f.Changed("finished-retention") && (o.archiveAddress() == "" || !o.embedsCluster()) {
		o.finished.Age = 0
	}
}

func (o *options) checkArchive() error {
	if o.retention.Age < 0 || o.retention.Bytes < 0 {
		return fmt.Errorf("--archive-max-age=%s --archive-max-bytes=%d: must be 0 (no limit) or more", o.retention.Age, o.retention.Bytes)
	}
	address := o.archiveAddress()
	if address == "" {
		return nil
	}
	store, err := archive.Open(address)
	if err != nil {
		return fmt.Errorf("--archive: %w", err)
	}
	return store.Close()
}

func (o *options) validate() error {
	_, environment := o.managerConfig()
	return errors.Join(
		environment,
		o.checkArchive(),
		o.finished.Validate(),
		o.validateParts(),
		o.validateAddresses(),
		errorUnless(o.dataDir != "", "--data-dir: must not be empty"),
		errorUnless(o.robots >= 0 && o.robots <= maxRobots, "--robots=%d: must be from 0 to %d", o.robots, maxRobots),
		errorUnless(o.robotNamespace != "", "--robot-namespace: must not be empty"),
		o.validateNode(),
		errorUnless(o.offlineAfter > 0, "--offline-after=%s: must be positive", o.offlineAfter),
	)
}

func (o *options) validateParts() error {
	var errs []error
	for _, part := range o.without {
		errs = append(errs, errorUnless(slices.Contains(parts, part),
			"--without=%s: no such part; the parts are %s", part, strings.Join(parts, ", ")))
	}
	speaks := o.includesPart(partServer) || o.includesPart(partRobots)
	errs = append(errs, errorUnless(!speaks || o.includesPart(partBroker) || o.mqttURL != "",
		"--without=broker: server and robots need a broker; set --mqtt-url, or leave them out as well"))
	errs = append(errs, errorUnless(o.includesPart(partServer) || !o.includesPart(partBroker) || o.allowAnonymous,
		"--without=server: the broker cannot authenticate robots without the server; add --allow-anonymous-agents, or leave the broker out as well"))
	errs = append(errs, errorUnless(o.authenticatesRobots() || o.allowAnonymous || !o.includesPart(partRobots),
		"--mqtt-url: robots on this machine have no certificates for an external broker; add --allow-anonymous-agents, or set --robots=0"))
	if o.mqttURL != "" && o.includesPart(partServer) {
		if err := o.externalBroker().ValidateBroker(); err != nil {
			errs = append(errs, fmt.Errorf("--mqtt-url: %w", err))
		}
	}
	return errors.Join(errs...)
}

// externalBroker returns the server's configuration for a broker that is not embedded.
func (o *options) externalBroker() gateway.Config {
	return gateway.Config{MQTTURL: o.mqttURL, AllowPlaintext: o.allowPlaintext}
}

func (o *options) validateAddresses() error {
	return errors.Join(
		errorUnless(net.ParseIP(o.bindAddress) != nil, "--bind-address=%s: must be an IP address", o.bindAddress),
		errorUnless(o.securePort >= 0 && o.securePort <= 65535, "--secure-port=%d: must be from 0 to 65535", o.securePort),
		checkHostPort("mqtt-address", o.mqttAddress),
		checkHostPort("mqtts-address", o.mqttsListenAddress()),
		o.validateLifetimes(),
		checkHostPort("metrics-address", o.metricsAddress),
		o.tracing.Validate(),
		checkHostPort("logs-address", o.logsListenAddress()),
		checkHostPort("webhook-address", o.webhookAddress),
		checkHostPort("console-address", o.consoleAddress),
		errorUnless(!o.includesPart(partConsole) || program.IsLoopback(o.consoleAddress),
			"--console-address=%s: must be a loopback address, because the console is served over HTTP; for browsers on other machines use ssh -L, or a proxy that serves HTTPS and --public-url", o.consoleAddress),
		o.validatePublicURL(),
		errorUnless(!o.publishEvents || o.includesPart(partConsole) && o.mqttURL == "", "--publish-events: needs the console and the embedded broker"),
	)
}

func (o *options) validatePublicURL() error {
	if _, err := console.ParsePublicURL(o.publicURL); err != nil {
		return fmt.Errorf("--public-url=%s: %w", o.publicURL, err)
	}
	return errorUnless(o.publicURL == "" || o.includesPart(partConsole), "--public-url: is of the console, which --without leaves out")
}

func (o *options) validateLifetimes() error {
	return errors.Join(
		errorUnless(o.certificates >= minCertificateDuration, "--robot-certificate-duration=%s: must be at least %s", o.certificates, minCertificateDuration),
		errorUnless(o.robotCA/minCertificatesPerCA >= o.certificates && o.robotCA <= maxDuration,
			"--robot-ca-duration=%s: must be at least %d times --robot-certificate-duration, which is %s, and at most %s", o.robotCA, minCertificatesPerCA, o.certificates, maxDuration),
		errorUnless(o.clusterCertificates >= minClusterDuration && o.clusterCertificates <= maxDuration,
			"--cluster-certificate-duration=%s: must be from %s to %s", o.clusterCertificates, minClusterDuration, maxDuration),
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
	return errorUnless(err == nil, "--%s=%s: must be host:port", flag, address)
}

func errorUnless(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}
