package up

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/authority"
	"k8s4r.io/k8s4r/internal/bridge"
	"k8s4r.io/k8s4r/internal/broker"
	"k8s4r.io/k8s4r/internal/jointoken"
	"k8s4r.io/k8s4r/internal/server"
	"k8s4r.io/k8s4r/internal/trust"
	"k8s4r.io/k8s4r/standalone/internal/datadir"
)

// secureBroker has robots prove themselves to the broker, if there is a server
// here that knows them.
func (s *system) secureBroker(cfg *broker.Config) (err error) {
	s.sayWhatIsOpen()
	if !s.opts.trusts() {
		return nil
	}
	if s.authority, err = authority.Make(s.dir.Join("pki", "robots")); err != nil {
		return err
	}
	s.authority.SetRobotLife(s.opts.certificates)
	s.registry = trust.NewRegistry(trust.Config{AllowLegacy: s.opts.allowLegacy, AllowAnonymous: s.opts.allowAnonymous})
	cfg.Authority, cfg.Refused = s.registry, s.registry.Refused
	cfg.TLSListen, cfg.TLS = s.opts.mqttsListen(), s.authority.MQTT(s.hosts()...)
	return nil
}

// sayWhatIsOpen tells the user what a flag costs.
func (s *system) sayWhatIsOpen() {
	if s.opts.externalBroker().PlaintextBroker() {
		s.terminal.Warn("--allow-plaintext-broker: whoever is on the way to the broker can run commands on robots, and speak for any of them", "broker", s.opts.mqttURL)
	}
	if s.opts.allowLegacy {
		s.terminal.Warn("--allow-legacy-agents: agents of the document prove nothing; whoever reaches the broker can speak for any of them", "address", s.opts.mqttAddress)
	}
	if s.opts.allowAnonymous {
		s.terminal.Warn("--allow-anonymous-agents: whoever reaches the broker can run commands on robots that prove nothing, and read what all are told", "address", s.opts.mqttAddress)
	}
}

// hosts are what robots call this machine.
func (s *system) hosts() []string {
	all := []string{"localhost", "127.0.0.1", "::1"}
	for _, host := range []string{s.opts.advertise, hostOf(s.opts.mqttsListen())} {
		if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) && !slices.Contains(all, host) {
			all = append(all, host)
		}
	}
	return all
}

func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}

// plainURL is where those find the broker who prove nothing. Empty: nowhere.
func (s *system) plainURL() string {
	if s.broker != nil {
		return s.broker.URL()
	}
	return s.opts.mqttURL
}

// mqttsURL is where robots find the broker who prove themselves, once it runs.
// Empty: nowhere.
func (s *system) mqttsURL() string {
	if s.registry == nil {
		return ""
	}
	u, err := url.Parse(s.broker.TLSURL())
	if err != nil || s.opts.advertise == "" {
		return s.broker.TLSURL()
	}
	u.Host = net.JoinHostPort(s.opts.advertise, u.Port())
	return u.String()
}

// joinURL is where robots join. Empty: nowhere.
func (s *system) joinURL() string {
	if s.registry == nil {
		return ""
	}
	at := s.logs.Addr().(*net.TCPAddr)
	host := "127.0.0.1"
	switch {
	case s.opts.advertise != "":
		host = s.opts.advertise
	case !at.IP.IsUnspecified():
		host = at.IP.String()
	}
	return "https://" + net.JoinHostPort(host, strconv.Itoa(at.Port))
}

// bridgeConfig joins the server to the broker and to its authority.
func (s *system) bridgeConfig() bridge.Config {
	c := bridge.Config{
		RobotNamespace: s.opts.robotNamespace, OfflineAfter: s.opts.offlineAfter, MQTTURL: s.plainURL(),
		AllowLegacy: s.opts.allowLegacy, AllowAnonymous: s.opts.allowAnonymous, AllowPlaintext: s.opts.allowPlaintext,
	}
	if s.registry != nil {
		c.MQTTURL, c.TLS = s.broker.TLSURL(), s.authority.ServerTLS()
	}
	return c
}

func (s *system) joinConfig() server.JoinConfig {
	if s.registry == nil {
		return server.JoinConfig{}
	}
	return server.JoinConfig{Authority: s.authority, MQTTURL: s.mqttsURL}
}

// robotFlags are how the robots of this machine find it: they join as all others
// do, with a token that is for them alone.
func (s *system) robotFlags(ctx context.Context) ([]string, error) {
	if s.registry == nil {
		return []string{"--mqtt-url=" + s.plainURL()}, nil
	}
	file := s.dir.Join("pki", "robot-token")
	if err := s.writeToken(ctx, file); err != nil {
		return nil, fmt.Errorf("token of the robots of this machine: %w", err)
	}
	local := url.URL{Scheme: "https", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.logs.Addr().(*net.TCPAddr).Port))}
	return []string{
		"--server=" + local.String(), "--mqtt-url=" + s.broker.TLSURL(),
		"--ca-file=" + s.dir.Join("pki", "robots", "ca.crt"), "--token-file=" + file,
	}, nil
}

// tokenLife outlasts the start of any number of robots.
const tokenLife = time.Hour

// writeToken makes a token, unless all robots have joined.
func (s *system) writeToken(ctx context.Context, file string) error {
	if s.haveJoined(file) {
		return nil
	}
	n := len(s.opts.robotIDs())
	token, text := jointoken.New(jointoken.Token{
		Expires: time.Now().Add(tokenLife), Uses: n, Robots: "robot-*", Namespace: s.opts.robotNamespace,
	})
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	c, err := client.New(s.client, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	if err := c.Create(ctx, token.Secret(systemNamespace)); err != nil {
		return err
	}
	return datadir.WriteFile(file, []byte(text+"\n"))
}

// haveJoined tells whether there was a token, and each robot has used it.
func (s *system) haveJoined(tokenFile string) bool {
	files := []string{tokenFile}
	for _, id := range s.opts.robotIDs() {
		files = append(files, s.dir.Join("robots", id, "identity", "certificate.pem"))
	}
	return !slices.ContainsFunc(files, func(f string) bool { _, err := os.Stat(f); return err != nil })
}
