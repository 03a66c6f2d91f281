package controlplane

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"k8s4r.io/k8s4r/internal/protocol/keyfile"
	"k8s4r.io/k8s4r/standalone/internal/auditlog"
)

const (
	serviceRange = "10.96.0.0/16"
	// serviceIP is the first address of serviceRange: the API server assigns it to the Service
	// "kubernetes".
	serviceIP = "10.96.0.1"
)

// credentials are the files with which the servers and their clients authenticate.
type credentials struct {
	ca, serving       pair
	serviceAccountKey string // file
	clients           []pair
	admin             string // kubeconfig file
	process           string // kubeconfig file, of this process
	controllerManager string // kubeconfig file
	scheduler         string // kubeconfig file
	kubeletClient     pair   // of the API server, towards a kubelet
	kubelet           pair   // the kubelet's serving certificate
}

// loadCredentials reads or creates all credentials of a server at address, and renews those that
// are due. admin is the path of the administrator's kubeconfig.
func (p pki) loadCredentials(admin string, address *net.TCPAddr) (credentials, error) {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return credentials{}, fmt.Errorf("keys: %w", err)
	}
	ca, err := p.loadCA()
	if err != nil {
		return credentials{}, err
	}
	c := credentials{
		ca: ca, admin: admin, process: p.filePath("up.kubeconfig"),
		controllerManager: p.filePath("controller-manager.kubeconfig"), scheduler: p.filePath("scheduler.kubeconfig"),
	}
	if c.serving, err = p.loadServing(ca, servingNames(), servingAddresses(address.IP)); err != nil {
		return credentials{}, err
	}
	if c.serviceAccountKey, err = p.serviceAccountKey(); err != nil {
		return credentials{}, err
	}
	return c, errors.Join(c.addClients(p, serverURL(address)), c.addKubelet(p))
}

// addClients adds the clients of the API server, each with a kubeconfig.
func (c *credentials) addClients(p pki, server string) error {
	for _, client := range []struct {
		name, kubeconfig, user string
		groups                 []string
	}{
		{"admin", c.admin, "k8s4r-admin", []string{"system:masters"}},
		{"up", c.process, auditlog.ProcessUser, []string{"system:masters"}},
		{"controller-manager", c.controllerManager, "system:kube-controller-manager", nil},
		{"scheduler", c.scheduler, "system:kube-scheduler", nil},
	} {
		own, err := p.loadClient(client.name, c.ca, client.user, client.groups...)
		if err != nil {
			return err
		}
		c.clients = append(c.clients, own)
		if err := writeKubeconfig(client.kubeconfig, newKubeconfig(server, c.ca, own)); err != nil {
			return err
		}
	}
	return nil
}

// certificates returns all certificates, by name.
func (c *credentials) certificates() map[string]*x509.Certificate {
	all := map[string]*x509.Certificate{"cluster-ca": c.ca.cert}
	for _, p := range append([]pair{c.serving, c.kubeletClient, c.kubelet}, c.clients...) {
		all[strings.TrimSuffix(filepath.Base(p.certFile), ".crt")] = p.cert
	}
	return all
}

// KubeletClient is the common name of the API server's client certificate for kubelets.
const KubeletClient = "kube-apiserver-kubelet-client"

func (c *credentials) addKubelet(p pki) (err error) {
	if c.kubeletClient, err = p.loadClient("kubelet-client", c.ca, KubeletClient); err != nil {
		return err
	}
	c.kubelet, err = p.loadKubelet(c.ca)
	return err
}

func servingNames() []string {
	names := []string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local",
	}
	if host, err := os.Hostname(); err == nil && host != "" {
		names = append(names, host)
	}
	return names
}

// servingAddresses returns the addresses at which clients reach the server. For an unspecified bind
// address, these are all addresses of this machine.
func servingAddresses(bind net.IP) []net.IP {
	ips := []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(serviceIP)}
	if !bind.IsUnspecified() {
		return append(ips, bind)
	}
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			ips = append(ips, n.IP)
		}
	}
	return ips
}

// serverURL returns the URL of the server for clients on this machine.
func serverURL(address *net.TCPAddr) string {
	host := address.IP.String()
	if address.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "https://" + net.JoinHostPort(host, fmt.Sprint(address.Port))
}

// newKubeconfig names the files of the client, because programs read these again when they are
// renewed. The CA stays.
func newKubeconfig(server string, ca, client pair) *api.Config {
	const name = "k8s4r"
	c := api.NewConfig()
	c.Clusters[name] = &api.Cluster{Server: server, CertificateAuthorityData: ca.certPEM}
	c.AuthInfos[name] = &api.AuthInfo{ClientCertificate: client.certFile, ClientKey: client.keyFile}
	c.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	c.CurrentContext = name
	return c
}

// writeKubeconfig writes the file unless it has this content.
func writeKubeconfig(path string, c *api.Config) error {
	data, err := clientcmd.Write(*c)
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	if had, err := os.ReadFile(path); err == nil && bytes.Equal(had, data) {
		return nil
	}
	return keyfile.WriteFile(path, data)
}
