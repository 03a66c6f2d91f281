package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"

	"k8s4r.io/k8s4r/internal/authority"
	"k8s4r.io/k8s4r/internal/bridge"
	"k8s4r.io/k8s4r/internal/keyfile"
)

// joinFlags say how robots join, and how this server proves itself to the
// broker.
type joinFlags struct {
	authorityDir     string
	certificateLife  time.Duration
	robotMQTTURL     string
	mqttCAFile       string
	mqttCertificates [2]string // certificate and key
}

func (j *joinFlags) add(f *pflag.FlagSet, c *Config) {
	f.StringVar(&j.authorityDir, "robot-ca-dir", "", "directory with tls.crt, tls.key and ca.crt, such as a mounted Secret of cert-manager, of the authority that signs for robots; empty: robots cannot join")
	f.DurationVar(&j.certificateLife, "robot-certificate-life", authority.DefaultRobotLife, "how long a robot's certificate is good for; the robot renews it when two thirds are over")
	f.StringVar(&j.robotMQTTURL, "robot-mqtt-url", "", "URL at which robots that join find the broker, such as mqtts://broker.example.com:8883; empty: each needs --mqtt-url")
	f.StringVar(&j.mqttCAFile, "mqtt-ca-file", "", "certificates that vouch for the broker of --mqtt-url=mqtts://…, PEM; empty: those that this system trusts")
	f.StringVar(&j.mqttCertificates[0], "mqtt-cert-file", "", "certificate by which this server proves itself to the broker; empty: one of --robot-ca-dir, if there is that")
	f.StringVar(&j.mqttCertificates[1], "mqtt-key-file", "", "key of that certificate")
	f.BoolVar(&c.Bridge.AllowAnonymous, "allow-anonymous-agents", false, "register robots that have not joined: whoever reaches the broker can speak for any of them")
	f.BoolVar(&c.Bridge.AllowPlaintext, "allow-plaintext-broker", false, "speak to a broker on another machine without TLS: whoever is on the way there can run commands on robots, and speak for any of them")
	f.BoolVar(&c.Bridge.AllowLegacy, "allow-legacy-agents", false, "hear the document's own agents, which prove nothing: whoever reaches their topics at the broker can speak for any of them")
}

// sayWhatIsOpen tells the operator what a flag costs.
func sayWhatIsOpen(c bridge.Config, log logr.Logger) {
	if c.PlaintextBroker() {
		log.Info("--allow-plaintext-broker: whoever is on the way to the broker can run commands on robots, and speak for any of them")
	}
	if c.AllowLegacy {
		log.Info("--allow-legacy-agents: agents of the document prove nothing; whoever reaches their topics at the broker can speak for any of them")
	}
	if c.AllowAnonymous {
		log.Info("--allow-anonymous-agents: whoever reaches the broker can speak for robots that prove nothing")
	}
}

// apply opens what the flags name. It comes after they have been read.
func (j *joinFlags) apply(c *Config) (err error) {
	if j.authorityDir != "" {
		if c.Join.Authority, err = authority.Open(j.authorityDir); err != nil {
			return fmt.Errorf("--robot-ca-dir: %w", err)
		}
		c.Join.Authority.SetRobotLife(j.certificateLife)
	}
	broker, err := url.Parse(j.robotMQTTURL)
	return errors.Join(
		check(j.certificateLife >= time.Minute, "--robot-certificate-life=%s: must be at least a minute", j.certificateLife),
		check(j.robotMQTTURL == "" || err == nil && broker.Scheme == "mqtts" && broker.Port() != "", "--robot-mqtt-url=%s: must be mqtts://host:port", j.robotMQTTURL),
		check((j.mqttCertificates[0] == "") == (j.mqttCertificates[1] == ""), "--mqtt-cert-file and --mqtt-key-file: one is of no use without the other"),
		j.secure(c),
	)
}

// secure says how this server and the broker prove themselves to each other.
func (j *joinFlags) secure(c *Config) error {
	if j.robotMQTTURL != "" {
		c.Join.MQTTURL = func() string { return j.robotMQTTURL }
	}
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12}
	if a := c.Join.Authority; a != nil {
		tlsConfig.GetClientCertificate = a.ServerClient
	}
	if j.mqttCAFile != "" {
		var err error
		if tlsConfig.RootCAs, err = keyfile.Trusted(j.mqttCAFile); err != nil {
			return fmt.Errorf("--mqtt-ca-file: %w", err)
		}
	}
	if cert, key := j.mqttCertificates[0], j.mqttCertificates[1]; cert != "" && key != "" {
		var err error
		if tlsConfig.GetClientCertificate, err = keyfile.ClientPair(cert, key); err != nil {
			return fmt.Errorf("--mqtt-cert-file: %w", err)
		}
	}
	c.Bridge.TLS = tlsConfig
	return nil
}
