package up

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"k8s4r.io/k8s4r/config"
	"k8s4r.io/k8s4r/internal/authority"
	"k8s4r.io/k8s4r/internal/broker"
	"k8s4r.io/k8s4r/internal/console"
	"k8s4r.io/k8s4r/internal/trust"
	"k8s4r.io/k8s4r/standalone/internal/component"
	"k8s4r.io/k8s4r/standalone/internal/controlplane"
	"k8s4r.io/k8s4r/standalone/internal/datadir"
	"k8s4r.io/k8s4r/standalone/internal/install"
	"k8s4r.io/k8s4r/standalone/internal/port"
)

// system is all parts that the options ask for, in the order of their start.
type system struct {
	dir   *datadir.Dir
	opts  options
	group component.Group

	log      *slog.Logger // of K8s4r's own parts
	terminal *slog.Logger // for the user as well

	kubeconfig  string
	client      *rest.Config
	broker      *broker.Broker // nil: not here
	authority   *authority.Authority
	registry    *trust.Registry // nil: the broker lets everybody in
	api         net.Listener    // nil: another cluster
	metrics     net.Listener    // nil: none
	probes      probes
	logs        net.Listener  // of the log API; nil: no server here
	webhook     net.Listener  // of admission; nil: no manager here
	console     net.Listener  // nil: no console here
	codes       console.Codes // with which browsers sign in
	kubelet     controlplane.Kubelet
	kubeletPort net.Listener // nil: no node here
}

// assemble opens or checks every port and prepares the parts. It starts none.
func assemble(dir *datadir.Dir, o options, stderr io.Writer) (*system, error) {
	s := &system{dir: dir, opts: o}
	if err := s.openLogs(stderr); err != nil {
		return nil, err
	}
	if err := s.openPorts(); err != nil {
		return nil, err
	}
	if err := s.addCluster(); err != nil {
		return nil, err
	}
	if err := s.addBroker(); err != nil {
		return nil, err
	}
	s.addManager()
	return s, errors.Join(s.addConsole(), s.addNode(), s.addRobots())
}

// openPorts finds out about every port that is taken before anything starts,
// and about all of them at once.
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
	if s.opts.runs(partBroker) && s.opts.listensPlain() {
		errs = append(errs, port.Check(s.opts.mqttAddress, "mqtt-address"))
	}
	if s.opts.trusts() {
		errs = append(errs, port.Check(s.opts.mqttsListen(), "mqtts-address"))
	}
	if s.opts.metricsAddress != "" {
		open(&s.metrics, s.opts.metricsAddress, "metrics-address")
	}
	if s.opts.runs(partManager) {
		open(&s.webhook, s.opts.webhookAddress, "webhook-address")
	}
	if s.opts.runs(partServer) {
		open(&s.logs, s.opts.logsListen(), "logs-address")
	}
	if s.opts.runs(partConsole) {
		open(&s.console, s.opts.consoleAddress, "console-address")
	}
	if s.opts.runs(partNode) {
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
	s.group.Add("definitions", install.New(config.FS, client, s.sayForeign))
	return nil
}

// sayForeign tells the user what is left to somebody else.
func (s *system) sayForeign(what string) { s.terminal.Warn(what) }

func (s *system) embedCluster() error {
	cp, err := controlplane.New(controlplane.Config{Dir: s.dir.Path, Listener: s.api})
	if err != nil {
		return err
	}
	s.kubeconfig, s.client = cp.Kubeconfig, cp.Client
	s.group.Add("etcd", cp.Etcd)
	s.group.Add("kube-apiserver", cp.APIServer)
	// Before the garbage collector: it looks for new kinds but twice a minute.
	s.group.Add("definitions", install.New(config.FS, cp.Client, s.sayForeign))
	s.group.Add("kube-controllers", cp.ControllerManager)
	s.kubelet = cp.Kubelet
	if s.opts.runs(partNode) {
		s.group.Add("kube-scheduler", cp.Scheduler)
	}
	return nil
}

func (s *system) addBroker() error {
	if s.metrics != nil {
		s.group.Add("metrics", newMetrics(s.metrics, &s.probes.Health))
	}
	if !s.opts.runs(partBroker) {
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

// state is what is known once everything is ready.
func (s *system) state() State {
	return State{
		PID:        os.Getpid(),
		Kubeconfig: s.kubeconfig,
		Server:     s.client.Host,
		MQTTURL:    s.plainURL(),
		MQTTSURL:   s.mqttsURL(),
		JoinURL:    s.joinURL(),
		MetricsURL: metricsURL(s.metrics),
		ConsoleURL: s.consoleURL(),
		Robots:     s.opts.robotIDs(),
		Node:       s.opts.nodeName(),
	}
}
