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
	"k8s4r.io/k8s4r/internal/authority"
	"k8s4r.io/k8s4r/internal/bridge"
	"k8s4r.io/k8s4r/internal/program"
	"k8s4r.io/k8s4r/internal/tracing"
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

// minCertificateLife leaves a robot the time to renew.
const minCertificateLife = 5 * time.Second

// noArchive for --archive has nothing kept, and nothing wait for an archive.
const noArchive = "none"

// maxRobots bounds --robots: each is a process on this machine.
const maxRobots = 1000

type options struct {
	dataDir        string
	bindAddress    string
	securePort     int
	kubeconfig     string // empty: the embedded control plane
	mqttAddress    string
	mqttURL        string // empty: the embedded broker
	mqttsAddress   string // empty: as advertise says
	advertise      string // empty: robots of this machine only
	allowLegacy    bool
	allowAnonymous bool
	allowPlaintext bool
	certificates   time.Duration
	metricsAddress string // empty: no metrics
	tracing        tracing.Config
	logsAddress    string
	webhookAddress string
	consoleAddress string
	publishEvents  bool // to the broker
	robots         int
	robotNamespace string
	nodeCapacity   map[string]string
	podRange       string
	offlineAfter   time.Duration
	controllers    []string
	archive        string // empty: a file of the data directory
	retention      archive.Retention
	without        []string
}

func (o *options) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.dataDir, "data-dir", DefaultDataDir(), "directory that holds everything: objects, keys, logs and the state of the robots")
	f.StringVar(&o.bindAddress, "bind-address", "127.0.0.1", "IP address that the API server listens on")
	f.IntVar(&o.securePort, "secure-port", 6443, "port of the API server; 0 picks a free one")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "use the cluster of this kubeconfig instead of the embedded API server; K8s4r must not be deployed there as well")
	f.StringVar(&o.advertise, "advertise-address", "", "IP address or name by which robots of other machines reach this one; empty: only robots of this machine join")
	f.StringVar(&o.mqttsAddress, "mqtts-address", "", "address that the MQTT broker listens on for robots that prove who they are; port 0 picks a free one; empty: 127.0.0.1:8883, with --advertise-address :8883")
	f.StringVar(&o.mqttAddress, "mqtt-address", "127.0.0.1:1883", "address without TLS that the MQTT broker listens on for those of --allow-legacy-agents and --allow-anonymous-agents; port 0 picks a free one")
	f.BoolVar(&o.allowLegacy, "allow-legacy-agents", false, "let in the document's own agents, which prove nothing: whoever reaches --mqtt-address can speak for any of them")
	f.BoolVar(&o.allowAnonymous, "allow-anonymous-agents", false, "let everybody in at --mqtt-address: whoever reaches it can run commands on all robots that prove nothing, and read what all are told")
	f.BoolVar(&o.allowPlaintext, "allow-plaintext-broker", false, "speak to a broker of --mqtt-url on another machine without TLS: whoever is on the way there can run commands on robots, and speak for any of them")
	f.DurationVar(&o.certificates, "robot-certificate-life", authority.DefaultRobotLife, "how long a robot's certificate is good for; the robot renews it when two thirds are over")
	f.StringVar(&o.mqttURL, "mqtt-url", "", "use the broker at this URL (mqtts://host:port) instead of the embedded one; without TLS it must be on this machine, or see --allow-plaintext-broker")
	f.StringVar(&o.metricsAddress, "metrics-address", "127.0.0.1:0", "address that serves Prometheus metrics; port 0 picks a free one; empty: none")
	o.tracing.AddFlags(f)
	f.StringVar(&o.logsAddress, "logs-address", "", "address that serves the logs of tasks and at which robots join; port 0 picks a free one; empty: 127.0.0.1:0, with --advertise-address :8443")
	f.StringVar(&o.webhookAddress, "webhook-address", "127.0.0.1:0", "address at which the API server has workflows judged; port 0 picks a free one")
	f.StringVar(&o.consoleAddress, "console-address", "127.0.0.1:8800", "address on loopback that serves the console to browsers of this machine; port 0 picks a free one")
	f.BoolVar(&o.publishEvents, "publish-events", false, "tell what happens at the MQTT broker too, on topics k8s4r/events/...")
	f.IntVar(&o.robots, "robots", 3, "number of robots to run on this machine")
	f.StringVar(&o.robotNamespace, "robot-namespace", "default", "namespace in which robots register")
	f.StringToStringVar(&o.nodeCapacity, "node-capacity", nil, "what the node of this machine says that it has, instead of what it has, such as cpu=8,memory=32Gi,nvidia.com/gpu=1")
	f.StringVar(&o.podRange, "pod-range", "10.244.77.0/24", "IPv4 range out of which pods get addresses of this machine, with root")
	f.DurationVar(&o.offlineAfter, "offline-after", 5*time.Minute, "how long a robot may be silent before it is Offline. Less than three heartbeats, 90s, calls robots lost that are not")
	f.StringSliceVar(&o.controllers, "controllers", []string{"*"}, "controllers of the manager to run: * is all, name is one, -name is all but this one")
	f.StringVar(&o.archive, "archive", "", "archive that keeps what has ended: sqlite:PATH, postgres://USER@HOST/DATABASE, or "+noArchive+"; empty: history.db in the data directory")
	f.DurationVar(&o.retention.Age, "archive-age", 0, "how long the archive keeps what has ended, such as 2160h; 0 is for ever")
	f.Int64Var(&o.retention.Bytes, "archive-bytes", 0, "how many bytes the archive keeps; what ended first goes; 0 is without limit")
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
	case part == partNode: // another cluster has nodes of its own, and cannot reach ours
		return o.embedsCluster()
	}
	return true
}

// trusts tells whether the embedded broker is to tell robots apart: it takes the
// server of this process to know them.
func (o *options) trusts() bool { return o.runs(partBroker) && o.runs(partServer) }

// listensPlain tells whether the broker takes connections without TLS.
func (o *options) listensPlain() bool { return o.allowLegacy || o.allowAnonymous }

// forRobots is where something listens that robots of other machines may need.
func (o *options) forRobots(given, port string, local string) string {
	switch {
	case given != "":
		return given
	case o.advertise != "":
		return ":" + port
	}
	return net.JoinHostPort("127.0.0.1", local)
}

func (o *options) mqttsListen() string { return o.forRobots(o.mqttsAddress, "8883", "8883") }
func (o *options) logsListen() string  { return o.forRobots(o.logsAddress, "8443", "0") }

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

// archiveAddress is where what has ended is kept. Empty: nowhere.
func (o *options) archiveAddress() string {
	switch o.archive {
	case "":
		return "sqlite:" + filepath.Join(o.dataDir, "history.db")
	case noArchive:
		return ""
	}
	return o.archive
}

func (o *options) checkArchive() error {
	if o.retention.Age < 0 || o.retention.Bytes < 0 {
		return fmt.Errorf("--archive-age=%s --archive-bytes=%d: must be 0, for no bound, or more", o.retention.Age, o.retention.Bytes)
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
		o.validateParts(),
		o.validateAddresses(),
		check(o.dataDir != "", "--data-dir is empty"),
		check(o.robots >= 0 && o.robots <= maxRobots, "--robots=%d: must be from 0 to %d", o.robots, maxRobots),
		check(o.robotNamespace != "", "--robot-namespace is empty"),
		o.validateNode(),
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
	errs = append(errs, check(o.runs(partServer) || !o.runs(partBroker) || o.allowAnonymous,
		"--without=server: the broker cannot tell robots apart without it; add --allow-anonymous-agents, or leave the broker out too"))
	errs = append(errs, check(o.trusts() || o.allowAnonymous || !o.runs(partRobots),
		"--mqtt-url: the robots of this machine prove nothing to a broker that is not ours; add --allow-anonymous-agents, or --robots=0"))
	if o.mqttURL != "" && o.runs(partServer) {
		if err := o.externalBroker().CheckBroker(); err != nil {
			errs = append(errs, fmt.Errorf("--mqtt-url: %w", err))
		}
	}
	return errors.Join(errs...)
}

// externalBroker is how the server speaks to a broker that is not ours.
func (o *options) externalBroker() bridge.Config {
	return bridge.Config{MQTTURL: o.mqttURL, AllowPlaintext: o.allowPlaintext}
}

func (o *options) validateAddresses() error {
	return errors.Join(
		check(net.ParseIP(o.bindAddress) != nil, "--bind-address=%s: must be an IP address", o.bindAddress),
		check(o.securePort >= 0 && o.securePort <= 65535, "--secure-port=%d: must be from 0 to 65535", o.securePort),
		checkHostPort("mqtt-address", o.mqttAddress),
		checkHostPort("mqtts-address", o.mqttsListen()),
		check(o.certificates >= minCertificateLife, "--robot-certificate-life=%s: must be at least %s", o.certificates, minCertificateLife),
		checkHostPort("metrics-address", o.metricsAddress),
		o.tracing.Validate(),
		checkHostPort("logs-address", o.logsListen()),
		checkHostPort("webhook-address", o.webhookAddress),
		checkHostPort("console-address", o.consoleAddress),
		check(!o.runs(partConsole) || program.Loopback(o.consoleAddress),
			"--console-address=%s: must be on loopback, for it speaks HTTP; browsers of other machines reach it through ssh -L, or a k8s4r-console of its own with a certificate", o.consoleAddress),
		check(!o.publishEvents || o.runs(partConsole) && o.mqttURL == "", "--publish-events: needs the console and the broker of this process"),
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
