package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"

	"k8s4r.io/k8s4r/internal/protocol/keyfile"
	"k8s4r.io/k8s4r/internal/server/ca"
	"k8s4r.io/k8s4r/internal/server/gateway"
)

// joinFlags configure how robots join, and the server's connection to the broker.
type joinFlags struct {
	authorityDir     string
	robotLifetime    time.Duration
	robotMQTTURL     string
	mqttCAFile       string
	mqttCertificates [2]string // certificate and key
}

func (j *joinFlags) addFlags(f *pflag.FlagSet, c *Config) {
	f.StringVar(&j.authorityDir, "robot-ca-dir", "", "directory with tls.crt, tls.key and ca.crt, such as a mounted Secret of cert-manager, of the authority that signs for robots; empty: robots cannot join")
	f.DurationVar(&j.robotLifetime, "robot-certificate-duration", ca.DefaultRobotLifetime, "how long a robot's certificate is good for; the robot renews it when two thirds are over")
	f.StringVar(&j.robotMQTTURL, "robot-mqtt-url", "", "URL at which robots that join find the broker, such as mqtts://broker.example.com:8883; empty: each needs --mqtt-url")
	f.StringVar(&j.mqttCAFile, "mqtt-ca-file", "", "certificates that vouch for the broker of --mqtt-url=mqtts://…, PEM; empty: those that this system trusts")
	f.StringVar(&j.mqttCertificates[0], "mqtt-cert-file", "", "certificate by which this server proves itself to the broker; empty: one of --robot-ca-dir, if there is that")
	f.StringVar(&j.mqttCertificates[1], "mqtt-key-file", "", "key of that certificate")
	f.BoolVar(&c.Gateway.AllowAnonymous, "allow-anonymous-agents", false, "register robots that have not joined: whoever reaches the broker can speak for any of them")
	f.BoolVar(&c.Gateway.AllowPlaintext, "allow-plaintext-broker", false, "speak to a broker on another machine without TLS: whoever is on the way there can run commands on robots, and speak for any of them")
	f.BoolVar(&c.Gateway.AllowLegacy, "allow-legacy-agents", false, "hear the document's own agents, which prove nothing: whoever reaches their topics at the broker can speak for any of them")
}

// logInsecureFlags logs the risks of the flags that weaken authentication.
func logInsecureFlags(c gateway.Config, log logr.Logger) {
	if c.IsPlaintextBroker() {
		log.Info("--allow-plaintext-broker: anyone on the network path to the broker can run commands on robots and impersonate them")
	}
	if c.AllowLegacy {
		log.Info("--allow-legacy-agents: legacy agents have no certificates; any client of the broker can impersonate their robots")
	}
	if c.AllowAnonymous {
		log.Info("--allow-anonymous-agents: any client of the broker can impersonate robots without a certificate")
	}
}

// applyTo opens the files that the flags name, after they are parsed.
func (j *joinFlags) applyTo(c *Config) (err error) {
	if j.authorityDir != "" {
		if c.Join.Authority, err = ca.Open(j.authorityDir); err != nil {
			return fmt.Errorf("--robot-ca-dir: %w", err)
		}
		c.Join.Authority.SetRobotLifetime(j.robotLifetime)
	}
	broker, err := url.Parse(j.robotMQTTURL)
	return errors.Join(
		requireFlag(j.robotLifetime >= time.Minute, "--robot-certificate-duration=%s: must be at least a minute", j.robotLifetime),
		requireFlag(j.robotMQTTURL == "" || err == nil && broker.Scheme == "mqtts" && broker.Port() != "", "--robot-mqtt-url=%s: must be mqtts://host:port", j.robotMQTTURL),
		requireFlag((j.mqttCertificates[0] == "") == (j.mqttCertificates[1] == ""), "--mqtt-cert-file and --mqtt-key-file: one is of no use without the other"),
		j.configureTLS(c),
	)
}

// configureTLS configures the server's TLS connection to the broker.
func (j *joinFlags) configureTLS(c *Config) error {
	if j.robotMQTTURL != "" {
		c.Join.MQTTURL = func() string { return j.robotMQTTURL }
	}
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12}
	if a := c.Join.Authority; a != nil {
		tlsConfig.GetClientCertificate = a.ServerClientCertificate
	}
	if j.mqttCAFile != "" {
		var err error
		if tlsConfig.RootCAs, err = keyfile.ReadPool(j.mqttCAFile); err != nil {
			return fmt.Errorf("--mqtt-ca-file: %w", err)
		}
	}
	if cert, key := j.mqttCertificates[0], j.mqttCertificates[1]; cert != "" && key != "" {
		var err error
		if tlsConfig.GetClientCertificate, err = keyfile.ClientCertificateFunc(cert, key); err != nil {
			return fmt.Errorf("--mqtt-cert-file: %w", err)
		}
	}
	c.Gateway.TLS = tlsConfig
	return nil
}
