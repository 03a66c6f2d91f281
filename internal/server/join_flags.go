package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"

	"k8s4r.io/k8s4r/internal/protocol/keyfile"
	"k8s4r.io/k8s4r/internal/server/ca"
	"k8s4r.io/k8s4r/internal/server/gateway"
)

// joinFlags configure how robots join, and the server's connection to the broker.
type joinFlags struct {
	caDir            string
	robotLifetime    time.Duration
	robotMQTTURL     string
	mqttCAFile       string
	mqttCertificates [2]string // certificate and key
}

func (j *joinFlags) addFlags(f *pflag.FlagSet, c *Config) {
	f.StringVar(&j.caDir, "robot-ca-dir", "", "directory with tls.crt, tls.key and ca.crt of the CA that signs the certificates of robots, such as a mounted Secret of cert-manager; empty: robots cannot join")
	f.DurationVar(&j.robotLifetime, "robot-certificate-duration", ca.DefaultRobotLifetime, "lifetime of robot certificates; robots renew them after two thirds of it")
	f.StringVar(&c.Join.RevocationFile, "robot-crl-file", "", "file to which the certificates of revoked robots are written, as a revocation list in PEM for brokers; needs --robot-ca-dir; empty: none")
	f.StringVar(&j.robotMQTTURL, "robot-mqtt-url", "", "URL of the broker that robots get when they join, such as mqtts://broker.example.com:8883; empty: each agent needs --mqtt-url")
	f.StringVar(&j.mqttCAFile, "mqtt-ca-file", "", "PEM file with the CA of the broker of --mqtt-url=mqtts://…; empty: the CAs of the system")
	f.StringVar(&j.mqttCertificates[0], "mqtt-cert-file", "", "PEM file with the client certificate of this server for the broker; empty: a certificate of the CA in --robot-ca-dir, if that is set")
	f.StringVar(&j.mqttCertificates[1], "mqtt-key-file", "", "PEM file with the key of --mqtt-cert-file")
	f.BoolVar(&c.Gateway.AllowAnonymous, "allow-anonymous-agents", false, "accept robots without a certificate: any client of the broker can impersonate them")
	f.BoolVar(&c.Gateway.AllowPlaintext, "allow-plaintext-broker", false, "allow an MQTT broker on another machine without TLS: anyone on the network path can run commands on robots and impersonate them")
	f.BoolVar(&c.Gateway.AllowLegacy, "allow-legacy-agents", false, "accept legacy agents, which have no certificates: any client of the broker can impersonate their robots")
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
	if j.caDir != "" {
		if c.Join.Authority, err = ca.Open(j.caDir); err != nil {
			return fmt.Errorf("--robot-ca-dir: %w", err)
		}
		c.Join.Authority.SetRobotLifetime(j.robotLifetime)
	}
	if err := checkRevocationFile(c.Join); err != nil {
		return fmt.Errorf("--robot-crl-file: %w", err)
	}
	broker, err := url.Parse(j.robotMQTTURL)
	return errors.Join(
		requireFlag(j.robotLifetime >= time.Minute, "--robot-certificate-duration=%s: must be at least a minute", j.robotLifetime),
		requireFlag(j.robotMQTTURL == "" || err == nil && broker.Scheme == "mqtts" && broker.Port() != "", "--robot-mqtt-url=%s: must be mqtts://host:port", j.robotMQTTURL),
		requireFlag((j.mqttCertificates[0] == "") == (j.mqttCertificates[1] == ""), "--mqtt-cert-file, --mqtt-key-file: set both or none"),
		j.configureTLS(c),
	)
}

// checkRevocationFile returns an error if the file cannot be written later.
func checkRevocationFile(c JoinConfig) error {
	if c.RevocationFile == "" {
		return nil
	}
	if c.Authority == nil {
		return errors.New("also set --robot-ca-dir, whose CA signs the list")
	}
	if info, err := os.Stat(filepath.Dir(c.RevocationFile)); err != nil || !info.IsDir() {
		return errors.Join(fmt.Errorf("%s must be a directory", filepath.Dir(c.RevocationFile)), err)
	}
	return c.Authority.CanSignRevocationLists()
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
