package up

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"k8s4r.io/k8s4r/config"
	"k8s4r.io/k8s4r/internal/broker"
	"k8s4r.io/k8s4r/internal/console"
	"k8s4r.io/k8s4r/internal/platform/certexpiry"
	"k8s4r.io/k8s4r/internal/platform/restore"
	"k8s4r.io/k8s4r/internal/server/brokerauth"
	"k8s4r.io/k8s4r/internal/server/ca"
	"k8s4r.io/k8s4r/standalone/internal/component"
	"k8s4r.io/k8s4r/standalone/internal/controlplane"
	"k8s4r.io/k8s4r/standalone/internal/datadir"
	"k8s4r.io/k8s4r/standalone/internal/install"
	"k8s4r.io/k8s4r/standalone/internal/memory"
	"k8s4r.io/k8s4r/standalone/internal/port"
)

// system has all parts that the options select, in the order of their start.
type system struct {
	dir   *datadir.Dir
	opts  options
	group component.Group

	log      *slog.Logger // of K8s4r's parts
	terminal *slog.Logger // also shown to the user

	kubeconfig   string
	client       *rest.Config
	certificates certexpiry.Tracker
	broker       *broker.Broker // nil if external
	authority    *ca.Authority
	registry     *brokerauth.Registry // nil if the broker accepts all clients
	api          net.Listener         // nil if the cluster is external
	metrics      net.Listener         // nil if disabled
	profile      net.Listener         // nil if disabled
	probes       probes
	logs         net.Listener  // of the log API; nil without a server
	plans        net.Listener  // of the plan API; nil without a manager
	webhook      net.Listener  // of admission; nil without a manager
	console      net.Listener  // nil without a console
	codes        console.Codes // with which browsers sign in
	restore      *restore.Gate // nil if the data was never restored
	backupAt     time.Time     // of the backup that was restored last
	kubelet      controlplane.Kubelet
	kubeletPort  net.Listener // nil without a node
}

// assembleSystem opens or checks every port and creates the parts. It starts none of them.
func assembleSystem(dir *datadir.Dir, o options, stderr io.Writer) (*system, error) {
	s := &system{dir: dir, opts: o}
	if err := s.openLogs(stderr); err != nil {
		return nil, err
	}
	if err := s.openRestore(); err != nil {
		return nil, err
	}
	if err := s.openPorts(); err != nil {
		return nil, err
	}
	s.addProfile()
	s.group.Add("memory", component.NewBackground(memory.Run, nil))
	if err := s.addCluster(); err != nil {
		return nil, err
	}
	if err := s.addBroker(); err != nil {
		return nil, err
	}
	if err := metrics.Registry.Register(&s.certificates); err != nil {
		return nil, err
	}
	s.addManager()
	s.addConsole()
	return s, errors.Join(s.addNode(), s.addRobots())
}

// openPorts opens or checks all ports before anything starts, and reports all that are in use.
func (s *system) openPorts() error {
	var errs []error
	open := func(l *net.Listener, address, flag string) {
		var err error
		*l, err = port.Listen(address, flag)
		errs = append(errs, err)
	}
	if s.opts.embedsCluster() {
		open(&s.api, s.opts.apiAddress(), "secure-port")
	}
	if s.opts.includesPart(partBroker) && s.opts.listensPlain() {
		errs = append(errs, port.Check(s.opts.mqttAddress, "mqtt-address"))
	}
	if s.opts.authenticatesRobots() {
		errs = append(errs, port.Check(s.opts.mqttsListenAddress(), "mqtts-address"))
	}
	if s.opts.metricsAddress != "" {
		open(&s.metrics, s.opts.metricsAddress, "metrics-address")
	}
	if s.opts.profile {
		open(&s.profile, "127.0.0.1:0", "profile")
	}
	if s.opts.includesPart(partManager) {
		open(&s.webhook, s.opts.webhookAddress, "webhook-address")
		open(&s.plans, s.opts.plansListenAddress(), "plans-address")
	}
	if s.opts.includesPart(partServer) {
		open(&s.logs, s.opts.logsListenAddress(), "logs-address")
	}
	if s.opts.includesPart(partConsole) {
		open(&s.console, s.opts.consoleAddress, "console-address")
	}
	if s.opts.includesPart(partNode) {
		open(&s.kubeletPort, "127.0.0.1:0", "without=node")
	}
	return errors.Join(errs...)
}

func (s *system) addCluster() error {
	if s.opts.embedsCluster() {
		return s.embedCluster()
	}
	client, err := clientcmd.BuildConfigFromFlags("", s.opts.kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	client.QPS = -1
	path, err := filepath.Abs(s.opts.kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	s.kubeconfig, s.client = path, client
	s.group.Add("definitions", install.New(config.FS, client, s.warnUnchanged, install.FieldTracking))
	return nil
}

// warnUnchanged logs a definition of another program that is left unchanged.
func (s *system) warnUnchanged(what string) { s.terminal.Warn(what) }

func (s *system) embedCluster() error {
	cp, err := controlplane.New(s.controlPlaneConfig())
	if err != nil {
		return err
	}
	s.kubeconfig, s.client = cp.Kubeconfig, cp.Client
	s.group.Add("certificates", cp.Certificates)
	s.group.Add("etcd", cp.Etcd)
	s.group.Add("kube-apiserver", cp.APIServer)
	// Before the garbage collector: it discovers new kinds only twice a minute.
	s.group.Add("definitions", install.New(config.FS, cp.Client, s.warnUnchanged, "up/*.yaml"))
	if err := s.addActions(); err != nil {
		return err
	}
	s.group.Add("certificate expiry", newExpiryPublisher(cp.Client, &s.certificates, s.terminal))
	s.group.Add("restore", newHoldPublisher(cp.Client, s.restore, s.backupAt, s.terminal))
	s.group.Add("kube-controllers", cp.ControllerManager)
	s.kubelet = cp.Kubelet
	if s.opts.includesPart(partNode) {
		s.group.Add("kube-scheduler", cp.Scheduler)
	}
	return nil
}

func (s *system) addBroker() error {
	if s.metrics != nil {
		s.group.Add("metrics", newMetrics(s.metrics, &s.probes.Health))
	}
	if !s.opts.includesPart(partBroker) {
		return nil
	}
	cfg := broker.Config{Log: s.log}
	if s.opts.listensPlain() {
		cfg.Listen = s.opts.mqttAddress
	}
	if err := s.secureBroker(&cfg); err != nil {
		return err
	}
	s.broker = broker.New(cfg)
	s.group.Add("broker", s.broker)
	return nil
}

// currentState returns the state once everything is ready.
func (s *system) currentState() State {
	return State{
		PID:           os.Getpid(),
		DataDir:       s.dir.Path,
		Kubeconfig:    s.kubeconfig,
		Server:        s.client.Host,
		MQTTURL:       s.plainURL(),
		MQTTSURL:      s.mqttsURL(),
		JoinURL:       s.joinURL(),
		MetricsURL:    metricsURL(s.metrics),
		ProfileURL:    profileURL(s.profile),
		ConsoleURL:    s.consoleURL(),
		ConsoleSocket: s.consoleSocket(),
		Robots:        s.opts.robotIDs(),
		Node:          s.opts.nodeName(),
	}
}
