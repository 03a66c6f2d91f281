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

	"k8s4r.io/k8s4r/internal/broker"
	"k8s4r.io/k8s4r/internal/platform/jointoken"
	"k8s4r.io/k8s4r/internal/protocol/keyfile"
	"k8s4r.io/k8s4r/internal/server"
	"k8s4r.io/k8s4r/internal/server/brokerauth"
	"k8s4r.io/k8s4r/internal/server/ca"
	"k8s4r.io/k8s4r/internal/server/gateway"
	"k8s4r.io/k8s4r/standalone/internal/install"
)

// secureBroker configures the broker to authenticate robots, if this process runs a server with
// their identities.
func (s *system) secureBroker(cfg *broker.Config) (err error) {
	s.warnInsecureFlags()
	if !s.opts.authenticatesRobots() {
		return nil
	}
	if s.authority, err = ca.OpenManaged(s.dir.Join(robotCADir...), s.opts.robotCA); err != nil {
		return err
	}
	s.authority.SetRobotLifetime(s.opts.certificates)
	s.registry = brokerauth.NewRegistry(brokerauth.Config{AllowLegacy: s.opts.allowLegacy, AllowAnonymous: s.opts.allowAnonymous})
	cfg.Authenticator, cfg.OnRefused, cfg.OnThrottled = s.registry, s.registry.ReportRefusal, s.registry.ReportThrottled
	cfg.TLSListen, cfg.TLS = s.opts.mqttsListenAddress(), s.authority.BrokerTLSConfig(s.listHosts()...)
	return nil
}

// warnInsecureFlags logs the risk of each flag that allows insecure connections.
func (s *system) warnInsecureFlags() {
	if s.opts.externalBroker().IsPlaintextBroker() {
		s.terminal.Warn("--allow-plaintext-broker: attackers on the network between this machine and the broker can run commands on robots and act as any robot", "broker", s.opts.mqttURL)
	}
	if s.opts.allowLegacy {
		s.terminal.Warn("--allow-legacy-agents: legacy agents are not authenticated; clients that reach the broker can act as any of them", "address", s.opts.mqttAddress)
	}
	if s.opts.allowAnonymous {
		s.terminal.Warn("--allow-anonymous-agents: clients that reach the broker can run commands on robots that are not authenticated, and read the messages to all robots", "address", s.opts.mqttAddress)
	}
}

// listHosts returns the names and addresses by which robots reach this machine.
func (s *system) listHosts() []string {
	all := []string{"localhost", "127.0.0.1", "::1"}
	for _, host := range []string{s.opts.advertise, hostPart(s.opts.mqttsListenAddress())} {
		if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) && !slices.Contains(all, host) {
			all = append(all, host)
		}
	}
	return all
}

func hostPart(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}

// plainURL returns the broker's URL for clients without a certificate. If there is none, it is
// empty.
func (s *system) plainURL() string {
	if s.broker != nil {
		return s.broker.URL()
	}
	return s.opts.mqttURL
}

// mqttsURL returns the broker's URL for robots with a certificate, once the broker runs. If there
// is none, it is empty.
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

// joinURL returns the URL at which robots join. If there is none, it is empty.
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

// bridgeConfig returns the server's configuration for the broker and its CA.
func (s *system) bridgeConfig() gateway.Config {
	c := gateway.Config{
		RobotNamespace: s.opts.robotNamespace, OfflineAfter: s.opts.offlineAfter, MQTTURL: s.plainURL(),
		AllowLegacy: s.opts.allowLegacy, AllowAnonymous: s.opts.allowAnonymous, AllowPlaintext: s.opts.allowPlaintext,
	}
	if s.registry != nil {
		c.MQTTURL, c.TLS = s.broker.TLSURL(), s.authority.ServerTLSConfig()
	}
	return c
}

func (s *system) joinConfig() server.JoinConfig {
	if s.registry == nil {
		return server.JoinConfig{Certificates: &s.certificates}
	}
	return server.JoinConfig{Authority: s.authority, MQTTURL: s.mqttsURL, Certificates: &s.certificates}
}

// robotFlags returns the flags by which the local robots connect. They join like all others, with a
// token that only they may use.
func (s *system) robotFlags(ctx context.Context) ([]string, error) {
	if s.registry == nil {
		return []string{"--mqtt-url=" + s.plainURL()}, nil
	}
	file := s.dir.Join("pki", "robot-token")
	if err := install.RepeatInterrupted(func() error { return s.writeToken(ctx, file) }); err != nil {
		return nil, fmt.Errorf("create join token for the robots on this machine: %w", err)
	}
	local := url.URL{Scheme: "https", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.logs.Addr().(*net.TCPAddr).Port))}
	return []string{
		"--server=" + local.String(), "--mqtt-url=" + s.broker.TLSURL(),
		"--ca-file=" + s.dir.Join(append(robotCADir, "ca.crt")...), "--token-file=" + file,
	}, nil
}

// tokenLifetime is longer than the start of any number of robots.
const tokenLifetime = time.Hour

// writeToken creates a join token, unless all robots have joined.
func (s *system) writeToken(ctx context.Context, file string) error {
	if s.haveRobotsJoined(file) {
		return nil
	}
	n := len(s.opts.robotIDs())
	token, text := jointoken.NewToken(jointoken.Token{
		Expires: time.Now().Add(tokenLifetime), Uses: n, Robots: "robot-*", Namespace: s.opts.robotNamespace,
	})
	c, err := newCoreClient(s.client)
	if err != nil {
		return err
	}
	if err := c.Create(ctx, token.ToSecret(systemNamespace)); err != nil {
		return err
	}
	return keyfile.WriteFile(file, []byte(text+"\n"))
}

// haveRobotsJoined reports whether there was a token and each robot has a certificate.
func (s *system) haveRobotsJoined(tokenFile string) bool {
	files := []string{tokenFile}
	for _, id := range s.opts.robotIDs() {
		files = append(files, s.dir.Join("robots", id, "identity", "certificate.pem"))
	}
	return !slices.ContainsFunc(files, func(f string) bool { _, err := os.Stat(f); return err != nil })
}
